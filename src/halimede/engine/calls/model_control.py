"""Models that load, unload and ask after other models.

A model may do so while it is being loaded itself. Then it must not wait for a model that waits for it in turn, which
would never end: such a call is refused.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol

from halimede.core.errors import HalimedeError, InternalError, NotFoundError
from halimede.core.versions import parse_version
from halimede.engine.served_model import ServedModel
from halimede_worker.messages import wire

Handler = Callable[[tuple[Any, ...]], Awaitable[Any]]


class LoadSlots(Protocol):
    """How many versions load at once."""

    def stand_aside(self) -> AbstractAsyncContextManager[None]:
        """Let another load have the caller's slot meanwhile."""


class ControlledModels(Protocol):
    """The models that may be loaded and unloaded. Lives on the event loop."""

    @property
    def load_slots(self) -> LoadSlots:
        """How many versions load at once."""

    def name_in_server(self, name: str, seen_from: str) -> str:
        """The name in the server of the model that another one calls `name`."""

    async def load(
        self, name: str, parameters: Mapping[str, str | bytes], *, waits_for_ends: bool = True
    ) -> None:
        """Load the model or reload it, and return when that is done, and what it replaces is closed if so asked."""

    async def unload(
        self, name: str, unload_dependents: bool = False, *, waits_for_ends: bool = True
    ) -> None:
        """Let no new requests reach the model, and return when it is closed if so asked."""

    async def demand(
        self, name: str, version: int = -1, timeout_s: float | None = None, caller: str = ""
    ) -> ServedModel:
        """Have a model loaded that is not loaded, and find it."""

    async def model_ready(self, name: str, version: int = -1) -> bool:
        """Whether the version is READY, for -1 the highest that is, and its instances say so too."""

    def waiting(self, model: str, target: str) -> AbstractContextManager[None]:
        """While the model, which is being loaded, waits for the target to be loaded or unloaded."""


class ModelControl:
    """What models may do with models. Lives on the event loop."""

    def __init__(self, models: ControlledModels) -> None:
        self._models = models

    def call_handlers(
        self, model: str, instance: str, is_loading: Callable[[], bool]
    ) -> Mapping[int, Handler]:
        """Message on a socket for calls → what handles it and gives the answer.

        Args:
            model: name of the model that calls.
            instance: name of its instance, for errors.
            is_loading: whether that version of the model is still being loaded, its warm-up included.
        """

        async def answer(work: Callable[..., Awaitable[Any]], message: tuple[Any, ...]) -> Any:
            try:
                return await work(*message[1:])
            except HalimedeError as error:
                text = f"Failed to process the request for model '{instance}', message: {error}"
                raise type(error)(text) from error

        async def load(name: str, config: str, files: Mapping[str, bytes] | None) -> None:
            name = self._models.name_in_server(name, model)
            async with self._waiting(model if is_loading() else None, name):
                await self.load(name, config, files)

        async def unload(name: str, dependents: bool) -> None:
            name = self._models.name_in_server(name, model)
            async with self._waiting(model if is_loading() else None, name):
                # the model may be asking for its own end
                await self._models.unload(name, dependents, waits_for_ends=False)

        async def is_ready(name: str, version: str) -> bool:
            return await self.is_ready(self._models.name_in_server(name, model), version)

        return {
            wire.LOAD_MODEL: partial(answer, load),
            wire.UNLOAD_MODEL: partial(answer, unload),
            wire.MODEL_READY: partial(answer, is_ready),
        }

    async def demand(self, name: str, version: int, caller: str, is_loading: bool) -> ServedModel:
        """Have a model loaded that another one calls, and find it: see `ControlledModels.demand`.

        Args:
            name: the model's name.
            version: the version, -1 for the highest.
            caller: name of the model that calls; "" if it is not known.
            is_loading: whether that model is still being loaded.
        """
        async with self._waiting(caller if is_loading else None, name):
            return await self._models.demand(name, version, caller=caller)

    async def load(self, name: str, config: str, files: Mapping[str, bytes] | None) -> None:
        """Load the model or reload it, and return when that is done.

        Args:
            name: the model's name.
            config: a ModelConfig as JSON; "" for the one on disk.
            files: ``file:<path>`` → content, in place of the model's directory; needs `config`.

        Raises:
            UnavailableError: the control mode is not explicit, or the server is stopping.
            InvalidArgumentError: the name is wrong, or a version failed to load.
            InternalError: the model is not there, or its configuration or a file cannot be used.
        """
        polled = f"failed to load '{name}', failed to poll from model repository"
        for path in files or ():
            if not path.startswith("file:"):
                msg = f"{polled}: unexpected file {path!r}, expected 'file:<path>'"
                raise InternalError(msg)
        if files and not config:
            raise InternalError(f"{polled}: files need a configuration beside them")
        parameters: dict[str, str | bytes] = {"config": config} if config else {}
        await self._models.load(name, {**parameters, **(files or {})}, waits_for_ends=False)

    async def is_ready(self, name: str, version: str) -> bool:
        """Whether the version of the model can be used; any version for "". A model that there is not cannot.

        Raises:
            InvalidArgumentError: the version is no number.
        """
        number = parse_version(version)
        try:
            return await self._models.model_ready(name, number)
        except NotFoundError:
            return False

    @asynccontextmanager
    async def _waiting(self, model: str | None, target: str) -> AsyncIterator[None]:
        """While the model, which is being loaded, waits for something done with the target; None for another one.

        Raises:
            InvalidArgumentError: the target waits for the model.
        """
        if model is None:
            yield
            return
        with self._models.waiting(model, target):
            async with self._models.load_slots.stand_aside():
                yield
