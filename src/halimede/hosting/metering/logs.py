"""CloudWatch Logs' operations that read: what instances print.

A log group is an endpoint, ``/aws/sagemaker/Endpoints/NAME``; a stream is an instance, ``VARIANT/INSTANCE``, or one of
its containers if it has several, ``VARIANT/INSTANCE/CONTAINER``. All transform jobs have one log group,
``/aws/sagemaker/TransformJobs``, with the streams ``JOB/INSTANCE``.
"""

import asyncio
import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from halimede.hosting.api.services import Service
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import TRANSFORM_JOBS, Caller
from halimede.hosting.metering.filter_patterns import parse_filter_pattern
from halimede.hosting.metering.log_lines import (
    Event,
    end_of_lines,
    lines,
    lines_before,
    size_of,
    stored_bytes,
)
from halimede.hosting.metering.log_streams import Stream, streams_of
from halimede.hosting.metering.log_times import LineTimes
from halimede.hosting.paging import begin_of

_GROUP = "/aws/sagemaker/Endpoints/"
_JOBS = "/aws/sagemaker/TransformJobs"

_MAX_EVENTS = 10_000
_MAX_BYTES = 1 << 20
"""Of one answer, as CloudWatch has it."""

_PAGE = 50
_NAME_BYTES = 200
"""No name of an endpoint, variant or instance is longer; the file system would complain."""

_END = 1 << 62
_INVALID = "InvalidParameterException"

_TOKEN = re.compile(r"([fb])/([0-9]{1,15})")
_FILTER_TOKEN = re.compile(r"([0-9]{1,15})/([0-9]{1,15})/(.+)")

Request = Mapping[str, Any]
Place = tuple[int, str, int]
"""Where an event is among those of a group, in order: when, its stream, its position in it."""


def logs_service(directory: Path) -> Service:
    """The operations over the caller's logs below a directory: ``ACCOUNT/REGION/ENDPOINT/VARIANT/INSTANCE.log``."""

    def logs(caller: Caller) -> Logs:
        return Logs(caller.scope.directory(directory))

    return Service(
        "logs",
        {
            "DescribeLogGroups": lambda request, caller: logs(caller).describe_log_groups(request, caller),
            "DescribeLogStreams": lambda request, caller: logs(caller).describe_log_streams(request, caller),
            "GetLogEvents": lambda request, caller: logs(caller).get_log_events(request, caller),
            "FilterLogEvents": lambda request, caller: logs(caller).filter_log_events(request, caller),
        },
        later="logs are what instances print, and can be read only",
        refusal=_INVALID,
    )


