"""What is known of each model that was asked for: its profile, and what lies beside it."""

import asyncio
import logging
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from halimede.core.errors import HalimedeError
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.profile import Profile, Task, read_profile
from halimede.frontends.openai.text_files import TextFiles, read_context, read_text_files

logger = logging.getLogger("halimede")


class KnownModel(NamedTuple):
    """A loaded version, and what it is to OpenAI's API.

    Attributes:
        model: the version.
        profile: its tensors.
        files: its template and tokenizer.
        context: how many tokens prompt and answer may have together; None if that is not known.
    """

    model: ServedModel
    profile: Profile
    files: TextFiles
    context: int | None = None


class KnownModels:
    """Looks at models when they are first asked for. Lives on the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._profiles: WeakKeyDictionary[Any, Profile | HalimedeError | None] = WeakKeyDictionary()
        self._files: WeakKeyDictionary[Any, TextFiles] = WeakKeyDictionary()
        self._contexts: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()

    def find(self, name: str, task: Task | None) -> KnownModel | None:
        """The model of that name; None if `look` has to read its files first.

        Args:
            name: of the model.
            task: that it has to serve; None for any.

        Raises:
            NotLoadedError, NotFoundError, UnavailableError: as of `Engine.find`.
            InvalidArgumentError: it does not serve the task, or its configuration is wrong.
        """
        model = self._engine.find(name)
        profile = self._profile(model)
        if isinstance(profile, HalimedeError):
            raise profile
        if profile is None or (task is not None and task not in profile.tasks):
            served = ", ".join(sorted(each.value for each in profile.tasks)) if profile else ""
            what = f"it serves: {served}" if served else "its configuration has no parameter openai.task"
            raise FieldError(
                "model",
                f"model '{name}' does not serve {task.value if task else 'texts'}; {what}",
                "model_not_supported",
            )
        files = self._files.get(model)
        return None if files is None else KnownModel(model, profile, files, self._contexts[model])

    async def look(self, name: str, task: Task | None) -> KnownModel:
        """The model of that name, once its files are read. Raises as `find` does."""
        known = self.find(name, task)
        while known is None:
            model = self._engine.find(name)
            profile = self._profile(model)
            assert isinstance(profile, Profile)
            await self.read_context(model)
            release = self._engine.lifecycle.hold(model.identifier)
            try:
                self._files[model] = await asyncio.get_running_loop().run_in_executor(
                    None, read_text_files, model.directory, model.version, profile.tokenizer
                )
            finally:
                release()
            known = self.find(name, task)
        return known

    def listed(self) -> list[ServedModel]:
        """The models that serve some task, by name; the highest version of each."""
        found: dict[str, ServedModel] = {}
        for model in self._engine.lifecycle.loaded_models():
            if isinstance(self._profile(model), Profile):
                other = found.get(model.name)
                if other is None or other.version < model.version:
                    found[model.name] = model
        return [found[name] for name in sorted(found)]

    async def read_context(self, model: ServedModel) -> int | None:
        """How many tokens prompt and answer of a listed model may have together; None if that is not known."""
        if model not in self._contexts:
            profile = self._profile(model)
            assert isinstance(profile, Profile)
            release = self._engine.lifecycle.hold(model.identifier)
            try:
                self._contexts[model] = await asyncio.get_running_loop().run_in_executor(
                    None, read_context, model.directory, model.version, profile.tokenizer, model.config
                )
            finally:
                release()
        return self._contexts[model]

    def _profile(self, model: ServedModel) -> Profile | HalimedeError | None:
        try:
            return self._profiles[model]
        except KeyError:
            pass
        profile: Profile | HalimedeError | None
        try:
            profile = read_profile(model.name, model.config, model.signature)
        except HalimedeError as error:
            logger.error("OpenAI: %s", error.message)
            profile = error
        self._profiles[model] = profile
        return profile
