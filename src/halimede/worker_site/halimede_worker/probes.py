"""Answers to the server's question whether the model is ready, by the model's own `is_ready`.

It runs in a thread of its own, so that it answers while the model executes. There is one call at a time; who asks
meanwhile gets its answer.
"""

import asyncio
import threading
from typing import Any, Callable, List, Optional, Tuple

from .errors import describe
from .messages.wire import IS_READY, ClosedError
from .runtime import Runtime


class Probes:
    """Who waits for an answer of `is_ready`."""

    def __init__(self, model: Any, runtime: Runtime) -> None:
        """Probes of a model that is initialized. If it has no `is_ready`, it is always ready."""
        self._is_ready: Optional[Callable[[], Any]] = getattr(model, "is_ready", None)
        self._runtime = runtime
        self._lock = threading.Lock()
        self._waiting: List[int] = []

    def start(self, probe: int) -> None:
        """Answer a probe when `is_ready` has; does not wait."""
        with self._lock:
            self._waiting.append(probe)
            if len(self._waiting) > 1:
                return
        if self._is_ready is None:
            self._answer(True, "")
            return
        try:
            threading.Thread(target=self._run, name="halimede-is-ready", daemon=True).start()
        except RuntimeError as error:
            self._answer(False, describe(error))

    def _run(self) -> None:
        self._answer(*self._outcome())

    def _outcome(self) -> Tuple[bool, str]:
        """Whether the model is ready, and why not."""
        assert self._is_ready is not None
        try:
            ready = self._is_ready()
            if asyncio.iscoroutine(ready):
                ready = asyncio.run_coroutine_threadsafe(ready, self._runtime.event_loop()).result()
        except BaseException as error:  # of a model, which may even exit
            return False, describe(error)
        if not isinstance(ready, bool):
            return False, "is_ready() must return a boolean value"
        if not ready:
            return False, f"Model '{self._runtime.instance_name}' is not ready (user-defined check failed)."
        return True, ""

    def _answer(self, ready: bool, why_not: str) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        control = self._runtime.control
        assert control is not None
        try:
            for probe in waiting:
                control.send((IS_READY, probe, ready, why_not))
        except ClosedError:
            pass  # nobody is left who asked
