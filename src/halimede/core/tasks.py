"""Tasks of the event loop. The code that starts a task keeps it, names it, gets its failure, and ends it.

Nothing else in the package makes tasks (`make check` refuses `create_task` and `ensure_future`). Two kinds:

* `start`: nothing waits for it. An exception that ends it is logged immediately with its name, and kept in `FAILURES`.
  `forever` starts such work again, after a pause that grows with each failure.
* `submit`: the code that started it asks for its result, and so gets its failure.

`Tasks` are those of one owner. `close` cancels them and waits until they have ended; as a context manager they end
with a block of code. All calls are for the thread of the event loop.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from halimede.core.backoff import Backoff
from halimede.core.errors import HalimedeError

logger = logging.getLogger("halimede")

_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
"""Before work is started again after a failure; work that went on for longer begins with the first pause again."""

_FAILURES_KEPT = 20
_SHOWN = 300

Result = TypeVar("Result")
Work = Coroutine[Any, Any, Result]


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that ended a task that nobody waited for.

    Attributes:
        time: when, in seconds since the epoch.
        what: what the task did.
        error: the exception, as "ValueError: text".
    """

    time: float
    what: str
    error: str


class Failures:
    """What has failed in this process, for its metrics and its console.

    Attributes:
        count: how many failures there were.
        latest: the last of them, the newest first.
    """

    def __init__(self) -> None:
        self.count = 0
        self.latest: deque[Failure] = deque(maxlen=_FAILURES_KEPT)

    def note(self, what: str, error: BaseException) -> None:
        """One more."""
        self.count += 1
        self.latest.appendleft(Failure(time.time(), what, f"{type(error).__name__}: {error}"[:_SHOWN]))


FAILURES = Failures()


class Tasks:
    """The tasks of one owner; iterates over those that have not ended."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(self._running)

    def start(self, what: str, work: Work[None]) -> asyncio.Task[None]:
        """Start work as `start` of this module does, and keep its task."""
        return self._kept(start(what, work))

    def forever(self, what: str, work: Callable[[], Work[None]]) -> asyncio.Task[None]:
        """Start work as `forever` of this module does, and keep its task."""
        return self._kept(forever(what, work))

    def submit(self, work: Work[Result]) -> asyncio.Task[Result]:
        """Start work as `submit` of this module does, and keep its task."""
        return self._kept(submit(work))

    async def finish(self, what: str, work: Work[None]) -> None:
        """Do work that goes on if the caller is cancelled.

        What it raises is raised here, or logged if the caller was cancelled and it is no `HalimedeError`.
        """
        task = self.submit(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(log_unforeseen, what))
            raise

    def cancel(self) -> None:
        """Cancel all of them, and do not wait for their end."""
        for task in self._running:
            task.cancel()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when all that run now have ended, or after that time."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)

    async def close(self) -> None:
        """Cancel all of them, and those that start meanwhile, and wait until they have ended."""
        while self._running:
            await cancel(*self._running)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _kept(self, task: asyncio.Task[Result]) -> asyncio.Task[Result]:
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


def start(what: str, work: Work[None]) -> asyncio.Task[None]:
    """Start a coroutine that nothing waits for. An exception that ends it is logged immediately.

    Args:
        what: what the task does, for the log: "watching instance i-1".
        work: the coroutine.

    Returns:
        the task, to be kept until it has ended: the event loop keeps a weak reference only.
    """
    task = submit(work)
    task.add_done_callback(partial(_log_failure, what))
    return task


def forever(what: str, work: Callable[[], Work[None]]) -> asyncio.Task[None]:
    """Start work as `start` does, and start it again whenever an exception has ended it.

    Args:
        what: as for `start`.
        work: makes the coroutine. The task ends when a coroutine returns.
    """
    return start(what, _forever(what, work))


def submit(work: Work[Result]) -> asyncio.Task[Result]:
    """Start a coroutine whose result, or failure, the caller asks the task for."""
    return asyncio.get_running_loop().create_task(work)


async def cancel(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks, and return when they have ended; what one raised then is for who asks it."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


async def all_of(work: Iterable[Work[Result]]) -> list[Result]:
    """The results of all work; once some fails, the rest is cancelled.

    Raises:
        Exception: the first failure.
    """
    async with Tasks() as tasks:
        return await asyncio.gather(*[tasks.submit(each) for each in work])


async def first_of(*work: Work[Any], timeout_s: float | None = None) -> None:
    """Return when some work has ended, or after that time; the rest is cancelled.

    Raises:
        Exception: some work has failed with it.
    """
    async with Tasks() as tasks:
        done, _ = await asyncio.wait(
            [tasks.submit(each) for each in work], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()


async def uninterrupted(
    work: asyncio.Future[Result], release: Callable[[Result], object] | None = None
) -> Result:
    """The result of what a thread does. A caller that is cancelled waits for the thread, too.

    Args:
        work: such as `run_in_executor` returns.
        release: closes or removes the result, such as an open file, if a caller that was cancelled does not get it.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if release is not None:
            work.add_done_callback(partial(_release, release))
        with suppress(Exception):
            await asyncio.shield(work)
        raise


async def on_thread(
    work: Callable[..., Result], *values: object, release: Callable[[Result], object] | None = None
) -> Result:
    """The result of work on a thread, which a caller that is cancelled waits for; `release` as of `uninterrupted`."""
    return await uninterrupted(submit(asyncio.to_thread(work, *values)), release)


async def opened(
    open_: Callable[..., Result],
    *values: object,
    close: Callable[[Result], object] = methodcaller("close"),
) -> Result:
    """What a thread opens, such as a file; it is closed if the caller is cancelled meanwhile."""
    return await on_thread(open_, *values, release=close)


def place_of(task: asyncio.Task[Any]) -> str:
    """Where a task waits that does not run now, such as "tick (scaling.py:30) > read (client.py:120)"."""
    work: Any = task.get_coro()
    places = []
    while work is not None and (frame := getattr(work, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})")
        work = work.cr_await
    return " > ".join(places)


def was_asked_to_end() -> bool:
    """Whether the current task was cancelled. If not, a CancelledError tells that what it waited for was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def log_unforeseen(what: str, task: asyncio.Future[Any]) -> None:
    """Log an exception that ended a task and is no `HalimedeError`, as perhaps nobody waits for it any more."""
    if not task.cancelled() and not isinstance(task.exception(), HalimedeError):
        _log_failure(what, task)


async def _forever(what: str, work: Callable[[], Awaitable[None]]) -> None:
    backoff = Backoff(_PAUSE_S, _LONGEST_PAUSE_S, steady_s=_LONGEST_PAUSE_S)
    while True:
        try:
            await work()
            return
        except (Exception, asyncio.CancelledError) as error:
            if was_asked_to_end():
                raise
            pause = backoff.next_s()
            FAILURES.note(what, error)
            logger.exception("%s failed; it is started again in %g s", what, pause)
        await asyncio.sleep(pause)


def _release(release: Callable[[Result], object], work: asyncio.Future[Result]) -> None:
    if not work.cancelled() and work.exception() is None:
        release(work.result())


def _log_failure(what: str, task: asyncio.Future[Any]) -> None:
    error: BaseException | None
    if not task.cancelled():
        error = task.exception()
    elif isinstance(task, asyncio.Task) and not task.cancelling():
        error = asyncio.CancelledError("what it waited for was cancelled")
    else:
        error = None
    if error is not None:
        FAILURES.note(what, error)
        logger.error("%s failed", what, exc_info=error)