class Logs:
    """The operations over one account's logs of a region. Lives on the event loop; files are read on other threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def describe_log_groups(self, request: Request, caller: Caller) -> dict[str, Any]:
        """The endpoints that have logs."""
        names = await asyncio.to_thread(self._groups)
        prefix, pattern = request.get("logGroupNamePrefix", ""), request.get("logGroupNamePattern", "")
        groups = [
            {"logGroupName": name, "arn": _arn(caller, name), "metricFilterCount": 0}
            for name in names
            if name.startswith(prefix) and pattern in name
        ]
        page = _page(groups, request, "logGroups")
        await asyncio.to_thread(self._describe_groups, page["logGroups"])
        return page

    def _describe_groups(self, groups: Sequence[dict[str, Any]]) -> None:
        """Add to groups when they were made, and how many bytes of their logs are there."""
        for group in groups:
            streams = _streams(self._directory / _name_of(group["logGroupName"]), "")
            group["creationTime"] = min((stream["creationTime"] for stream in streams), default=0)
            group["storedBytes"] = sum(stream["storedBytes"] for stream in streams)

    def _groups(self) -> list[str]:
        if not self._directory.is_dir():
            return []
        return sorted({_group_name(log.parent.parent.name) for log in self._directory.glob("*/*/*.log")})

    async def describe_log_streams(self, request: Request, caller: Caller) -> dict[str, Any]:
        """The instances of an endpoint that have logs."""
        group = _group_of(request)
        prefix, by_time = request.get("logStreamNamePrefix", ""), request.get("orderBy") == "LastEventTime"
        streams = await asyncio.to_thread(_streams, self._group(group), prefix)
        streams.sort(
            key=lambda each: (each["lastEventTimestamp"] if by_time else 0, each["logStreamName"]),
            reverse=request.get("descending", False),
        )
        for stream in streams:
            stream["arn"] = f"{_arn(caller, group)}:log-stream:{stream['logStreamName']}"
        return _page(streams, request, "logStreams")

    async def get_log_events(self, request: Request, _: Caller) -> dict[str, Any]:
        """Lines of one instance's log: those after a token, or those before it."""
        stream = self._stream(self._group(_group_of(request)), request["logStreamName"])
        log = stream.log
        token = request.get("nextToken")
        if token is None:
            forward = request.get("startFromHead", False)
            position = 0 if forward else await asyncio.to_thread(end_of_lines, log)
        else:
            match = _TOKEN.fullmatch(token)
            if match is None:
                raise _bad_token(token)
            forward, position = match[1] == "f", int(match[2])
        window = (request.get("startTime", 0), request.get("endTime", _END))
        limit = request.get("limit", _MAX_EVENTS)

        def read() -> list[Event]:
            found = lines(log, position, window) if forward else lines_before(log, position, window)
            events = list(_within_answer_limit(islice(stream.events(found), limit)))
            return events if forward else events[::-1]

        events = await asyncio.to_thread(read)
        first, last = (events[0].position, events[-1].end) if events else (position, position)
        return {
            "events": [
                {"timestamp": each.when, "message": each.text, "ingestionTime": each.when} for each in events
            ],
            "nextForwardToken": f"f/{last}",
            "nextBackwardToken": f"b/{first}",
        }

    async def filter_log_events(self, request: Request, _: Caller) -> dict[str, Any]:
        """Lines of an endpoint's logs that fit a pattern, in the order of their times."""
        directory = self._group(_group_of(request))
        matches = parse_filter_pattern(request.get("filterPattern", ""))
        window = (request.get("startTime", 0), request.get("endTime", _END - 1) + 1)
        limit = request.get("limit", _MAX_EVENTS)
        names = request.get("logStreamNames")
        for name in names or ():
            self._stream(directory, name)
        prefix = request.get("logStreamNamePrefix", "")
        after = _place_of(request.get("nextToken"))

        def places() -> Iterator[Place]:
            for stream in sorted(_all_streams(directory), key=lambda each: each.name):
                name = stream.name
                if name.startswith(prefix) and (names is None or name in names):
                    for event in stream.events(lines(stream.log, 0, window)):
                        place = (event.when, name, event.position)
                        if place > after and matches(event.text):
                            yield place

        def read() -> tuple[list[dict[str, Any]], Place | None]:
            found = heapq.nsmallest(limit + 1, places())
            events: list[dict[str, Any]] = []
            size, seen = 0, 0
            for place in found[:limit]:
                event = self._filtered(directory, place)
                if event is not None:  # it has not gone meanwhile
                    size += len(event["message"])
                    if events and size > _MAX_BYTES:
                        break
                    events.append(event)
                seen += 1
            return events, found[seen - 1] if seen < len(found) else None

        events, last = await asyncio.to_thread(read)
        answer: dict[str, Any] = {"events": events, "searchedLogStreams": []}
        if last is not None:
            when, name, position = last
            answer["nextToken"] = f"{when}/{position}/{name}"
        return answer

    def _group(self, group: str) -> Path:
        name = _name_of(group)
        directory = self._directory / name
        if group != _group_name(name) or not _is_plain(name) or not directory.is_dir():
            raise _missing("group", f"'{group}'; groups are {_GROUP}ENDPOINT and {_JOBS}")
        return directory

    def _stream(self, directory: Path, name: str) -> Stream:
        parts = name.split("/")
        log = directory / f"{'/'.join(parts[:2])}.log"
        if all(_is_plain(part) for part in parts) and log.is_file():
            for stream in streams_of(log):
                if stream.name == name:
                    return stream
        raise _missing("stream", f"'{name}'; streams are VARIANT/INSTANCE, or VARIANT/INSTANCE/CONTAINER")

    def _filtered(self, directory: Path, place: Place) -> dict[str, Any] | None:
        """The event at a place; None if it is gone."""
        when, name, position = place
        try:
            stream = self._stream(directory, name)
        except ApiError:
            return None
        event = next(stream.events(islice(lines(stream.log, position), 1)), None)
        if event is None or event.position != position:
            return None
        return {
            "logStreamName": name,
            "timestamp": when,
            "message": event.text,
            "ingestionTime": when,
            "eventId": f"{name}/{position}",
        }


