"""What the instances of an endpoint print, as it comes.

A record is {"time": seconds since the epoch, "stream": "VARIANT/INSTANCE", or with "/CONTAINER", "message": a line}.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from halimede.hosting.api.services import Operation
from halimede.hosting.console.visitor import Visitor
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId

_LAST: Final = 200
"""So many lines of each stream are told of what was printed before."""

_STREAMS: Final = 100
"""Streams that are followed: those that were printed to last."""


class InstanceLogs:
    """The logs of the endpoint that a visitor asks for, as they grow.

    Args:
        operations: DescribeLogStreams and GetLogEvents.
        visitor: who asks.

    Raises:
        ApiError: they name no endpoint, or may not read its logs.
    """

    def __init__(self, operations: Mapping[str, Operation], visitor: Visitor) -> None:
        name = visitor.endpoint
        visitor.check("logs:GetLogEvents", name)
        self._describe = operations["DescribeLogStreams"]
        self._events = operations["GetLogEvents"]
        self._caller = visitor.caller
        self._group = EndpointId(*visitor.caller.scope, name).log_group
        self._tokens: dict[str, str] = {}  # where the new lines of each stream begin

    async def take(self) -> list[dict[str, Any]] | None:
        """The records that have not been told, in the order of their times; None if there are none."""
        asked = {
            "logGroupName": self._group,
            "orderBy": "LastEventTime",
            "descending": True,
            "limit": _STREAMS,
        }
        try:
            streams = (await self._describe(asked, self._caller))["logStreams"]
        except ApiError as error:
            if error.code == "ResourceNotFoundException":  # nothing was printed yet
                return None
            raise
        found = await asyncio.gather(*(self._new(stream["logStreamName"]) for stream in streams))
        return sorted((each for records in found for each in records), key=lambda each: each["time"]) or None

    async def _new(self, stream: str) -> list[dict[str, Any]]:
        """The new lines of one stream."""
        token = self._tokens.get(stream)
        begin = {"limit": _LAST} if token is None else {"nextToken": token}
        asked = {"logGroupName": self._group, "logStreamName": stream, **begin}
        try:
            page = await self._events(asked, self._caller)
        except ApiError:  # it has been removed
            self._tokens.pop(stream, None)
            return []
        self._tokens[stream] = page["nextForwardToken"]
        return [
            {"time": each["timestamp"] / 1000, "stream": stream, "message": each["message"]}
            for each in page["events"]
        ]
