"""All sockets on which one worker, and the children that it forks, call the server."""

import socket
from asyncio import AbstractEventLoop
from collections.abc import Mapping

from halimede.workers.call_server import CallServer, Handler, Infer
from halimede.workers.memory import PeerMemory


class WorkerCalls:
    """The sockets on which one worker, and the children that it forks, call the server.

    Attributes:
        pid: the worker's process; set it before the first socket is opened.
    """

    def __init__(
        self, loop: AbstractEventLoop, memory: PeerMemory, infer: Infer, handlers: Mapping[int, Handler]
    ) -> None:
        """None yet.

        Args:
            loop: the event loop, on which all methods are called too.
            memory: what is shared with the worker.
            infer: runs inferences.
            handlers: kind of message → what does it, for the other calls.
        """
        self.pid = 0
        self._loop = loop
        self._memory = memory
        self._infer = infer
        self._handlers = handlers
        self._servers: dict[CallServer, int] = {}  # each with the process that it serves
        self._children: dict[int, PeerMemory] = {}

    def open(self, pid: int, descriptor: int) -> None:
        """Serve one more socket, as an OPEN says; the descriptor is closed with it."""
        forked = pid != self.pid
        memory = self._memory
        if forked:
            memory = self._children.get(pid) or PeerMemory(memory)
            self._children[pid] = memory
        server = CallServer(
            self._loop,
            socket.socket(fileno=descriptor),
            memory,
            self._infer,
            self._handlers,
            self._closed,
            forked=forked,
        )
        self._servers[server] = pid

    def close(self) -> None:
        """Close all, and cancel what runs for them."""
        for server in list(self._servers):
            server.close()
        self._servers.clear()
        self._children.clear()

    def _closed(self, server: CallServer) -> None:
        pid = self._servers.pop(server)
        if pid not in self._servers.values():
            self._children.pop(pid, None)  # it has ended
