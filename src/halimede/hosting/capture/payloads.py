"""Bodies of invocations to arrays: KServe's tensors as JSON and as bytes, CSV, and other JSON."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from halimede.codec.json_tensors import tensor_from_json
from halimede.codec.json_text import parse_json
from halimede.codec.sagemaker_media_type import read_length
from halimede.core.datatypes import BF16, BY_NAME
from halimede.core.errors import HalimedeError
from halimede.core.media_types import essence
from halimede.core.tensors import Array, Tensor

_LINES: Final = ("application/jsonlines", "application/x-jsonlines", "application/x-ndjson")
_UNNAMED: Final = "data"
"""The name of JSON that is an array or a single value."""

_EVENT: Final = b"data:"
_LAST_EVENT: Final = b"[DONE]"


class UndecodableError(Exception):
    """A body holds nothing that can be shown as arrays; the text says why."""


class Values(NamedTuple):
    """The values of one name.

    Attributes:
        datatype: KServe's name for what an element is, such as ``FP32``.
        array: the elements. Of BF16 as float32; of BYTES as objects, which are `bytes` if they came as KServe's
            tensors and otherwise `str`, or None where a value is missing. Missing numbers are NaN.
    """

    datatype: str
    array: Array


def decode_values(body: bytes, content_type: str, encoding: str = "BASE64") -> dict[str, Values]:
    """What a body holds, by name: inputs, outputs, columns (``_c0``, ``_c1``, …) or members of JSON (``a.b``).

    Args:
        body: the whole body.
        content_type: what its sender called it, "" for nothing.
        encoding: as what it was captured, which decides if it was CSV or JSON.

    Raises:
        UndecodableError: it holds none of that, or is damaged.
    """
    with _explained():
        return _decode(body, content_type, encoding)


def decode_tensors(body: bytes, content_type: str) -> dict[str, Values]:
    """KServe's inputs or outputs that a body holds, by name.

    Args:
        body: the whole body.
        content_type: what its sender called it, "" for nothing.

    Raises:
        UndecodableError: it holds none, or is damaged.
    """
    with _explained():
        digits = read_length(content_type)
        length = len(body) if digits is None else int(digits)
        values = _listed_tensors(parse_json(body[:length]), body, length)
        if values is None:
            raise UndecodableError("the JSON lists no tensors")
        return values


@contextmanager
def _explained() -> Iterator[None]:
    """Say what is wrong with a body that cannot be decoded.

    Raises:
        UndecodableError: it cannot.
    """
    try:
        yield
    except HalimedeError as error:
        raise UndecodableError(error.message) from None
    except RecursionError:
        raise UndecodableError("the JSON is nested too deeply") from None
    except (ValueError, OverflowError, TypeError, KeyError, csv.Error) as error:
        raise UndecodableError(f"{type(error).__name__}: {error}") from None


def _decode(body: bytes, content_type: str, encoding: str) -> dict[str, Values]:
    length = read_length(content_type)
    if length is not None:
        return _tensors(body, int(length))
    media_type = essence(content_type)
    if encoding == "CSV" or media_type == "text/csv":
        return _csv(body)
    if media_type == "text/event-stream":
        events = [line[len(_EVENT) :].strip() for line in body.splitlines() if line.startswith(_EVENT)]
        return _rows([parse_json(event) for event in events if event != _LAST_EVENT])
    if media_type in _LINES:
        return _rows([parse_json(line) for line in body.splitlines() if line.strip()])
    if encoding == "JSON" or media_type.endswith("json") or body[:1] in {b"{", b"["}:
        return _document(parse_json(body), body, len(body))
    shown = f"content type '{content_type}'" if content_type else "no content type"
    raise UndecodableError(f"{len(body)} bytes of {shown} are neither tensors nor CSV nor JSON")


# KServe


def _tensors(body: bytes, length: int) -> dict[str, Values]:
    if not length:
        raise UndecodableError("the body is one tensor without its datatype and shape (json-header-size=0)")
    if not 0 < length <= len(body):
        raise UndecodableError(
            f"the body has {len(body)} bytes, which cannot begin with {length} bytes of JSON"
        )
    return _document(parse_json(body[:length]), body, length)


def _document(document: Any, body: bytes, length: int) -> dict[str, Values]:
    """What a body holds that begins with so many bytes of JSON."""
    values = _listed_tensors(document, body, length)
    if values is not None:
        return values
    if length < len(body):
        raise UndecodableError("the JSON before the bytes lists no tensors")
    return _flatten(document)


def _listed_tensors(document: Any, body: bytes, length: int) -> dict[str, Values] | None:
    """The tensors that the JSON of a body lists; None if it lists none."""
    if isinstance(document, dict):
        for key in ("inputs", "outputs"):
            entries = document.get(key)
            if isinstance(entries, list) and all(map(_is_tensor, entries)):
                return _read_tensors(entries, body, length)
    return None


def _is_tensor(entry: Any) -> bool:
    return isinstance(entry, dict) and "datatype" in entry and "shape" in entry and "name" in entry


def _read_tensors(entries: Iterable[Mapping[str, Any]], body: bytes, length: int) -> dict[str, Values]:
    values: dict[str, Values] = {}
    position = length
    for entry in entries:
        name, shape = str(entry["name"]), tuple(int(size) for size in entry["shape"])
        datatype = BY_NAME.get(entry["datatype"])
        if datatype is None:
            raise UndecodableError(f"'{name}' has the unknown datatype {entry['datatype']!r}")
        if min(shape, default=0) < 0 or prod(shape) > len(body):
            raise UndecodableError(f"'{name}' of shape {list(shape)} is not in a body of {len(body)} bytes")
        parameters = entry.get("parameters") or {}
        if "binary_data_size" in parameters:
            end = position + int(parameters["binary_data_size"])
            if end > len(body):
                raise UndecodableError(
                    f"'{name}' is cut off: {len(body) - position} of {end - position} bytes"
                )
            tensor = Tensor(datatype, shape, body[position:end])
            position = end
        elif "data" in entry:
            tensor = tensor_from_json(name, datatype, shape, entry["data"], sys.maxsize)
        else:
            raise UndecodableError(f"'{name}' has no data")
        array = tensor.array
        if datatype is BF16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        values[name] = Values(datatype.name, array)
    if position != len(body):
        raise UndecodableError(f"{len(body) - position} bytes follow the last tensor")
    return values


# CSV


def _csv(body: bytes) -> dict[str, Values]:
    rows = [row for row in csv.reader(io.StringIO(body.decode("utf-8-sig"), newline="")) if row]
    if not rows:
        return {}
    width = len(rows[0])
    for index, row in enumerate(rows):
        if len(row) != width:
            raise UndecodableError(f"row {index + 1} has {len(row)} values, and row 1 has {width}")
    return {
        f"_c{index}": _cells([cell.strip() for cell in column])
        for index, column in enumerate(zip(*rows, strict=True))
    }


def _cells(cells: Sequence[str]) -> Values:
    """A column: numbers if all its cells are or are empty, otherwise texts."""
    if all(cells):
        try:
            return Values("INT64", np.array([int(_plain(cell)) for cell in cells], np.int64))
        except (ValueError, OverflowError):
            pass
    try:
        return Values("FP64", np.array([float(_plain(cell)) if cell else np.nan for cell in cells]))
    except ValueError:
        return Values("BYTES", _objects([cell or None for cell in cells]))


def _plain(cell: str) -> str:
    """The cell, unless it is a number for Python only.

    Raises:
        ValueError: it has underscores.
    """
    if "_" in cell:
        raise ValueError(cell)
    return cell


# JSON of other kinds


def _flatten(document: Any) -> dict[str, Values]:
    if isinstance(document, list) and _are_objects(document):
        return _rows(document)
    values: dict[str, Values] = {}
    for name, leaf in _leaves(document, ""):
        if isinstance(leaf, list) and _are_objects(leaf):
            columns = _rows(leaf)
            values.update({f"{name}.{column}": each for column, each in columns.items()})
        else:
            values[name or _UNNAMED] = _leaf_values(leaf if isinstance(leaf, list) else [leaf])
    return values


def _rows(rows: Sequence[Any]) -> dict[str, Values]:
    """A column for each member that any of the rows has."""
    flat = [{name or _UNNAMED: leaf for name, leaf in _leaves(row, "")} for row in rows]
    names = dict.fromkeys(chain.from_iterable(flat))
    return {name: _leaf_values([row.get(name) for row in flat]) for name in names}


def _leaves(value: Any, name: str) -> Iterable[tuple[str, Any]]:
    """Members of members, with the names on the way to them."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, member in value.items():
        yield from _leaves(member, f"{name}.{key}" if name else key)


