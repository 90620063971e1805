"""What services of the host do each second."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from halimede.core import tasks
from halimede.hosting.errors import ApiError

logger = logging.getLogger("halimede")

_LONG_S = 60.0
"""What takes longer is told, again and again: the service does nothing else meanwhile."""


def _one_second() -> float:
    return 1.0


class EachSecond:
    """Does something each second from `start` to `stop`. Lives on the event loop.

    What fails is logged, and tried again a second later: no service ends the host. What does not end is logged, too.
    """

    def __init__(
        self,
        what: str,
        tick: Callable[[], Awaitable[None]],
        pause_s: Callable[[], float] = _one_second,
        long_s: float = _LONG_S,
    ) -> None:
        """Nothing is done before `start`.

        Args:
            what: what is done, for the log.
            tick: does it.
            pause_s: says before each time how long it is until then, in seconds.
            long_s: if it takes longer, that is logged.
        """
        self._what = what
        self._tick = tick
        self._pause_s = pause_s
        self._long_s = long_s
        self._task: asyncio.Task[None] | None = None
        self._under_way: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it has been started."""
        return self._task is not None

    def start(self) -> None:
        """Begin."""
        self._task = tasks.forever(self._what, self._run)

    async def stop(self) -> None:
        """Do it no more, and return when what is under way is done: nothing is left half written."""
        await tasks.cancel(self._task)
        if self._under_way is not None:
            await asyncio.wait([self._under_way])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s())
            self._under_way = task = tasks.submit(self._once())
            begin = asyncio.get_running_loop().time()
            while not (await asyncio.wait([task], timeout=self._long_s))[0]:
                took = asyncio.get_running_loop().time() - begin
                logger.warning(
                    "%s takes %.0f s already; it waits in %s", self._what, took, tasks.place_of(task)
                )
            task.result()

    async def _once(self) -> None:
        try:
            await self._tick()
        except ApiError as error:
            logger.error("%s: %s", self._what, error.message)
        except Exception:
            logger.exception("%s failed", self._what)
