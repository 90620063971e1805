"""The console's pages and calls.

    GET /console             the page, and its files below that path
    GET /console/snapshot    what the host is doing, as JSON: see `snapshot`
    GET /console/events      the same each second, as server-sent events named `snapshot`

The page tells nothing, and is sent to everyone. Where there are keys, the calls need a signature for the service
`sagemaker`, and show what the key may see. They change nothing, and are not answered for pages of other sites.
"""

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import orjson

from halimede.frontends.console.files import HEADERS, page_file
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.keys import Key
from halimede.hosting.api.digests import target_of
from halimede.hosting.console.snapshot import HostSnapshots, Sources
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request, response_head
from halimede.hosting.identity import Caller

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


class HostConsole:
    """Answers requests for the console. Lives on the event loop.

    Args:
        gate: says who asks.
        sources: what is shown.
    """

    def __init__(self, gate: Gate, sources: Sources) -> None:
        self._gate = gate
        self._snapshots = HostSnapshots(sources)
        self._tasks: set[asyncio.Task[None]] = set()

    def pages(self) -> Mapping[str, Callable[[Request], None]]:
        """Path → what answers it."""
        names = list(_files(resources.files("halimede.frontends.console") / "static"))
        return {
            _PATH: lambda request: _send_file(request, "host.html"),
            **{f"{_PATH}/{name}": _sender(name) for name in names},
            f"{_PATH}/snapshot": lambda request: self._answer(request, follow=False),
            f"{_PATH}/events": lambda request: self._answer(request, follow=True),
        }

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _answer(self, request: Request, *, follow: bool) -> None:
        try:
            if request.head.headers.get("sec-fetch-site") not in _SAME_SITE:
                msg = "the console's calls are not answered for pages of other sites"
                raise ApiError("AccessDeniedException", msg, 403)
            caller, key = self._gate.admit(request.head, target_of(request.head), _NO_BODY, ("sagemaker",))
        except ApiError as error:
            _refuse(request, error)
            return
        work = self._follow(request, caller, key) if follow else self._once(request, caller, key)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _once(self, request: Request, caller: Caller, key: Key | None) -> None:
        try:
            request.respond(200, await self._document(caller, key), _JSON)
        except ApiError as error:
            _refuse(request, error)

    async def _follow(self, request: Request, caller: Caller, key: Key | None) -> None:
        try:
            document = await self._document(caller, key)
        except ApiError as error:
            _refuse(request, error)
            return
        request.begin(response_head(200, _STREAM))
        try:
            while not request.answered:
                if request.is_writable:
                    event = b"event: snapshot\ndata: %b\n\n" % document
                    request.write(b"%x\r\n%b\r\n" % (len(event), event))
                await asyncio.sleep(INTERVAL_S)
                document = await self._document(caller, key)
        finally:
            if not request.answered:
                request.write(b"0\r\n\r\n")
                request.end()

    async def _document(self, caller: Caller, key: Key | None) -> bytes:
        return orjson.dumps(await self._snapshots.take(caller, key), default=str)


def _sender(name: str) -> Callable[[Request], None]:
    return lambda request: _send_file(request, name)


def _send_file(request: Request, name: str) -> None:
    file = page_file(name)
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
