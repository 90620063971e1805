"""The model of calls that name none."""

from halimede.config.ensembles import needs_of
from halimede.core.errors import InvalidArgumentError
from halimede.engine.engine import Engine


class DefaultModel:
    """The model that a setting names, else the only one that is served.

    Args:
        engine: what has the models.
        name: the model, "" for the only one.
        setting: what would name it, for errors.
        call: what it is for, for errors.
    """

    def __init__(self, engine: Engine, name: str, setting: str, call: str) -> None:
        self._engine = engine
        self._named = name
        self._must_name = f"{setting} must name the model that {call} is for"
        self._only = ""
        engine.lifecycle.on_readiness.append(self._forget)

    def find(self) -> str:
        """Its name.

        Raises:
            InvalidArgumentError: there is not exactly one that could be meant.
        """
        return self._named or self._only or self._find_only()

    def _forget(self) -> None:
        """The models may have changed."""
        self._only = ""

    def _find_only(self) -> str:
        names = standalone_models(self._engine)
        if len(names) != 1:
            served = ", ".join(f"'{name}'" for name in names) or "none"
            raise InvalidArgumentError(f"{self._must_name}; served are: {served}")
        self._only = names[0]
        return names[0]


def standalone_models(engine: Engine) -> list[str]:
    """The models that are served, but for those that an ensemble is made of."""
    models = engine.lifecycle.loaded_models()
    needed = {name for model in models for name in needs_of(model.config)}
    return sorted({model.name for model in models} - needed)