def _name_of(group: str) -> str:
    """The name of the directory that has a group's logs."""
    return TRANSFORM_JOBS if group == _JOBS else group.removeprefix(_GROUP)


def _group_name(directory: str) -> str:
    """The group whose logs a directory of that name has."""
    return _JOBS if directory == TRANSFORM_JOBS else _GROUP + directory


def _is_plain(name: str) -> bool:
    """Whether a name is one part of a path, and nothing else."""
    return name not in ("", ".", "..") and not {"/", "\0"} & set(name) and len(name.encode()) <= _NAME_BYTES


def _missing(what: str, which: str) -> ApiError:
    return ApiError("ResourceNotFoundException", f"The specified log {what} does not exist: {which}")


def _bad_token(token: str) -> ApiError:
    return ApiError(_INVALID, f"The specified nextToken is invalid: '{token[:128]}'")


def _arn(caller: Caller, group: str) -> str:
    return f"arn:aws:logs:{caller.region}:{caller.account}:log-group:{group}"


def _group_of(request: Request) -> str:
    group = request.get("logGroupName") or request.get("logGroupIdentifier", "").rpartition("log-group:")[2]
    if not group:
        raise ApiError(_INVALID, "logGroupName is missing")
    return str(group)


def _all_streams(directory: Path) -> Iterator[Stream]:
    for log in directory.glob("*/*.log"):
        yield from streams_of(log)


def _streams(directory: Path, prefix: str) -> list[dict[str, Any]]:
    streams = []
    for stream in _all_streams(directory):
        if stream.name.startswith(prefix):
            log, times = stream.log, LineTimes(stream.log)
            streams.append(
                {
                    "logStreamName": stream.name,
                    "creationTime": times.at(0),
                    "firstEventTimestamp": times.at(0),
                    "lastEventTimestamp": times.at(size_of(log)),
                    "storedBytes": 0 if stream.container else stored_bytes(log),
                }
            )
    return streams


def _within_answer_limit(events: Iterable[Event]) -> Iterator[Event]:
    """As many of the events as one answer may have; at least one."""
    size = 0
    for event in events:
        size += event.end - event.position
        if size > _MAX_BYTES and size > event.end - event.position:
            return
        yield event


def _place_of(token: str | None) -> Place:
    """The place after which the events of a page are."""
    if token is None:
        return -1, "", 0
    match = _FILTER_TOKEN.fullmatch(token)
    if match is None:
        raise _bad_token(token)
    return int(match[1]), match[3], int(match[2])


def _page(entries: list[dict[str, Any]], request: Request, key: str) -> dict[str, Any]:
    begin = begin_of(request.get("nextToken"), _INVALID)
    end = begin + request.get("limit", _PAGE)
    page: dict[str, Any] = {key: entries[begin:end]}
    if end < len(entries):
        page["nextToken"] = str(end)
    return page
