"""The program of an instance of several containers: `python -m halimede.hosting.containers.supervisor`.

    the host ─▶ the instance's port ─▶ container 1 ─▶ container 2 ─▶ …     in a row
                                   └─▶ the container that the request names  side by side

It is told what to start at its standard input (`spawn.Plan`), and ends when one of the containers does; what it prints
last says which one, and why. To the host it is an instance as any other.
"""

import asyncio
import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress

import orjson
import uvloop

from halimede.core.tasks import Tasks
from halimede.hosting.containers.container import Container, free_ports
from halimede.hosting.containers.counts import PATH
from halimede.hosting.containers.health import TEXT, Health
from halimede.hosting.containers.passage import Passage, Step
from halimede.hosting.errors import ApiError
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.http.request import Request
from halimede.hosting.routing.heads import TARGET_CONTAINER
from halimede.hosting.substrates.output import CONTAINER_FAILED
from halimede.hosting.substrates.program import unix_socket
from halimede.hosting.substrates.spawn import Plan

_BACKLOG = 1024
_GRACE_S = 60.0
"""So long containers may take to end when the instance is to; whoever asks for that is less patient."""


class Supervisor:
    """The containers of an instance. Lives on the event loop."""

    def __init__(self, plan: Plan) -> None:
        """Nothing has been started."""
        self._plan = plan
        self._containers: dict[str, Container] = {}
        self._health: Health | None = None
        self._passages: set[Passage] = set()
        self._connections: set[ClientConnection] = set()
        self._tasks = Tasks()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Start the containers, and pass requests on until one ends or somebody asks for the end: the exit status."""
        loop, place = asyncio.get_running_loop(), self._plan.place
        loop.add_signal_handler(signal.SIGTERM, self._end, 0)
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        listeners = [await loop.create_server(self._connection, place.address, place.port, backlog=_BACKLOG)]
        with suppress(OSError):  # the port does as well
            path = "\0" + unix_socket(place.port)[1:]
            listeners.append(await loop.create_unix_server(self._connection, path, backlog=_BACKLOG))
        await self._start()
        status = await self._over
        for listener in listeners:
            listener.close()
        if status:
            for container in self._containers.values():
                container.terminate()
        else:
            await asyncio.gather(*(each.watched.end(_GRACE_S) for each in self._containers.values()))
        return status

    async def _start(self) -> None:
        names = [container.name for container in self._plan.request.containers]
        for name, port in zip(names, free_ports(len(names)), strict=True):
            try:
                self._containers[name] = await Container.start(self._plan, name, port, self._ended)
            except ApiError as error:
                _print_error(f"container '{name}': {error.message}")
                self._end(CONTAINER_FAILED)
                return
        self._health = Health(list(self._containers.values()))

    # requests

    def _connection(self) -> ClientConnection:
        return ClientConnection(self._handle, None, self._connections)

    def _handle(self, request: Request) -> None:
        head = request.head
        if head.path == "/ping":
            if self._health is None:
                request.respond(503, b"containers are being started", TEXT)
            else:
                self._health.answer(request)
        elif head.path == "/invocations":
            passage = Passage(request, self._asked(request), self._connect, self._passages.discard)
            self._passages.add(passage)
            passage.begin()
        elif head.path == PATH:
            counts = {name: each.take_counts() for name, each in self._containers.items()}
            request.respond(200, orjson.dumps(counts), (("Content-Type", "application/json"),))
        else:
            request.respond(404, b"there are /ping and /invocations\n", TEXT)

    def _asked(self, request: Request) -> Sequence[Container]:
        """The container that a request names, or all."""
        name = request.head.headers.get(TARGET_CONTAINER)
        return list(self._containers.values()) if name is None else [self._containers[name]]

    def _connect(self, step: Step) -> None:
        self._spawn(step.connect())

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.start("serving containers", work)

    # the end

    def _ended(self, container: Container) -> None:
        """A container has ended."""
        if not self._over.done():
            self._spawn(self._fail(container))

    async def _fail(self, container: Container) -> None:
        try:
            reason = await container.reason()
            if not self._over.done():
                _print_error(f"container '{container.name}': {reason}")
            for passage in list(self._passages):
                passage.fail(container.name, reason)
        finally:
            self._end(CONTAINER_FAILED)

    def _end(self, status: int) -> None:
        if not self._over.done():
            self._over.set_result(status)


def _print_error(text: str) -> None:
    """Print an error as servers do, for whoever looks for why the instance failed."""
    now = time.time()
    moment = time.strftime("%m%d %H:%M:%S", time.gmtime(now))
    line = f"E{moment}.{int(now % 1 * 1e6):06d} {os.getpid()} supervisor.py:1] {json.dumps(text)}\n"
    sys.stdout.write(line)
    sys.stdout.flush()


async def _run(plan: Plan) -> int:
    return await Supervisor(plan).run()


def main() -> None:
    """Run until a container ends, or somebody asks for the end."""
    plan: Plan = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that has started this
    status = uvloop.run(_run(plan))
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
