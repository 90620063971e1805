"""Models that a platform brings as archives, each under a key of its own choosing, as multi-model endpoints do."""

import asyncio
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from halimede.core.background_threads import BackgroundThreads
from halimede.core.errors import AlreadyExistsError, InternalError, InvalidArgumentError, NotFoundError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.repository.archive_layout import ArchiveLayout, read_layout
from halimede.repository.model_archives import extract_model
from halimede.repository.namespace import Namespace
from halimede.repository.private_directories import PrivateDirectory

logger = logging.getLogger("halimede")

_SUFFIXES = (".tar.gz", ".tgz", ".tar")


class HostedState(Enum):
    """What is done with a hosted model."""

    LOADING = "being loaded"
    LOADED = "loaded"
    UNLOADING = "being unloaded"


@dataclass(slots=True, eq=False)
class HostedModel:
    """A model that a platform brought.

    Attributes:
        key: what the platform calls it.
        url: the repository in which it lies, as the platform is told it.
        alias: what clients of the platform call it; "" if that was not said.
        name: its name in the server.
        state: what is done with it.
        namespace: its models; None while it is not known which they are.
        extracted: the directory into which the server itself has extracted it, None if the platform had done so.
    """

    key: str
    url: str
    alias: str = ""
    name: str = ""
    state: HostedState = HostedState.LOADING
    namespace: Namespace | None = None
    extracted: PrivateDirectory | None = None


class HostedModels:
    """The models that a platform brought. Lives on the event loop.

    A key that is being loaded or unloaded is taken, but there is no model under it.
    """

    def __init__(self, lifecycle: Lifecycle, root: Path) -> None:
        """None, so far.

        Args:
            lifecycle: loads and unloads them.
            root: the directory below which they must lie.
        """
        self._lifecycle = lifecycle
        self._root = root
        self._models: dict[str, HostedModel] = {}
        self._threads = BackgroundThreads(4, "halimede-archives")

    def get(self, key: str) -> HostedModel:
        """The loaded model under a key.

        Raises:
            NotFoundError: there is none.
        """
        model = self._models.get(key)
        if model is None or model.state is not HostedState.LOADED:
            what = "no model is loaded" if model is None else f"the model is {model.state.value}"
            raise NotFoundError(f"{what} under the name '{key}'")
        return model

    def list(self) -> Sequence[HostedModel]:
        """The loaded models, in the order in which their loads began."""
        return [model for model in self._models.values() if model.state is HostedState.LOADED]

    async def load(self, key: str, url: str, alias: str = "") -> HostedModel:
        """Load the models of an archive, and return when that is done.

        Args:
            key: what it is to be called.
            url: the directory into which it was extracted, or the archive itself.
            alias: what clients call it; answers tell it as the model's name.

        Raises:
            AlreadyExistsError: the key or the archive is in use.
            NotFoundError: there is nothing at that place.
            InvalidArgumentError: the place is not allowed, the archive is broken, or a model in it is.
            OutOfMemoryError: there is no room for it.
            HalimedeError: it cannot be loaded for another reason. Nothing is left after any error.
        """
        if not key:
            raise InvalidArgumentError("the name under which to load a model is empty")
        if key in self._models:
            raise AlreadyExistsError(f"model '{key}' is {self._models[key].state.value} already")
        model = self._models[key] = HostedModel(key, url, alias)
        try:
            await self._load(model)
        except BaseException:
            await self._clear(model)
            raise
        model.state = HostedState.LOADED
        logger.info("loaded '%s' from %s under the name '%s'", key, url, model.name)
        return model

    async def unload(self, key: str) -> None:
        """Unload the models of an archive, and return when all that they held is given back.

        Raises:
            NotFoundError: nothing is loaded under that key.
        """
        model = self.get(key)
        model.state = HostedState.UNLOADING
        assert model.namespace is not None
        try:
            await self._lifecycle.dismiss(model.namespace)
        finally:
            await self._clear(model)
        logger.info("unloaded '%s' ('%s')", key, model.name)

    async def close(self) -> None:
        """Delete what was extracted, when the server has stopped."""
        for model in list(self._models.values()):
            await self._clear(model)
        self._threads.shutdown()

    async def _load(self, model: HostedModel) -> None:
        loop = asyncio.get_running_loop()
        place = await loop.run_in_executor(self._threads, partial(self._check_place, model.url))
        stem = _stem(model.alias or place.name)
        if not place.is_dir():
            model.extracted = await loop.run_in_executor(self._threads, _private_directory)
            directory = model.extracted.path / "model"
            await loop.run_in_executor(self._threads, extract_model, place, directory)
        else:
            directory = place
        layout = await loop.run_in_executor(self._threads, _read_layout, directory, stem)
        if model.extracted is None:
            model.url = str(layout.repository)
        self._refuse_twice(model, directory)
        model.name = self._name(model)
        model.namespace = namespace = _namespace(layout, model.name)
        await self._lifecycle.adopt(namespace, {namespace.names[name] for name in layout.needed})

    def _check_place(self, url: str) -> Path:
        """The place that a client names, if it may.

        Raises:
            InvalidArgumentError: it is not below the root.
            NotFoundError: there is nothing.
        """
        place = Path(url)
        root = self._root.resolve()
        try:
            resolved = place.resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a null byte
            raise InvalidArgumentError(f"invalid url {url!r}: {error}") from None
        if not place.is_absolute() or ".." in place.parts or root not in resolved.parents:
            raise InvalidArgumentError(
                f"invalid url '{url}': models must lie below '{self._root}', "
                "and be named by an absolute path without '..'"
            )
        if not resolved.exists():
            raise NotFoundError(f"there is nothing at '{url}'")
        return place

    def _refuse_twice(self, model: HostedModel, directory: Path) -> None:
        """Refuse a directory that is in use under another key: unloading one would pull it from under the other."""
        for other in self._models.values():
            if other is not model and other.namespace is not None:
                used = other.namespace.directories.values()
                if directory in used or any(directory in each.parents for each in used):
                    raise AlreadyExistsError(
                        f"'{model.url}' is {other.state.value} already, as '{other.key}'"
                    )

    def _name(self, model: HostedModel) -> str:
        """The name in the server: what clients call it, if no other model is called so."""
        names = {other.name for other in self._models.values() if other is not model}
        return model.alias if model.alias and model.alias not in names else model.key

    async def _clear(self, model: HostedModel) -> None:
        """Forget it, and delete what was extracted."""
        if model.extracted is not None:
            extracted, model.extracted = model.extracted, None
            await asyncio.get_running_loop().run_in_executor(self._threads, extracted.remove)
        if self._models.get(model.key) is model:
            del self._models[model.key]


def _private_directory() -> PrivateDirectory:
    try:
        return PrivateDirectory.make(Path(tempfile.gettempdir()), "halimede-archive-")
    except OSError as error:
        raise InternalError(f"cannot make a temporary directory: {error.strerror}") from error


def _read_layout(directory: Path, stem: str) -> ArchiveLayout:
    try:
        return read_layout(directory, stem)
    except OSError as error:
        raise InvalidArgumentError(f"cannot read '{directory}': {error.strerror}") from error


def _namespace(layout: ArchiveLayout, name: str) -> Namespace:
    """The models of an archive with their names in the server, of which the entry's is given."""
    names = {own: name if own == layout.entry else f"{name}:{own}" for own in layout.models}
    directories: Mapping[str, Path] = {names[own]: path for own, path in layout.models.items()}
    return Namespace(names, directories, name)


def _stem(name: str) -> str:
    """The name of an archive without directories and suffix."""
    name = name.rpartition("/")[2]
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name
