"""The console's pages and calls.

    GET /console                          the page, and its files below that path
    GET /console/snapshot                 what the host is doing, as JSON: see `snapshot`
    GET /console/events                   the same each second, as server-sent events named `snapshot`
    GET /console/models?endpoint=NAME     which instances hold which models, each second: see `models`
    GET /console/logs?endpoint=NAME       what instances print, as it comes: see `instance_logs`
    GET /console/captured?endpoint=NAME   the invocations that were captured last, as JSON: see `captured`

The page tells nothing, and is sent to everyone. Where there are keys, the calls need a signature for the service
`sagemaker`, and show what the key may see. They change nothing, and are not answered for pages of other sites.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import orjson

from halimede.console.files import HEADERS, PageFile, index_file, page_file
from halimede.hosting.access.gate import Gate
from halimede.hosting.api.digests import target_of
from halimede.hosting.api.tasks import RequestTasks
from halimede.hosting.console.captured import CapturedInvocations
from halimede.hosting.console.instance_logs import InstanceLogs
from halimede.hosting.console.models import ResidentModels
from halimede.hosting.console.snapshot import HostSnapshots
from halimede.hosting.console.sources import Sources
from halimede.hosting.console.visitor import Visitor
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request, response_head

INTERVAL_S: Final = 1.0

_PATH: Final = "/console"
_NO_BODY: Final = sha256(b"").hexdigest()
_JSON: Final = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))
_STREAM: Final = (
    ("Content-Type", "text/event-stream; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Transfer-Encoding", "chunked"),
)
_SAME_SITE: Final = (None, "same-origin", "none")

Take = Callable[[], Awaitable[object]]
"""Gives a document as of now; None if there is nothing new. Raises an ApiError if there cannot be one."""

Open = Callable[[Visitor], Take]
"""What gives a visitor the documents of a call. Raises an ApiError if they may not have them."""


class HostConsole:
    """Answers requests for the console. Lives on the event loop.

    Args:
        gate: says who asks.
        sources: what is shown.
    """

    def __init__(self, gate: Gate, sources: Sources) -> None:
        self._gate = gate
        self._sources = sources
        self._snapshots = HostSnapshots(sources)
        self._tasks = RequestTasks()

    def pages(self) -> Mapping[str, Callable[[Request], None]]:
        """Path → what answers it."""
        names = _files(resources.files("halimede.console") / "static")
        return {
            _PATH: lambda request: _send_file(request, index_file("host")),
            **{f"{_PATH}/{name}": _sender(name) for name in names},
            f"{_PATH}/snapshot": self._answering(self._snapshot, ""),
            f"{_PATH}/events": self._answering(self._snapshot, "snapshot"),
            f"{_PATH}/models": self._answering(self._models, "models"),
            f"{_PATH}/logs": self._answering(self._logs, "logs"),
            f"{_PATH}/captured": self._answering(self._captured, ""),
        }

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.close()

    # what there is to see

    def _snapshot(self, visitor: Visitor) -> Take:
        return lambda: self._snapshots.take(visitor)

    def _models(self, visitor: Visitor) -> Take:
        return ResidentModels(self._sources.table, visitor).take

    def _logs(self, visitor: Visitor) -> Take:
        return InstanceLogs(self._sources.logs, visitor).take

    def _captured(self, visitor: Visitor) -> Take:
        return CapturedInvocations(self._sources.controller, self._sources.objects_of, visitor).take

    # answering

    def _answering(self, opening: Open, event: str) -> Callable[[Request], None]:
        """What answers a call: with events of that name each second, or with one document if it has none."""

        def answer(request: Request) -> None:
            try:
                if request.head.headers.get("sec-fetch-site") not in _SAME_SITE:
                    msg = "the console's calls are not answered for pages of other sites"
                    raise ApiError("AccessDeniedException", msg, 403)
                caller, key = self._gate.admit(
                    request.head, target_of(request.head), _NO_BODY, ("sagemaker",)
                )
                take = opening(Visitor(caller, key, request.head.query))
            except ApiError as error:
                _refuse(request, error)
                return
            work = _follow(request, take, event) if event else _once(request, take)
            self._tasks.begin(request, work)

        return answer


async def _once(request: Request, take: Take) -> None:
    try:
        request.respond(200, _json(await take()), _JSON)
    except ApiError as error:
        _refuse(request, error)


async def _follow(request: Request, take: Take, event: str) -> None:
    """Answer with events until the client has gone, or there cannot be any more."""
    try:
        document = await take()
    except ApiError as error:
        _refuse(request, error)
        return
    request.begin(response_head(200, _STREAM))
    try:
        request.write(_chunk(event, document))
        while not request.answered:
            await asyncio.sleep(INTERVAL_S)
            if request.is_writable and not request.answered:  # who reads too slowly misses some
                request.write(_chunk(event, await take()))
    except ApiError:  # whoever asks again is told why
        pass
    finally:
        if not request.answered:
            request.write(b"0\r\n\r\n")
            request.end()


def _chunk(event: str, document: object) -> bytes:
    """A piece of the response with an event; with a comment if there is nothing new."""
    data = b":\n\n"
    if document is not None:
        data = b"event: %b\ndata: %b\n\n" % (event.encode(), _json(document))
    return b"%x\r\n%b\r\n" % (len(data), data)


def _json(document: object) -> bytes:
    return orjson.dumps(document, default=str)


def _sender(name: str) -> Callable[[Request], None]:
    return lambda request: _send_file(request, page_file(name))


def _send_file(request: Request, file: PageFile | None) -> None:
    assert file is not None, "paths are those of files"
    request.respond(200, file.body, (("Content-Type", file.content_type), *HEADERS))


def _files(directory: Traversable, prefix: str = "") -> list[str]:
    """The scripts and styles below a directory."""
    found: list[str] = []
    for each in directory.iterdir():
        if each.is_dir():
            found += _files(each, f"{prefix}{each.name}/")
        elif each.name.endswith((".js", ".css")):
            found.append(f"{prefix}{each.name}")
    return found


def _refuse(request: Request, error: ApiError) -> None:
    request.respond(error.status, orjson.dumps({"error": error.message}), _JSON)
