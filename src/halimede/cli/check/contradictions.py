"""Where a configuration contradicts its model, and what it would say if the model had written it.

A backend tells one contradiction at a time. Each is mended in a copy of the configuration, and the backend is
asked again, until it is content or cannot be helped.
"""

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from google.protobuf.text_format import MessageToString

from halimede.backends.base import BackendModel, ModelSource
from halimede.cli.check.ragged import ragged_fix
from halimede.cli.check.sequence_tensors import REMOVALS, sequence_problem
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate import Problem
from halimede.core.errors import HalimedeError

SIDES = ("input", "output")


def contradictions(backend: BackendModel) -> Iterator[Problem]:
    """The contradictions between an opened model and its configuration, which is completed in place.

    A problem without `where` is one of the model's files.
    """
    config = backend.source.config
    message = _refusal(backend.complete_config)
    listed = ModelConfig()
    listed.CopyFrom(config)
    if message is not None:
        yield _with_fix(config, listed, _written_by_the_model(backend), message)
    else:
        model: ModelConfig | None = None
        whole: ModelConfig | None = None
        while (message := _refusal(backend.check_config)) is not None:
            if model is None or whole is None:
                model = _written_by_the_model(backend)
                whole = _written_by_the_model(backend, with_sequence_tensors=True)
            problem = sequence_problem(config, listed, whole, message) or _with_fix(
                config, listed, model, message
            )
            yield problem
            if not problem.where or problem.fix.startswith(REMOVALS):
                break
    config.CopyFrom(listed)


def _refusal(step: Callable[[], None]) -> str | None:
    try:
        step()
    except HalimedeError as error:
        return error.message
    return None


def _written_by_the_model(backend: BackendModel, *, with_sequence_tensors: bool = False) -> ModelConfig:
    """The configuration with what the model tells, in place of what it says itself; as good as empty if little.

    Controls and states are among its inputs and outputs only if that is asked for.
    """
    source = backend.source
    told = ModelConfig()
    told.CopyFrom(source.config)
    for name in ("input", "output", "batch_input", "batch_output"):
        told.ClearField(name)
    if with_sequence_tensors:
        told.ClearField("sequence_batching")
    for largest in (told.max_batch_size, 0):
        told.max_batch_size = largest
        try:
            other = type(backend)(
                ModelSource(source.name, source.version, source.directory, told), backend.options
            )
        except HalimedeError:
            break
        try:
            other.complete_config()
            break
        except HalimedeError:
            continue
        finally:
            other.close()
    if told.max_batch_size and not source.config.max_batch_size:  # the configuration does not want batching
        for side in SIDES:
            for entry in getattr(told, side):
                dims = [] if entry.HasField("reshape") else list(entry.dims)
                entry.ClearField("reshape")
                entry.dims[:] = [-1, *dims]
        told.max_batch_size = 0
    return told


def _with_fix(config: ModelConfig, listed: ModelConfig, model: ModelConfig, message: str) -> Problem:
    """The problem with its place in `listed` and its fix, which is made in `config`; without both if there is none."""
    if config.max_batch_size and not model.max_batch_size and "batching" in message:
        config.max_batch_size = 0
        return Problem(config.name, "max_batch_size", message, "max_batch_size: 0")
    if config.model_transaction_policy.decoupled and "decoupled" in message:
        config.model_transaction_policy.decoupled = False
        return Problem(config.name, "model_transaction_policy.decoupled", message, "decoupled: false")
    problem = ragged_fix(config, listed, model, message)
    if problem is not None:
        return problem
    for side in SIDES:
        entries = getattr(config, side)
        places = {entry.name: f"{side}[{index}]" for index, entry in enumerate(getattr(listed, side))}
        right = {entry.name: entry for entry in getattr(model, side)}
        names = {entry.name for entry in entries}
        lacking = [entry for name, entry in right.items() if name not in names]
        for index, entry in enumerate(entries):
            if f"{side} '{entry.name}'" not in message and f"tensor '{entry.name}'" not in message:
                continue
            where = places.get(entry.name, side)
            instead = right.get(entry.name) or _meant(entry, lacking)
            if instead is not None and instead != entry:
                entry.CopyFrom(instead)
                return Problem(config.name, where, message, f"{side} {_line(instead)}")
            if instead is None and right:
                return Problem(config.name, where, message, f"remove {side} {_line(entries.pop(index))}")
        if f" {side}" in message and lacking and len(entries) < len(right):
            entries.add().CopyFrom(lacking[0])
            return Problem(config.name, side, message, f"{side} {_line(lacking[0])}")
        if f" {side}" in message and len(entries) > len(right) > 0:
            index = next((i for i, entry in enumerate(entries) if entry.name not in right), len(entries) - 1)
            entry = entries.pop(index)
            where = places.get(entry.name, side)
            return Problem(config.name, where, message, f"remove {side} {_line(entry)}")
    return Problem(config.name, "", message)


def _meant(entry: Any, lacking: Sequence[Any]) -> Any | None:
    """The tensor of the model that an entry of an unknown name stands for: one with a similar name, or else alike."""
    alike = [each for each in lacking if (each.data_type, each.dims) == (entry.data_type, entry.dims)]
    folded = {each.name.casefold(): each for each in lacking}
    close = get_close_matches(entry.name.casefold(), folded, 1)
    return folded[close[0]] if close else next(iter([*alike, *lacking]), None)


def _line(entry: Any) -> str:
    """The tensor as one line of text."""
    text = MessageToString(entry, as_one_line=True, use_short_repeated_primitives=True)
    return f"{{ {text.strip()} }}"
