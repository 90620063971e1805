"""Work on requests that takes longer than a turn of the loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from halimede.hosting.http.request import DisconnectedError, Request


class RequestTasks:
    """The requests that are being worked on. Lives on the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """Do some work that ends with the request's answer; an error that nobody foresaw is answered for it."""
        task = asyncio.get_running_loop().create_task(_guarded(request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _guarded(request: Request, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except DisconnectedError:
        pass
    except Exception as error:  # of one request, which is no reason for others to suffer
        request.fail(error)
