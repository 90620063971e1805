"""What sequences begin with: zeros, or what a file in the model's directory holds."""

from math import prod
from pathlib import Path

import numpy as np

from halimede.config.model_config_pb2 import ModelConfig, ModelSequenceBatching
from halimede.core.datatypes import BY_NUMBER, BYTES
from halimede.core.errors import InternalError, InvalidArgumentError, OutOfMemoryError, UnsupportedError
from halimede.core.memory import memory_limit
from halimede.core.tensors import Array, decode_bytes

DIRECTORY = "initial_state"
"""In a model's directory: the files that sequences may begin with."""

VARIABLE = -1
"""In dims: the size varies, and is 1 to begin with."""

_STRING_BYTES = 4
"""An empty string is its length alone."""


def initial_states(config: ModelConfig, directory: Path) -> dict[str, Array]:
    """Input of a state → what a sequence begins with, of shape ``dims`` without batch dimension. Blocks.

    Args:
        config: of the model, validated.
        directory: the model's.

    Raises:
        InvalidArgumentError: a file is too short, or of strings that it does not hold.
        InternalError: a file cannot be read.
        OutOfMemoryError: a state is larger than the memory.
    """
    return {
        state.input_name: initial_state(state, directory, config.name)
        for state in config.sequence_batching.state
    }


def initial_state(state: ModelSequenceBatching.State, directory: Path, model: str) -> Array:
    """What a sequence begins with of one state; see `initial_states`."""
    datatype = BY_NUMBER[state.data_type]
    initial = state.initial_state[0] if state.initial_state else None
    dims = state.dims if initial is None else initial.dims
    shape = tuple([1 if dim == VARIABLE else dim for dim in dims])
    size = prod(shape) * (datatype.itemsize or _STRING_BYTES)
    limit = memory_limit()
    if limit and size > limit:
        msg = (
            f"unable to load model '{model}': state '{state.input_name}' takes {size} bytes a sequence, more than "
            f"the memory of {limit} bytes"
        )
        raise OutOfMemoryError(msg)
    if initial is not None and initial.WhichOneof("state_data") is None:
        msg = f"initial_state setting expects state'{state.input_name}' to have state_data set"
        raise InvalidArgumentError(f"{msg}: zero_data: true, or data_file")
    if initial is None or initial.WhichOneof("state_data") != "data_file":
        array = np.zeros(shape, datatype.numpy)
        if datatype is BYTES:
            array.fill(b"")
        array.flags.writeable = False
        return array
    content = _file(directory, initial.data_file)
    if datatype is BYTES:
        return _strings(content, shape, initial.data_file)
    if len(content) < size:
        msg = (
            f"initial_state setting expects {size} bytes, but the data provided from {initial.data_file}"
            f"only has {len(content)} bytes."
        )
        raise InvalidArgumentError(msg)
    return np.frombuffer(content[:size], datatype.numpy).reshape(shape)


def _strings(content: bytes, shape: tuple[int, ...], name: str) -> Array:
    try:
        elements = decode_bytes(content)
    except InvalidArgumentError as error:
        text = (
            f"initial_state setting cannot use {name}: {error.message}. A file of strings has the length of each in "
            f"4 bytes, little-endian, before it"
        )
        raise InvalidArgumentError(text) from error
    if len(elements) < prod(shape):
        text = (
            f"initial_state setting expects {prod(shape)} strings, but the data provided from {name} "
            f"only has {len(elements)}"
        )
        raise InvalidArgumentError(text)
    array = np.empty(prod(shape), np.object_)
    array[:] = elements[: prod(shape)]
    array.flags.writeable = False
    return array.reshape(shape)


def _file(directory: Path, name: str) -> bytes:
    """The content of a file in the model's directory `initial_state`."""
    folder = directory / DIRECTORY
    path = folder / name
    start = f"failed to open text file for read {path}: "
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InvalidArgumentError(f"{start}it must stay inside the model's directory '{DIRECTORY}'")
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InternalError(start + str(reason)) from error


def refuse_states(config: ModelConfig) -> None:
    """Refuse states, for a backend whose models have none.

    Raises:
        UnsupportedError: the configuration has some.
    """
    if config.sequence_batching.state:
        name = config.sequence_batching.state[0].input_name
        msg = (
            f"model '{config.name}': the backend '{config.backend}' keeps no states of sequences; remove the "
            f"sequence_batching {{ state }} '{name}'"
        )
        raise UnsupportedError(msg)
