"""Requests for models that are not loaded yet."""

import logging
from collections.abc import Callable

from halimede.core.errors import HalimedeError, InternalError, NotLoadedError
from halimede.core.tasks import Tasks
from halimede.engine.engine import Engine

logger = logging.getLogger("halimede")


class Loads:
    """What waits for models. A wait ends with the deadline of its call, as every cancellation does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks = Tasks()

    def then(
        self, missing: NotLoadedError, work: Callable[[], None], fail: Callable[[HalimedeError], None]
    ) -> Callable[[], None]:
        """Have the model loaded, then do the work.

        Args:
            missing: which model.
            work: done when the model is there; may raise HalimedeError.
            fail: told why the model cannot be had, or why the work failed.

        Returns:
            what ends the wait, so that neither is called; the load goes on.
        """
        task = self._tasks.start(f"a request for '{missing.name}'", self._wait(missing, work, fail))

        def leave() -> None:
            task.cancel()

        return leave

    async def _wait(
        self, missing: NotLoadedError, work: Callable[[], None], fail: Callable[[HalimedeError], None]
    ) -> None:
        try:
            await self._engine.demand(missing.name, missing.version)
            work()
        except HalimedeError as error:
            fail(error)
        except Exception as error:  # in a task, nobody else would answer
            logger.exception("a request for '%s' failed", missing.name)
            fail(InternalError(f"the server failed: {error!r}"))
