"""What the log tells of models as they load, and of a start that failed."""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from halimede.core.clock import SECOND, Clock
from halimede.core.steps import Step, step
from halimede.engine.lifecycle.version_states import UNLOADED
from halimede.engine.memory.ledger import Holding

logger = logging.getLogger("halimede")


class LoadingTimes:
    """Logs, as models load, which version has become what, how long that took, and what memory it takes.

    Args:
        clock: the time to go by.
        holdings: tells what versions take of the memory.
    """

    def __init__(self, clock: Clock, holdings: Iterable[Holding] = ()) -> None:
        self._clock = clock
        self._holdings = holdings
        self._began: dict[tuple[str, int | None], int] = {}

    def __call__(self, name: str, version: int | None, state: str, reason: str) -> None:
        """The version has entered `state`."""
        now = self._clock.now()
        if state == "LOADING":
            self._began[name, version] = now
            return
        began = self._began.pop((name, version), None)
        if began is not None:
            size = sum(held.size for held in self._holdings if (held.name, held.version) == (name, version))
            memory = f", {size / 1e6:.1f} MB" if state == "READY" and size else ""
            seconds = (now - began) / SECOND
            logger.info("'%s' version %s is %s after %.2f s%s", name, version, state, seconds, memory)


class LoadingStep:
    """Tells, as a step, how many models have loaded, and which are loading: a context manager.

    Args:
        on_progress: the callbacks for changes of versions' states, of which it is one in the block.
    """

    def __init__(self, on_progress: list[Callable[[str, int | None, str, str], None]]) -> None:
        self._on_progress = on_progress
        self._loading: dict[tuple[str, int | None], None] = {}
        self._exit = ExitStack()
        self._step: Step | None = None

    def __enter__(self) -> "LoadingStep":
        self._on_progress.append(self._changed)
        self._exit.callback(self._on_progress.remove, self._changed)
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _changed(self, name: str, version: int | None, state: str, reason: str) -> None:
        """The version has entered `state`."""
        key = (name, version)
        if state == "LOADING":
            if self._step is None:
                self._step = self._exit.enter_context(step("", 0))
            self._loading[key] = None
            self._step.total = (self._step.total or 0) + 1
        elif key in self._loading and self._step is not None:
            del self._loading[key]
            self._step.advance(1)
        if self._step is not None:
            names = ", ".join(
                name if version is None else f"{name} {version}" for name, version in self._loading
            )
            self._step.text = f"Loading {names}" if names else "Loading models"


class StartFailures:
    """Why models could not be loaded at start, to be the last thing that the log tells."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, int | None], str] = {}
        self._others: list[str] = []

    def __call__(self, name: str, version: int | None, state: str, reason: str) -> None:
        """The version has entered `state`; None for all versions of the model."""
        if state == "UNAVAILABLE" and reason and reason != UNLOADED:
            self._reasons[name, version] = reason
        elif state == "READY":
            self._reasons.pop((name, version), None)

    def add(self, reason: str) -> None:
        """Something else has gone wrong."""
        self._others.append(reason)

    def log(self) -> None:
        """Say that the server has not started, and why."""
        logger.error("failed to load all models; --exit-on-error=false would serve the others")
        for reason in self._others:
            logger.error("%s", reason)
        for (name, version), reason in self._reasons.items():
            of_version = "" if version is None else f" version {version}"
            logger.error("failed to load '%s'%s: %s", name, of_version, reason)
