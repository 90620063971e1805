"""Which models hold Python's interpreter, so that nothing else of the server runs meanwhile.

Code in Python shares the interpreter every 5 ms; an extension that does not release it, for as long as it runs. A
thread looks on while models run on threads of theirs: it sleeps a little, and how long it then waits for the
interpreter is how long somebody else held it. While no model runs, it waits for one.
"""

import logging
import os
import threading
import time
from collections.abc import Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from halimede.core.clock import MILLISECOND, SECOND

logger = logging.getLogger("halimede")

NOTED_NS: Final = 20 * MILLISECOND
"""Who holds the interpreter for longer, in one execution, is named in the log."""

_SILENT_NS: Final = 60 * SECOND
"""And not again for so long."""

_INTERVAL_NS: Final = 5 * MILLISECOND
_NEVER: Final = 1 << 63
_SHORTEST_NS: Final = 2 * MILLISECOND
"""A shorter wait is nothing unusual."""


class Execution:
    """An execution on a thread of its own.

    Attributes:
        model: which model runs.
        began_ns: when it began.
        held_ns: how long it held the interpreter, as far as is known.
    """

    __slots__ = ("_clock", "_cpu_ns", "began_ns", "held_ns", "model")

    def __init__(self, model: str) -> None:
        """One that begins, on the calling thread."""
        self.model = model
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._cpu_ns = time.clock_gettime_ns(self._clock)
        self.began_ns = monotonic_ns()
        self.held_ns = 0

    def hold(self, waited_ns: int) -> None:
        """Somebody waited for the interpreter; it counts if this execution used the processor meanwhile."""
        try:
            used = time.clock_gettime_ns(self._clock)
        except OSError:  # its thread has ended
            return
        computed_ns, self._cpu_ns = used - self._cpu_ns, used
        if 8 * computed_ns >= waited_ns:  # others may have had the processor for most of the time
            self.held_ns += min(computed_ns, waited_ns + _INTERVAL_NS)


class InterpreterWatch:
    """Sees who holds the interpreter. Its methods may be called on any thread."""

    def __init__(self) -> None:
        self._running: dict[Execution, None] = {}
        self._busy = threading.Event()
        self._thread: threading.Thread | None = None
        self._due_ns = _NEVER
        self._queued_ns = 0  # how long the thread had waited for a processor when it went to sleep
        self._statistics: int | None = None
        self._told: dict[str, int] = {}

    def begin(self, model: str) -> Execution:
        """An execution begins on the calling thread."""
        execution = Execution(model)
        self._running[execution] = None
        if not self._busy.is_set():
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="halimede-interpreter", daemon=True)
                self._thread.start()
            self._due_ns = execution.began_ns + _INTERVAL_NS  # of a thread that is about to wake up
            self._busy.set()
        return execution

    def end(self, execution: Execution) -> None:
        """It is over."""
        now = monotonic_ns()
        self._note(execution, self._waited(now))
        del self._running[execution]
        if not self._running:
            self._busy.clear()
            self._due_ns = _NEVER
        if execution.held_ns >= NOTED_NS:
            self.tell(execution.model, execution.held_ns, now - execution.began_ns)

    def tell_computed(self, model: str, computed_ns: int, whole_ns: int) -> None:
        """As `tell`, of an execution on the loop, if it was not only kept from the processor."""
        if computed_ns >= NOTED_NS:
            self.tell(model, whole_ns, whole_ns)

    def tell(self, model: str, held_ns: int, whole_ns: int) -> None:
        """Name a model in the log, unless that was done a short while ago."""
        now = monotonic_ns()
        if now - self._told.get(model, now - _SILENT_NS) < _SILENT_NS:
            return
        self._told[model] = now
        logger.warning(
            "model '%s' held Python's interpreter for %d ms of an execution of %d ms (%d %%), in which nothing else of "
            "the server ran: let it run in a process of its own, without the parameter 'isolation'",
            model,
            held_ns // MILLISECOND,
            whole_ns // MILLISECOND,
            min(100, 100 * held_ns // max(1, whole_ns)),
        )

    def _watch(self) -> None:
        path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        with suppress(OSError):  # there may be none, or no descriptor for it
            self._statistics = os.open(path, os.O_RDONLY)
        while True:
            self._busy.wait()
            waited = self._waited(monotonic_ns())
            for execution in list(self._running):
                self._note(execution, waited)
            self._queued_ns = self._queued()
            self._due_ns = monotonic_ns() + _INTERVAL_NS
            time.sleep(_INTERVAL_NS / SECOND)

    def _note(self, execution: Execution, waited_ns: int) -> None:
        if waited_ns:
            execution.hold(waited_ns)

    def _waited(self, now: int) -> int:
        """How long the thread has waited for the interpreter; 0 if that is nothing unusual."""
        late = now - self._due_ns
        if late < _SHORTEST_NS:
            return 0
        late -= self._queued() - self._queued_ns  # so long it waited for a processor
        return late if late >= _SHORTEST_NS else 0

    def _queued(self) -> int:
        """How long the thread has waited for a processor, all in all."""
        return 0 if self._statistics is None else int(os.pread(self._statistics, 64, 0).split()[1])


WATCH: Final = InterpreterWatch()
"""That of the process, which has one interpreter."""


class TimedCoroutine(Coroutine[Any, Any, Any]):
    """A model's coroutine on the server's loop: whose steps take long, so that the loop stands still, is named."""

    __slots__ = ("_coroutine", "_model")

    def __init__(self, model: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._model = model
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        """Take a step."""
        began = monotonic_ns()
        try:
            return self._coroutine.send(value)
        finally:
            taken = monotonic_ns() - began
            if taken >= NOTED_NS:
                WATCH.tell(self._model, taken, taken)  # computing or asleep, the loop stands still

    def throw(self, *error: Any) -> Any:
        """Raise an error in it."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._coroutine.__await__())
