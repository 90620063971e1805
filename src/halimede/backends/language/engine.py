"""What writes texts: the interface between a framework and the loop that serves requests with it."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection

from halimede.backends.language.generation import Generation
from halimede.backends.language.sampling import Sampling
from halimede.backends.language.structure import Structure
from halimede.core.errors import HalimedeError, InternalError

logger = logging.getLogger("halimede")


class Engine(ABC):
    """Writes several texts at once, token by token. Used by one thread, but for `wake`.

    Attributes:
        broken: why it can write no more texts; "" while it can.
        reserved_bytes: memory that it has reserved for keys and values, and not used yet.
    """

    broken: str = ""
    reserved_bytes: int = 0

    def knows(self, structure: Structure) -> bool:
        """Whether `check` answers at once for this form. From any thread."""
        return False

    def check(self, sampling: Sampling) -> None:
        """Refuse what cannot be. Called by other threads, before `add`, for what takes time.

        Raises:
            HalimedeError: tokens cannot be chosen in this way.
        """

    @abstractmethod
    def add(self, generation: Generation) -> None:
        """Begin a text.

        Raises:
            HalimedeError: it cannot be begun.
        """

    @abstractmethod
    def step(self) -> None:
        """Give some of the texts under way their next tokens, by `Generation.take`; in turns, each gets some.

        A text that cannot go on ends by `Generation.give_up`. What the step itself raises fails all texts, so it must
        be an error that none of them caused alone.
        """

    def cache_usage(self) -> float | None:
        """Share of the cache for keys and values that is in use, 0 to 1; None if that is not known."""
        return None

    def wake(self) -> None:
        """Let a `step` that only waits return, as there is another text to begin. From any thread."""

    @abstractmethod
    def remove(self, generations: Collection[Generation]) -> None:
        """Forget texts that have ended, or that nobody wants any more."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all texts, as a step has failed."""


def failure_of(error: Exception) -> HalimedeError:
    """What clients are told of an error of a framework."""
    return error if isinstance(error, HalimedeError) else InternalError(f"{type(error).__name__}: {error}")


def log_unexpected(error: Exception) -> None:
    """Log an error of a request that is not the client's."""
    if not isinstance(error, HalimedeError):
        logger.error("a request failed: %s: %s", type(error).__name__, error, exc_info=error)
