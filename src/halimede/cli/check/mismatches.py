"""What is wrong with ensembles that only the models of their steps can tell."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from halimede.cli.check.contradictions import SIDES
from halimede.cli.check.step_mismatches import step_mismatches
from halimede.config.ensembles import needs_of
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate import Problem
from halimede.config.validate.misspelt_tensors import corrected
from halimede.config.validate.model import uncacheable_if_decoupled
from halimede.core.errors import HalimedeError
from halimede.engine.ensembles.checks import SeenTensor, see
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
    """All problems of an ensemble with its models.

    The tensors of models that are themselves wrong are passed over: what would be said of them now may not hold once
    they are fixed.

    Args:
        config: the ensemble's configuration; if nothing is wrong, whether it is decoupled is written into it.
        parts: all models, by name.
    """
    name = config.name
    if wrong := circle(name, needs_of(config), parts):
        yield Problem(name, "ensemble_scheduling", wrong)
        return
    complete = True
    told: set[tuple[str, str]] = set()
    for problem in _step_problems(config, parts):
        complete = False
        if not problem.fix or (problem.where, problem.fix) not in told:
            told.add((problem.where, problem.fix))
            yield problem
    if not complete or not all(parts[need].sound for need in needs_of(config) if need in parts):
        return
    if not parts[name].sound:
        return
    try:
        plan = EnsemblePlan.from_config(config, lambda need, _version: parts[need].config)
    except HalimedeError as error:
        yield Problem(name, "ensemble_scheduling", error.message)
    else:
        config.model_transaction_policy.decoupled = plan.signature.decoupled
        if plan.signature.decoupled and config.response_cache.enable:
            yield uncacheable_if_decoupled(config)


def _step_problems(config: ModelConfig, parts: Mapping[str, Part]) -> Iterator[Problem]:
    name = config.name
    config = corrected(config)
    seen: dict[str, SeenTensor] = {}
    for side in SIDES:
        for entry in getattr(config, side):
            dims = entry.reshape.shape if entry.HasField("reshape") else entry.dims
            seen.setdefault(entry.name, see(name, entry, dims, config.max_batch_size))
    for index, step in enumerate(config.ensemble_scheduling.step):
        where = f"ensemble_scheduling.step[{index}]"
        need, version = step.model_name, step.model_version
        close = get_close_matches(need, parts.keys() - {name}, 1)
        if not need:
            continue
        if need not in parts:
            message = f"ensemble {name} contains models that are not available or ambiguous: {need}"
            fix = f'model_name: "{close[0]}"' if close else ""
            yield Problem(name, f"{where}.model_name", message, fix)
        elif parts[need].versions and version not in (LATEST, *parts[need].versions):
            message = f"ensemble '{name}' depends on '{need}' whose required version {version} is not loaded."
            yield Problem(name, f"{where}.model_version", message, "model_version: -1")
        model = parts.get(need) or (parts[close[0]] if close else None)
        if model is not None and model.sound:
            yield from step_mismatches(config, index, model.config, seen)
