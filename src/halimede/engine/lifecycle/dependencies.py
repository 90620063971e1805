"""Which models ensembles need, whether those are there, and what an ensemble leaves behind when it goes."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from halimede.config.ensembles import needs_of
from halimede.config.model_config_pb2 import ModelConfig
from halimede.engine.lifecycle.version_states import ModelRecord, VersionState

LATEST = -1
"""The `model_version` of a step that takes the highest version that is ready."""

UNSET = 0
"""The `model_version` of a step that does not give it, which is an error of the ensemble itself."""


class Waiting(Protocol):
    """A model, as far as it matters which others must be there before it."""

    @property
    def ahead(self) -> tuple[str, ...]:
        """Their names."""


def circle(name: str, needs: Iterable[str], models: Mapping[str, Waiting]) -> str:
    """Why an ensemble with these needs would need itself, directly or through others; "" if it would not."""
    seen: set[str] = set()
    paths: list[tuple[str, ...]] = [(name, need) for need in reversed(tuple(needs))]
    while paths:
        path = paths.pop()
        last = path[-1]
        if last == name:
            return f"circular dependency between ensembles: {name} -> ... -> {path[-2]} -> {name}"
        if last not in seen and last in models:
            seen.add(last)
            paths += [(*path, need) for need in reversed(models[last].ahead)]
    return ""


def lacking(name: str, config: ModelConfig, records: Mapping[str, ModelRecord]) -> str:
    """Which model that the ensemble with this configuration needs does not serve, and why; "" if all do."""
    steps = config.ensemble_scheduling.step
    absent = [need for need in needs_of(config) if need not in records or _is_absent(records[need])]
    if absent:
        reasons = [
            f"'{need}': {records[need].reason}" for need in absent if need in records and records[need].reason
        ]
        names = {step.model_name: step.model_name.removeprefix(f"{step.model_namespace}::") for step in steps}
        listed = ", ".join(names[need] for need in absent)
        text = f"ensemble {name} contains models that are not available or ambiguous: {listed}"
        return f"{text} ({'; '.join(reasons)})" if reasons else text
    for need, version in dict.fromkeys((step.model_name, step.model_version) for step in steps):
        models = records[need].models
        if not models and records[need].reason:
            why = f"Model '{need}' failed with error: {records[need].reason}"
            return f"ensemble '{name}' depends on '{need}' which is not valid. {why}"
        if not models:
            return f"ensemble '{name}' depends on '{need}' which has no loaded version{_why(records[need])}"
        if version not in (LATEST, UNSET, *models):
            return f"ensemble '{name}' depends on '{need}' whose required version {version} is not loaded."
    return ""


def _is_absent(record: ModelRecord) -> bool:
    """Whether there is no such model, or none whose configuration can be used."""
    return (record.refused and not record.models) or not (record.known or record.reason)


def _why(record: ModelRecord) -> str:
    """What there is to say about a model without a loaded version."""
    clauses = " ".join(
        f"version {number} is at {version.state.value} state{': ' * bool(version.reason)}{version.reason};"
        for number, version in sorted(record.versions.items())
    )
    failed = any(
        version.state is VersionState.UNAVAILABLE and not version.withdrawn
        for version in record.versions.values()
    )
    if failed:
        return f". Model '{record.name}' loading failed with error: {clauses}"
    return f": {clauses}"


def needed_first(records: Mapping[str, ModelRecord]) -> list[ModelRecord]:
    """Every model, each after those that it needs."""
    order: list[ModelRecord] = []
    seen: set[str] = set()

    def visit(record: ModelRecord) -> None:
        if record.name not in seen:
            seen.add(record.name)
            for need in record.needs:
                if need in records:
                    visit(records[need])
            order.append(record)

    for record in records.values():
        visit(record)
    return order


def users_first(records: Mapping[str, ModelRecord]) -> list[ModelRecord]:
    """Every model, each before those that it needs, and otherwise as they come."""
    return needed_first(dict(reversed(list(records.items()))))[::-1]


def dependents(name: str, records: Mapping[str, ModelRecord]) -> list[ModelRecord]:
    """The ensembles that need the model directly, each after those that it needs itself."""
    return [
        record
        for record in needed_first(records)
        if name in record.needs or (record.blueprint is not None and name in record.blueprint.needs)
    ]


def is_spare(record: ModelRecord, records: Mapping[str, ModelRecord]) -> bool:
    """Whether the model was loaded for the sake of ensembles only, and none of them needs it any more."""
    return not record.explicit and not dependents(record.name, records)
