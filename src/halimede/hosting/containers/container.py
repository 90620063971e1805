"""One container of several: its process, and connections to it."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace

from halimede.core.ports import free_port
from halimede.hosting.containers.counts import ContainerCounts
from halimede.hosting.containers.output import Output
from halimede.hosting.substrates.output import ended, failure_of
from halimede.hosting.substrates.processes import Watched
from halimede.hosting.substrates.program import HOST
from halimede.hosting.substrates.spawn import Plan, spawn
from halimede.http1.upstream import UpstreamPool

_LOG = 1
"""Standard output, which is the instance's log."""

_OUTPUT_S = 1.0
"""So long what a container has printed may take to be read when it has ended; others may hold its output open."""


class Container:
    """A container. Lives on the event loop.

    Attributes:
        name: tells it from the others.
        pool: connections to it.
        port: where it listens.
        watched: its process.
        counts: what has been counted of its requests since the host last asked.
    """

    def __init__(self, name: str, port: int, process: "subprocess.Popen[bytes]", unix_socket: str) -> None:
        self.name = name
        self.port = port
        self.pool = UpstreamPool(HOST, port, unix_socket)
        self.watched: Watched
        self.counts = ContainerCounts()
        self._process = process
        self._output = Output(name, _LOG)

    @classmethod
    async def start(
        cls, plan: Plan, name: str, port: int, on_end: "Callable[[Container], None]"
    ) -> "Container":
        """Start one of an instance's containers; `on_end` is called when it has ended.

        Raises:
            ApiError: its image resolves to nothing that could be started, or its directory cannot be made.
        """
        place = replace(
            plan.place,
            directory=plan.place.directory / "containers" / name,
            address=HOST,
            port=port,
            gpus=list(range(len(plan.place.gpus))),
        )
        request = plan.request.of_container(name)
        near, far = os.pipe()
        reader = os.fdopen(near, "rb", 0)
        try:
            process, running = await asyncio.to_thread(
                spawn, request, place, plan.images, plan.variables, far
            )
        except BaseException:
            reader.close()
            raise
        finally:
            os.close(far)
        container = cls(name, port, process, running.unix_socket)
        await asyncio.get_running_loop().connect_read_pipe(lambda: container._output, reader)
        container.watched = Watched(process.pid, lambda: on_end(container))
        return container

    def take_counts(self) -> ContainerCounts:
        """What has been counted since this was last called."""
        counts, self.counts = self.counts, ContainerCounts()
        return counts

    async def reason(self) -> str:
        """Why it has ended: its status, and what it printed about that."""
        try:
            async with asyncio.timeout(_OUTPUT_S):
                await self._output.ended.wait()
        except TimeoutError:
            pass
        return ended(self._process.wait()) + failure_of(list(self._output.tail))

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()


def free_ports(count: int) -> Sequence[int]:
    """So many ports of the loopback at which nobody listens."""
    ports: list[int] = []
    for _ in range(count):
        ports.append(free_port(HOST, ports))
    return ports
