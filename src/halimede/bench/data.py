"""What requests bring: tensors from files, or made from what the model says of its inputs."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from halimede.bench.errors import BenchError
from halimede.bench.model import Model, Tensor
from halimede.core.datatypes import BY_NAME, BYTES

DISTINCT = 16
"""So many different requests are made of random data."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_LARGEST_INTEGER = 100


@dataclass(frozen=True, slots=True)
class Value:
    """One input of one request.

    Attributes:
        name: of the input.
        datatype: of KServe.
        shape: with the batch dimension, if there is one.
        raw: the elements as the binary protocol has them.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: bytes


Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Making:
    """How data is made where no file brings it.

    Attributes:
        zero: all elements are 0, and strings empty; otherwise they are random.
        shapes: sizes of inputs that vary, by name, without the batch dimension.
        batch: rows of a request; models that do not batch have 1.
        string_length: characters of each random string.
        string: each string, in place of random ones.
        seed: the same seed makes the same data.
    """

    zero: bool = False
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    batch: int = 1
    string_length: int = 128
    string: str | None = None
    seed: int = 0


def make(model: Model, making: Making) -> list[Row]:
    """Requests with made data; optional inputs are left out.

    Raises:
        BenchError: a size that varies was not given.
    """
    check_names(model, making.shapes)
    random = np.random.default_rng(making.seed)
    count = 1 if making.zero else DISTINCT
    needed = [tensor for tensor in model.inputs if not tensor.optional or tensor.name in making.shapes]
    return [tuple(_made(model, tensor, making, random) for tensor in needed) for _ in range(count)]


def check_names(model: Model, names: Mapping[str, object]) -> None:
    """Return if the model has inputs of these names.

    Raises:
        BenchError: it has not.
    """
    known = [tensor.name for tensor in model.inputs]
    for name in names:
        if name not in known:
            raise BenchError(f"Model '{model.name}' has no input '{name}'; it has {', '.join(known)}")


def read(path: Path, model: Model, making: Making) -> list[list[Row]]:
    """Requests from a JSON file in perf_analyzer's form, or from a directory with a file for each input.

    Returns:
        Streams of requests: one if the file has no sequences.

    Raises:
        BenchError: they cannot be read, or do not fit the model.
    """
    if path.is_dir():
        return [[tuple(_from_directory(path, model, tensor, making) for tensor in model.inputs)]]
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BenchError(f"{path} cannot be read: {error}") from None
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list) or not data:
        raise BenchError(f'{path} needs the form {{"data": [{{"INPUT": [...]}}, ...]}}')
    streams = data if all(isinstance(stream, list) for stream in data) else [data]
    return [
        [_row(f"{path}, data {number}", step, model, making) for number, step in enumerate(stream)]
        for stream in streams
    ]


def _row(place: str, step: Any, model: Model, making: Making) -> Row:
    if not isinstance(step, dict):
        raise BenchError(f"{place}: a request is an object with a value for each input")
    check_names(model, step)
    missing = [each.name for each in model.inputs if not each.optional and each.name not in step]
    if missing:
        raise BenchError(f"{place}: input '{missing[0]}' is missing")
    tensors = [tensor for tensor in model.inputs if tensor.name in step]
    return tuple(_value(f"{place}, {each.name}", step[each.name], each, model, making) for each in tensors)


def _value(place: str, value: Any, tensor: Tensor, model: Model, making: Making) -> Value:
    given: Sequence[int] | None = None
    if isinstance(value, dict) and "content" in value:
        value, given = value["content"], value.get("shape")
    if isinstance(value, dict) and isinstance(value.get("b64"), str):
        try:
            raw = base64.b64decode(value["b64"], validate=True)
        except ValueError as error:
            raise BenchError(f"{place}: {error}") from None
    else:
        raw = _encoded(place, value, tensor.datatype)
    shape = tuple(given) if given is not None else _shape(model, tensor, making)
    return _batched(place, tensor, raw, shape, model, making)


def _encoded(place: str, value: Any, datatype: str) -> bytes:
    flat = _flattened(value)
    try:
        if datatype == BYTES.name:
            return strings([each.encode() if isinstance(each, str) else str(each).encode() for each in flat])
        return elements(np.array(flat), datatype)
    except (ValueError, TypeError, OverflowError) as error:
        raise BenchError(f"{place}: {error}") from None


def _flattened(value: Any) -> list[Any]:
    return [each for part in value for each in _flattened(part)] if isinstance(value, list) else [value]


def _from_directory(path: Path, model: Model, tensor: Tensor, making: Making) -> Value:
    place = path / tensor.name
    try:
        if (numpy := place.with_name(f"{tensor.name}.npy")).exists():
            array = np.load(numpy, allow_pickle=False)
            return _batched(str(numpy), tensor, elements(array, tensor.datatype), array.shape, model, making)
        raw = place.read_bytes()
    except (OSError, ValueError) as error:
        raise BenchError(
            f"{path} needs a file {tensor.name} or {tensor.name}.npy for that input: {error}"
        ) from None
    if tensor.datatype == BYTES.name:
        raw = strings([raw])
    return _batched(str(place), tensor, raw, _shape(model, tensor, making), model, making)


def _batched(
    place: str, tensor: Tensor, raw: bytes, shape: tuple[int, ...], model: Model, making: Making
) -> Value:
    """One row from a file, as often as the batch is large."""
    size = BY_NAME[tensor.datatype].itemsize
    if size and len(raw) != math.prod(shape) * size:
        elements_there = len(raw) / size
        raise BenchError(
            f"{place}: {elements_there:g} elements of {tensor.datatype}, and the shape {list(shape)} "
            f"has {math.prod(shape)}"
        )
    if model.max_batch_size:
        return Value(tensor.name, tensor.datatype, (making.batch, *shape), raw * making.batch)
    return Value(tensor.name, tensor.datatype, shape, raw)


def _shape(model: Model, tensor: Tensor, making: Making) -> tuple[int, ...]:
    """The shape of one row, without a batch dimension.

    Raises:
        BenchError: a size varies and is not given, or is given otherwise than it is.
    """
    declared = tensor.shape[1:] if model.max_batch_size else tensor.shape
    given = making.shapes.get(tensor.name)
    if given is None:
        if any(size < 0 for size in declared):
            example = ",".join(str(size if size > 0 else 4) for size in declared)
            raise BenchError(
                f"Input '{tensor.name}' has the shape {list(declared)}: give its sizes, as in "
                f"--shape {tensor.name}:{example}"
            )
        return declared
    fits = len(given) == len(declared) and all(
        wanted in (-1, size) for wanted, size in zip(declared, given, strict=True)
    )
    if not fits:
        raise BenchError(f"Input '{tensor.name}' has the shape {list(declared)}; {list(given)} does not fit")
    return given


def _made(model: Model, tensor: Tensor, making: Making, random: np.random.Generator) -> Value:
    shape = _shape(model, tensor, making)
    if model.max_batch_size:
        shape = (making.batch, *shape)
    count = math.prod(shape)
    if tensor.datatype == BYTES.name:
        texts = [_string(making, random) for _ in range(count)]
        return Value(tensor.name, tensor.datatype, shape, strings(texts))
    if making.zero:
        raw = bytes(count * BY_NAME[tensor.datatype].itemsize)
    elif tensor.datatype.startswith(("FP", "BF")):
        raw = elements(random.random(count), tensor.datatype)
    else:
        most = 2 if tensor.datatype == "BOOL" else _LARGEST_INTEGER
        raw = elements(random.integers(0, most, count), tensor.datatype)
    return Value(tensor.name, tensor.datatype, shape, raw)


def _string(making: Making, random: np.random.Generator) -> bytes:
    if making.string is not None:
        return making.string.encode()
    if making.zero:
        return b""
    return "".join(_LETTERS[place] for place in random.integers(0, 36, making.string_length)).encode()


def strings(texts: Sequence[bytes]) -> bytes:
    """Strings as the binary protocol has them."""
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def elements(array: NDArray[Any], datatype: str) -> bytes:
    """Numbers as the binary protocol has them.

    Raises:
        ValueError, OverflowError: they are not of that datatype.
    """
    if datatype == "BF16":
        return (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    wanted = BY_NAME[datatype].numpy
    if array.dtype.kind not in "biuf":
        raise ValueError(f"these are no numbers: {array.reshape(-1)[:3].tolist()}")
    if array.dtype.kind == "f" and wanted.kind in "iub" and (array % 1).any():
        raise ValueError(f"{datatype} has no fractions")
    if wanted.kind in "iu" and array.size:
        limits = np.iinfo(wanted)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise ValueError(f"{datatype} goes from {limits.min} to {limits.max}")
    return array.astype(wanted).tobytes()


def as_json(value: Value) -> list[Any]:
    """The elements of a value as JSON has them, flat."""
    if value.datatype == BYTES.name:
        texts, at = [], 0
        while at < len(value.raw):
            end = at + 4 + int.from_bytes(value.raw[at : at + 4], "little")
            texts.append(value.raw[at + 4 : end].decode(errors="replace"))
            at = end
        return texts
    if value.datatype == "BF16":
        wide = np.frombuffer(value.raw, "<u2").astype("<u4") << 16
        floats: list[Any] = wide.view("<f4").astype(float).tolist()
        return floats
    numbers: list[Any] = np.frombuffer(value.raw, BY_NAME[value.datatype].numpy).tolist()
    return numbers
