"""What the JSON of an inference request says: everything but the bytes of its binary tensors.

A plan holds nothing of one request alone, so that equal JSON needs to be read only once.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeGuard

from halimede.codec.json_numbers import MIN_BYTES, read_document
from halimede.codec.json_tensors import tensor_from_json
from halimede.codec.json_text import exact_integers, parse_json
from halimede.codec.value_ranges import shortened
from halimede.core.datatypes import BY_NAME, Datatype
from halimede.core.element_counts import check_rank, element_count
from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.core.requests import ParameterValue, already_there, request_prefix
from halimede.core.tensors import Buffer, Tensor
from halimede.frontends.http.codec.response_layout import Layout
from halimede.frontends.request_bounds import check_count
from halimede.frontends.restrictions import RESERVED_PREFIX
from halimede.frontends.shared_memory.registry import Place
from halimede.frontends.shared_memory.requests import Places

UINT64_MAX: Final = (1 << 64) - 1
_INT64: Final = range(-(1 << 63), 1 << 63)
_LARGE: Final = float(1 << 63)

_SEQUENCE_ID_BYTES: Final = 128


InputPlan = tuple[str, Datatype, tuple[int, ...], int, int, Tensor | None]
"""Name, datatype and shape of an input; where its bytes begin and end after the JSON, or the tensor that came as
JSON; an empty one for an input in a region. A plain tuple, since every request unpacks it."""


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """How one output is wanted: as bytes or as JSON; as its `classes` highest classes unless that is 0.

    One that is `placed` in a region is only described.
    """

    binary: bool
    classes: int = 0
    placed: bool = False


class Scheduling(NamedTuple):
    """What a request says of its place in queues and sequences; as in `InferRequest`."""

    priority: int
    timeout_us: int
    sequence_id: int | str
    sequence_start: bool
    sequence_end: bool


class RequestPlan:
    """What a request's JSON says.

    Attributes:
        id: the client's identifier, "" if it gave none.
        inputs: in the order of the request.
        binary_bytes: bytes of all binary inputs together.
        outputs: names of the outputs wanted, () for all.
        output_plans: name → how it is wanted; empty if `outputs` is.
        unlisted: how outputs are wanted if none is listed.
        parameters: custom parameters, or None.
        scheduling: what it says of queues and sequences, None for nothing.
        places: where its tensors are that are in regions, None if none is.
        layout: what the last response to it looked like, None before the first.
    """

    __slots__ = (
        "__weakref__",
        "binary_bytes",
        "id",
        "inputs",
        "layout",
        "output_plans",
        "outputs",
        "parameters",
        "places",
        "scheduling",
        "unlisted",
    )

    def __init__(self) -> None:
        self.id = ""
        self.inputs: tuple[InputPlan, ...] = ()
        self.binary_bytes = 0
        self.outputs: tuple[str, ...] = ()
        self.output_plans: dict[str, OutputPlan] = {}
        self.unlisted = OutputPlan(binary=False)
        self.parameters: dict[str, ParameterValue] | None = None
        self.layout: Layout | None = None
        self.scheduling: Scheduling | None = None
        self.places: Places | None = None


def read_plan(text: Buffer, max_bytes: int) -> RequestPlan:
    """The plan that the JSON spells; no input in it may be larger than `max_bytes`.

    Raises:
        InvalidArgumentError: it is not what the protocol describes.
    """
    document = read_document(text) if len(text) >= MIN_BYTES else None
    if document is None:
        document = _members(parse_json(text))
    plan = RequestPlan()
    plan.id = _string("id", document.get("id", ""))
    if "parameters" in document:
        if not isinstance(document["parameters"], dict):
            raise InvalidArgumentError("failed to get request params.: attempt to get members for non-object")
        _read_parameters(plan, document["parameters"], text)
    position = 0
    places = Places()
    inputs: dict[str, InputPlan] = {}
    entries = _array("inputs", _member(document, "inputs"))
    check_count("inputs", len(entries))
    for entry in entries:
        spec = _read_input(_members(entry), position, max_bytes, plan.id, inputs, places)
        position = spec[4]
        inputs[spec[0]] = spec
    plan.inputs = tuple(inputs.values())
    plan.binary_bytes = position
    entries = _array("outputs", document.get("outputs", []))
    check_count("outputs", len(entries))
    for entry in entries:
        name, plan.output_plans[name] = _read_output(_members(entry), plan.id, plan.output_plans, places)
    plan.outputs = tuple(plan.output_plans)
    if places.inputs or places.outputs:
        plan.places = places
    return plan


def _read_parameters(plan: RequestPlan, parameters: dict[str, Any], text: Buffer) -> None:
    check_count("parameters", len(parameters))
    if any(type(value) is float and abs(value) >= _LARGE for value in parameters.values()):
        parameters = exact_integers(text)["parameters"]  # an integer beyond 64 bits was read as a float
    custom: dict[str, ParameterValue] = {}
    priority = timeout = 0
    sequence: int | str = 0
    start = end = False
    for key, value in parameters.items():
        match key:
            case "sequence_id":
                sequence = _sequence_id(value)
            case "sequence_start":
                start = _boolean(key, value)
            case "sequence_end":
                end = _boolean(key, value)
            case "priority":
                priority = _unsigned(key, value)
            case "timeout":
                timeout = _unsigned(key, value)
            case "binary_data_output":
                plan.unlisted = OutputPlan(_boolean(key, value))
            case _:
                custom[key] = _custom_value(key, value)
    plan.parameters = custom or None
    if priority or timeout or sequence != 0 or start or end:
        plan.scheduling = Scheduling(priority, timeout, sequence, start, end)


def _custom_value(key: str, value: object) -> ParameterValue:
    if key.startswith(RESERVED_PREFIX):
        msg = (
            f"parameter keys starting with '{RESERVED_PREFIX}' are reserved for Triton usage "
            f"and should not be specified."
        )
        raise InvalidArgumentError(msg)
    if not isinstance(value, str | int | float):  # a boolean is an int to Python
        msg = f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
        raise InvalidArgumentError(msg)
    check_integer(key, value)
    return value


def check_integer(key: str, value: float | str) -> None:
    """Raise if a parameter is an integer beyond 64 bits, which tritonserver would change to a double.

    Raises:
        InvalidArgumentError: it is.
    """
    if isinstance(value, int) and value not in _INT64:
        msg = (
            f"parameter '{key}' is out of range: {shortened(value)}, expected an integer from {_INT64[0]} to "
            f"{_INT64[-1]}, or a string"
        )
        raise InvalidArgumentError(msg)


def _sequence_id(value: object) -> int | str:
    if _is_unsigned(value):
        return value
    text = _string("sequence_id", value)
    if len(text.encode()) > _SEQUENCE_ID_BYTES:
        msg = f"string correlation ID cannot be longer than {_SEQUENCE_ID_BYTES} characters"
        raise UnsupportedError(msg)
    return text


def _read_input(
    entry: dict[str, Any],
    position: int,
    max_bytes: int,
    identifier: str,
    before: Container[str],
    places: Places,
) -> InputPlan:
    """One input.

    Args:
        entry: its JSON.
        position: where its bytes begin if they are binary.
        max_bytes: it may not be larger.
        identifier: the request's, "" for none.
        before: names of the inputs before it.
        places: takes where it is, if it is in a region.
    """
    parameters = _members(entry.get("parameters"))
    given = [f"'{field}'" for field in ("binary_data_size", "shared_memory_region") if field in parameters]
    if "data" in entry:
        given.insert(0, "'data'")
    if len(given) != 1:
        msg = (
            f"Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
            f"'shared_memory_region' in 'parameters'. But {'set ' + ' '.join(given) if given else 'no field is set'}"
        )
        raise InvalidArgumentError(msg)
    name = _string("name", _member(entry, "name"))
    datatype_name = _string("datatype", _member(entry, "datatype"))
    shape = _read_shape(name, entry)
    if name in before:
        raise InvalidArgumentError(request_prefix(identifier) + already_there("input", name))
    datatype = BY_NAME.get(datatype_name)
    if datatype is None:
        msg = f"invalid datatype for input {name}: '{datatype_name}' is none of {', '.join(BY_NAME)}"
        raise InvalidArgumentError(msg)
    if "data" in entry:
        tensor = tensor_from_json(name, datatype, shape, entry["data"], max_bytes)
        return name, datatype, shape, position, position, tensor
    element_count(name, shape, datatype)
    if "shared_memory_region" in parameters:
        places.inputs[name] = _read_place(parameters)
        return name, datatype, shape, position, position, Tensor(datatype, shape, b"")
    size = _unsigned("binary_data_size", parameters["binary_data_size"])
    return name, datatype, shape, position, position + size, None


def _read_shape(name: str, entry: dict[str, Any]) -> tuple[int, ...]:
    shape = _array("shape", _member(entry, "shape"))
    check_rank(name, shape)
    for index, size in enumerate(shape):
        if not _is_unsigned(size):
            msg = (
                f"Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer: dimension "
                f"{index} of input '{name}' is {shortened(size)}, expected an integer from 0 to {UINT64_MAX}"
            )
            raise InvalidArgumentError(msg)
    return tuple(shape)


def _read_place(parameters: dict[str, Any]) -> Place:
    offset, size = "shared_memory_offset", "shared_memory_byte_size"
    return Place(
        _string("shared_memory_region", parameters["shared_memory_region"]),
        _unsigned(offset, parameters.get(offset, 0)),
        _unsigned(size, parameters.get(size, 0)),
    )


def _read_output(
    entry: dict[str, Any], identifier: str, before: Container[str], places: Places
) -> tuple[str, OutputPlan]:
    """One output that is wanted.

    Args:
        entry: its JSON.
        identifier: the request's, "" for none.
        before: names of the outputs before it.
        places: takes where it is to be put, if that is in a region.
    """
    name = _string("name", _member(entry, "name"))
    if name in before:
        raise InvalidArgumentError(request_prefix(identifier) + already_there("output", name))
    parameters = _members(entry.get("parameters"))
    binary = _boolean("binary_data", parameters.get("binary_data", False))
    classes = parameters.get("classification", 0)
    if not _is_unsigned(classes):
        msg = (
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer"
        )
        raise InvalidArgumentError(msg)
    if "shared_memory_region" in parameters:
        if "classification" in parameters:
            raise InvalidArgumentError("Output can't set both 'shared_memory_region' and 'classification'")
        if binary:
            raise InvalidArgumentError("Output can't set both 'shared_memory_region' and 'binary_data'")
        places.outputs[name] = _read_place(parameters)
        return name, OutputPlan(binary=False, placed=True)
    return name, OutputPlan(binary, classes)


def _member(document: dict[str, Any], key: str) -> object:
    if key not in document:
        msg = f"Unable to parse '{key}': attempt to access non-existing object member '{key}'"
        raise InvalidArgumentError(msg)
    return document[key]


def _wrong_type(key: str, words: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"Unable to parse '{key}': attempt to access JSON {words}")


def _string(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong_type(key, "non-string as string")
    return value


def _boolean(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type(key, "non-boolean as boolean")
    return value


def _is_unsigned(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= UINT64_MAX


def _unsigned(key: str, value: object) -> int:
    if not _is_unsigned(value):
        raise _wrong_type(key, "non-unsigned-integer as unsigned-integer")
    return value


def _array(key: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong_type(key, "non-array as array")
    return value


def _members(value: object) -> dict[str, Any]:
    """The members of an object; what is none has none, as for tritonserver."""
    return value if isinstance(value, dict) else {}
