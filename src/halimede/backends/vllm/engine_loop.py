"""vLLM's engine, and the thread with the event loop on which it lives."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final, TypeVar

from vllm import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from halimede.core.errors import InvalidArgumentError

logger = logging.getLogger("halimede")

Made = TypeVar("Made")

_HEALTH_CHECK_S: Final = 1.0


class EngineLoop:
    """An engine that runs.

    Attributes:
        engine: an `AsyncLLM`.

    Args:
        arguments: of the engine.
        stat_loggers: told what it counts; see `AsyncLLM`.

    Raises:
        InvalidArgumentError: it cannot be started.
    """

    def __init__(self, arguments: dict[str, Any], stat_loggers: list[Callable[[Any, int], Any]]) -> None:
        self._watching: Future[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="halimede-vllm", daemon=True)
        self._thread.start()
        try:
            self.engine: Any = self.run(self._start(arguments, stat_loggers))
        except MemoryError:
            raise
        except Exception as error:  # each part of vLLM fails in its own way
            self._stop()
            model = arguments["model"]
            msg = f"vLLM cannot load the model '{model}': {type(error).__name__}: {error}"
            raise InvalidArgumentError(msg) from error

    async def _start(self, arguments: dict[str, Any], stat_loggers: list[Callable[[Any, int], Any]]) -> Any:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), stat_loggers=stat_loggers)

    def run(self, coroutine: Coroutine[Any, Any, Made]) -> Made:
        """What comes of it on the loop; blocks."""
        return self.begin(coroutine).result()

    def begin(self, coroutine: Coroutine[Any, Any, Made]) -> Future[Made]:
        """Let it run on the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def tokenizer(self) -> Any:
        """The tokenizer of the engine.

        Raises:
            InvalidArgumentError: the engine has none.
        """
        found = self.run(self._tokenizer())
        if found is None:
            raise InvalidArgumentError(
                "vLLM has loaded no tokenizer; leave skip_tokenizer_init out of model.json"
            )
        return found

    async def _tokenizer(self) -> Any:
        found = self.engine.get_tokenizer()
        return await found if inspect.isawaitable(found) else found  # which of both depends on vLLM's version

    async def _watch(self, on_death: Callable[[], None]) -> None:
        try:
            while not self.engine.errored:  # noqa: ASYNC110 - vLLM has no event for it
                await asyncio.sleep(_HEALTH_CHECK_S)
        except Exception:  # one that cannot be asked is taken for dead
            logger.exception("vLLM's engine cannot be watched")
        on_death()

    def watch(self, on_death: Callable[[], None]) -> None:
        """Call `on_death`, on the loop, soon after the engine has died."""
        self._watching = self.begin(self._watch(on_death))

    def close(self) -> None:
        """End the engine and its thread."""
        if self._watching is not None:
            self._watching.cancel()
        self.run(self._shut_down())
        self._stop()

    async def _shut_down(self) -> None:
        self.engine.shutdown()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
