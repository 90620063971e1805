"""Where a configuration contradicts its model, and what it would say if the model had written it.

A backend tells one contradiction at a time. Each is mended in a copy of the configuration, and the backend is
asked again, until it is content or cannot be helped.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.text_format import MessageToString

from halimede.backends.base import BackendModel, ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate import Problem
from halimede.core.errors import HalimedeError

SIDES = ("input", "output")


def contradictions(backend: BackendModel) -> Iterator[Problem]:
    """The contradictions between an opened model and its configuration, which is completed in place.

    A problem without `where` is one of the model's files.
    """
    config = backend.source.config
    try:
        backend.complete_config()
    except HalimedeError as error:
        yield _mend(config, _written_by_the_model(backend), error.message) or Problem(
            config.name, "", error.message
        )
        return
    completed = ModelConfig()
    completed.CopyFrom(config)
    model: ModelConfig | None = None
    while (message := _contradiction(backend)) is not None:
        if model is None:
            model = _written_by_the_model(backend)
        problem = _mend(config, model, message)
        yield problem or Problem(config.name, "", message)
        if problem is None:
            break
    config.CopyFrom(completed)


def _contradiction(backend: BackendModel) -> str | None:
    try:
        backend.check_config()
    except HalimedeError as error:
        return error.message
    return None


def _written_by_the_model(backend: BackendModel) -> ModelConfig:
    """The configuration with what the model tells, in place of what it says itself; as good as empty if little."""
    source = backend.source
    told = ModelConfig()
    told.CopyFrom(source.config)
    for name in ("input", "output", "batch_input", "batch_output"):
        told.ClearField(name)
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


def _mend(config: ModelConfig, model: ModelConfig, message: str) -> Problem | None:
    """The problem with its place and its mend, which is made in `config`; None if there is none."""
    if config.max_batch_size and not model.max_batch_size and "batching" in message:
        config.max_batch_size = 0
        return Problem(config.name, "max_batch_size", message, "max_batch_size: 0")
    for side in SIDES:
        entries = getattr(config, side)
        right = {entry.name: entry for entry in getattr(model, side)}
        listed = {entry.name for entry in entries}
        unlisted = [entry for name, entry in right.items() if name not in listed]
        for index, entry in enumerate(entries):
            if f"{side} '{entry.name}'" not in message and f"tensor '{entry.name}'" not in message:
                continue
            where = f"{side}[{index}]"
            instead = right.get(entry.name) or next(iter(unlisted), None)
            if instead is not None and instead != entry:
                entry.CopyFrom(instead)
                return Problem(config.name, where, message, f"{side} {_line(instead)}")
            if instead is None and right:
                mend = f"remove {side} {_line(entry)}"
                del entries[index]
                return Problem(config.name, where, message, mend)
        if f" {side}" in message and unlisted and len(entries) < len(right):
            entries.add().CopyFrom(unlisted[0])
            return Problem(config.name, side, message, f"{side} {_line(unlisted[0])}")
        if f" {side}" in message and len(entries) > len(right) > 0:
            index = next((i for i, entry in enumerate(entries) if entry.name not in right), len(entries) - 1)
            mend = f"remove {side} {_line(entries[index])}"
            del entries[index]
            return Problem(config.name, f"{side}[{index}]", message, mend)
    return None


def _line(entry: Any) -> str:
    """The tensor as one line of text."""
    text = MessageToString(entry, as_one_line=True, use_short_repeated_primitives=True)
    return f"{{ {text.strip()} }}"
