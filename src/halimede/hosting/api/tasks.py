"""Work on requests that takes longer than a turn of the loop."""

from collections.abc import Coroutine
from typing import Any

from halimede.core.tasks import Tasks
from halimede.hosting.http.request import DisconnectedError, Request


class RequestTasks:
    """The requests that are being worked on. Lives on the event loop."""

    def __init__(self) -> None:
        self._tasks = Tasks()

    def begin(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """Do some work that ends with the request's answer; an error that nobody foresaw is answered for it."""
        self._tasks.start("answering a request", _guarded(request, work))

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.close()


async def _guarded(request: Request, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except DisconnectedError:
        pass
    except Exception as error:  # of one request, which is no reason for others to suffer
        request.fail(error)
