"""Large JSON, mostly numbers, which go from the text into arrays without becoming Python objects.

simdjson does that, where it is installed. It reads only what orjson reads alike; the rest is left to orjson, which also
says what is wrong.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from halimede.codec.json_text import MAX_NESTING, Members, check_values
from halimede.core.datatypes import FP32, Datatype
from halimede.core.tensors import Array, Buffer

try:
    import simdjson
except ImportError:  # the extra `json` brings it
    simdjson = None  # type: ignore[assignment]

MIN_BYTES: Final = 8192
"""For shorter texts orjson takes less time."""

_BYTES_A_QUOTE: Final = 64
"""Texts with more quotes are mostly strings, which simdjson does not make faster."""

_BYTES_A_BRACKET: Final = 8
"""Texts with more brackets are mostly arrays, which become lists."""

_LEAST_BYTES_A_BRACKET: Final = 4
"""With more brackets, few arrays have an element, and simdjson is not asked at all."""

_SAMPLE: Final = 8192

_MAX_MEMBERS: Final = 64
"""Each is looked up among all others."""

_MAX_LENGTH: Final = 0xFFFFFF
"""Where simdjson stops to count elements. Of a longer array it writes more than it has made room for."""

_TYPES: Final = {"f": ("d", np.float64), "i": ("i", np.int64), "u": ("u", np.uint64)}
"""Kind of a numpy type → what simdjson calls the widest of the kind, and numpy."""


class _UnsuitableError(Exception):
    """The text is to be read by orjson."""


class JsonArray:
    """A JSON array that was read, but of which no Python objects were made."""

    __slots__ = ("_array",)

    def __init__(self, array: "simdjson.Array") -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def as_list(self) -> list[Any]:
        """Its elements as objects."""
        return self._array.as_list()

    def numbers(self, datatype: Datatype, count: int) -> Array | None:
        """All elements, in order, whatever the nesting: a flat array that is read-only.

        None unless they are so many numbers that the datatype holds.
        """
        form = _TYPES.get(datatype.numpy.kind)
        if form is None:
            return None
        code, widest = form
        try:
            values: Array = np.frombuffer(self._array.as_buffer(of_type=code), widest)  # type: ignore[arg-type]
        except (TypeError, ValueError):  # no number, or too large
            return None
        if len(values) != count:
            return None
        if datatype.numpy != widest:
            narrow = _narrowed(values, datatype)
            if narrow is None:
                return None
            values = narrow
        values.flags.writeable = False
        return values


def _narrowed(values: Array, datatype: Datatype) -> Array | None:
    """The numbers in the datatype, unless it is too narrow for one of them."""
    if datatype is FP32:
        with np.errstate(over="ignore"):
            narrow = values.astype(datatype.numpy)
        return narrow if np.isfinite(narrow).all() else None
    limits = np.iinfo(datatype.numpy)
    if values.min() < limits.min or values.max() > limits.max:
        return None
    return values.astype(datatype.numpy)


def read_document(text: Buffer) -> dict[str, Any] | None:
    """The object of a large inference request: the `data` of each of its `inputs` is a `JsonArray` if it is an array.

    None if `parse_json` is to read it.

    Raises:
        TooManyValuesError: as of `check_values`.
    """
    root = _parse(text)
    try:
        return None if root is None else _members(root, _inputs)
    except _UnsuitableError:
        return None


def read_members(text: Buffer) -> Members | None:
    """The members of a large `generate` request; each array is a `JsonArray`.

    None if `parse_members` is to read it.

    Raises:
        TooManyValuesError: as of `check_values`.
    """
    root = _parse(text)
    try:
        members = {} if root is None else _members(root, _array)
    except _UnsuitableError:
        return None
    if any(isinstance(value, dict) for value in members.values()):
        return None
    return Members(members.items()) or None


def _parse(text: Buffer) -> "simdjson.Object | None":
    characters = np.frombuffer(text, np.uint8)
    if simdjson is None or _may_be_too_long(characters) or not _is_mostly_numbers(characters):
        return None
    check_values(text)
    try:
        root = simdjson.Parser().parse(text)
    except (ValueError, RuntimeError):  # whatever is wrong
        return None
    return root if isinstance(root, simdjson.Object) else None


def are_numbers(text: Buffer) -> bool:
    """Whether simdjson would read a large text, and soon, judging by quotes and brackets among some of its bytes."""
    some = np.frombuffer(text, np.uint8)[:: len(text) // _SAMPLE | 1]
    quotes, brackets = (np.count_nonzero(some == ord(each)) for each in '"[')
    few = quotes * _BYTES_A_QUOTE <= len(some) and brackets * _BYTES_A_BRACKET <= len(some)
    return simdjson is not None and bool(few)


def _may_be_too_long(text: Array) -> bool:
    """Whether an array may have so many elements, nested ones among them, that simdjson loses count."""
    if len(text) < 2 * _MAX_LENGTH - 1:  # so many digits, and commas between them
        return False
    return bool(np.count_nonzero(text == ord(",")) >= _MAX_LENGTH - 1)


def _is_mostly_numbers(text: Array) -> bool:
    """Whether there are few strings, and so few brackets in each other that none can be too deep."""
    is_quote = text == ord('"')
    if np.count_nonzero(is_quote) * _BYTES_A_QUOTE > len(text):
        return False
    opens = text == ord("[")
    arrays = np.count_nonzero(opens)
    if arrays <= MAX_NESTING:
        return True
    if arrays * _LEAST_BYTES_A_BRACKET > len(text):
        return False
    if (text == ord("\\")).any():
        return False
    brackets = np.flatnonzero(opens | (text == ord("]")))
    if (np.searchsorted(np.flatnonzero(is_quote), brackets) % 2).any():  # one is in a string
        return False
    depths = np.cumsum(np.where(opens[brackets], 1, -1))
    return bool(depths.max() <= MAX_NESTING)


def _members(value: "simdjson.Object", convert: "Callable[[str, simdjson.Array], Any]") -> dict[str, Any]:
    """The members of an object; `convert` is called for the arrays among them, with their names.

    Raises:
        _UnsuitableError: names are repeated, or cannot be looked up.
    """
    names = list(value)
    if len(names) > _MAX_MEMBERS or len(set(names)) != len(names) or any("\0" in name for name in names):
        raise _UnsuitableError
    members: dict[str, Any] = {}
    for name in names:
        member: Any = value[name]
        if isinstance(member, simdjson.Object):
            member = member.as_dict()
        elif isinstance(member, simdjson.Array):
            member = convert(name, member)
        members[name] = member
    return members


def _inputs(name: str, array: "simdjson.Array") -> list[Any]:
    if name != "inputs":
        return array.as_list()
    inputs: list[Any] = []
    for entry in array:
        if isinstance(entry, simdjson.Object):
            inputs.append(_members(entry, _data))
        else:
            inputs.append(entry.as_list() if isinstance(entry, simdjson.Array) else entry)
    return inputs


def _data(name: str, array: "simdjson.Array") -> JsonArray | list[Any]:
    return JsonArray(array) if name == "data" else array.as_list()


def _array(_name: str, array: "simdjson.Array") -> JsonArray:
    return JsonArray(array)
