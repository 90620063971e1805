"""What is wrong with ensembles that only the models of their steps can tell."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from halimede.config.ensembles import needs_of
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate import Problem
from halimede.core.errors import HalimedeError
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.lifecycle.dependencies import LATEST, circle


@dataclass(frozen=True, slots=True)
class Part:
    """A model that ensembles may be made of, and may be one itself.

    Attributes:
        config: its configuration, complete.
        versions: the versions that would be loaded.
        sound: nothing is known to be wrong with it.
    """

    config: ModelConfig
    versions: tuple[int, ...]
    sound: bool

    @property
    def ahead(self) -> tuple[str, ...]:
        """The models of its steps; none unless it is an ensemble."""
        return needs_of(self.config)


def mismatches(config: ModelConfig, parts: Mapping[str, Part]) -> Iterator[Problem]:
    """Problems of an ensemble with its models.

    Models that are themselves wrong are passed over: what would be said of them now may not hold once they are mended.

    Args:
        config: the ensemble's configuration, valid by itself; if nothing is wrong, whether it is decoupled is
            written into it.
        parts: all models, by name.
    """
    name = config.name
    if wrong := circle(name, needs_of(config), parts):
        yield Problem(name, "ensemble_scheduling", wrong)
        return
    complete = True
    for index, step in enumerate(config.ensemble_scheduling.step):
        where = f"ensemble_scheduling.step[{index}]"
        need, version = step.model_name, step.model_version
        if need not in parts:
            message = f"ensemble {name} contains models that are not available or ambiguous: {need}"
            close = get_close_matches(need, parts.keys() - {name}, 1)
            fix = f'model_name: "{close[0]}"' if close else ""
            yield Problem(name, f"{where}.model_name", message, fix)
            complete = False
        elif parts[need].versions and version not in (LATEST, *parts[need].versions):
            message = f"ensemble '{name}' depends on '{need}' whose required version {version} is not loaded."
            yield Problem(name, f"{where}.model_version", message, "model_version: -1")
            complete = False
        elif not parts[need].sound:
            complete = False
    if not complete:
        return
    try:
        plan = EnsemblePlan.from_config(config, lambda need, _version: parts[need].config)
    except HalimedeError as error:
        yield Problem(name, "ensemble_scheduling", error.message)
    else:
        config.model_transaction_policy.decoupled = plan.signature.decoupled