def _are_objects(value: Sequence[Any]) -> bool:
    return bool(value) and all(isinstance(each, dict) for each in value)


def _leaf_values(elements: list[Any]) -> Values:
    """An array of values of one kind; what is of several kinds, or ragged, as texts of JSON."""
    flat, shape = _rectangle(elements)
    kinds = {type(each) for each in flat} - {type(None)}
    is_whole = None not in flat
    if kinds == {bool} and is_whole:
        return Values("BOOL", np.array(flat, np.bool_).reshape(shape))
    if kinds and kinds <= {int, float}:
        if kinds == {int} and is_whole and all(-(1 << 63) <= each < 1 << 63 for each in flat):
            return Values("INT64", np.array(flat, np.int64).reshape(shape))
        numbers = [np.nan if each is None else float(each) for each in flat]
        return Values("FP64", np.array(numbers, np.float64).reshape(shape))
    if kinds <= {str}:
        return Values("BYTES", _objects(flat).reshape(shape))
    return Values("BYTES", _objects([None if each is None else _text(each) for each in elements]))


def _rectangle(elements: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """The elements of nested arrays of equal lengths and their shape; others as they are."""
    flat: list[Any] = elements
    shape: tuple[int, ...] = (len(elements),)
    while flat and all(isinstance(each, list) for each in flat):
        lengths = {len(each) for each in flat}
        if len(lengths) > 1:
            return elements, (len(elements),)
        shape = (*shape, lengths.pop())
        flat = list(chain.from_iterable(flat))
    if any(isinstance(each, list) for each in flat):
        return elements, (len(elements),)
    return flat, shape


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _objects(elements: Sequence[Any]) -> Array:
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array
