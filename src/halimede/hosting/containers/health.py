"""Whether all containers are well, as pings of the instance ask."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from halimede.core import tasks
from halimede.hosting.containers.container import Container
from halimede.hosting.http.ping import ping
from halimede.hosting.http.request import Request

logger = logging.getLogger("halimede")

TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)

_PING_S = 1.5
"""So long a container may take to answer; whoever asks the instance waits longer."""


class Health:
    """Answers pings. Lives on the event loop."""

    def __init__(self, containers: Sequence[Container]) -> None:
        """Of those containers; nobody is well before all of them are there."""
        self._containers = containers
        self._waiting: list[Request] = []
        self._task: asyncio.Task[None] | None = None

    def answer(self, request: Request) -> None:
        """Answer a ping, now or later: 200 if all are well, else 503 and a line that names one that is not."""
        self._waiting.append(request)
        if self._task is None:
            self._task = tasks.start("asking containers whether they are well", self._ask())

    async def _ask(self) -> None:
        troubles = await asyncio.gather(
            *(ping(each.pool.host, each.port, _PING_S) for each in self._containers), return_exceptions=True
        )
        self._task = None
        waiting, self._waiting = self._waiting, []
        wrong = [
            f"{container.name}: {_words(trouble)}"
            for container, trouble in zip(self._containers, troubles, strict=True)
            if trouble
        ]
        for request in waiting:
            if wrong:
                request.respond(503, wrong[0].encode(), TEXT)
            else:
                request.respond(200)


def _words(trouble: str | BaseException) -> str:
    if isinstance(trouble, BaseException):
        logger.error("asking a container whether it is well failed", exc_info=trouble)
        return f"it cannot be asked: {trouble!r}"
    return trouble
