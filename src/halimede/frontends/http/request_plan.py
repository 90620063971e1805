"""What the JSON of an inference request says: everything but the bytes of its binary tensors.

A plan holds nothing of one request alone, so that equal JSON needs to be read only once.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from halimede.core.datatypes import BY_NAME, Datatype
from halimede.core.errors import InternalError, InvalidArgumentError, UnsupportedError
from halimede.core.requests import ParameterValue
from halimede.core.tensors import Buffer, Tensor
from halimede.frontends.http.json_tensors import element_count, tensor_from_json
from halimede.frontends.http.json_text import parse_json
from halimede.frontends.http.response_layout import Layout
from halimede.frontends.restrictions import RESERVED_PREFIX

UINT64_MAX: Final = (1 << 64) - 1


InputPlan = tuple[str, Datatype, tuple[int, ...], int, int, Tensor | None]
"""Name, datatype and shape of an input; where its bytes begin and end after the JSON, or the tensor that came as
JSON. A plain tuple, since every request unpacks it."""


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """How one output is wanted: as bytes or as JSON; as its `classes` highest classes unless that is 0."""

    binary: bool
    classes: int = 0


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
        layout: what the last response to it looked like, None before the first.
    """

    __slots__ = (
        "binary_bytes",
        "id",
        "inputs",
        "layout",
        "output_plans",
        "outputs",
        "parameters",
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


def read_plan(text: Buffer, max_bytes: int) -> RequestPlan:
    """The plan that the JSON spells; no input in it may be larger than `max_bytes`.

    Raises:
        InvalidArgumentError, InternalError: it is not what the protocol describes.
        UnsupportedError: it asks for shared memory.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        raise InvalidArgumentError("failed to parse the request JSON buffer: the request is not an object")
    plan = RequestPlan()
    plan.id = _string("id", document.get("id", ""))
    if "parameters" in document:
        _read_parameters(plan, _object("parameters", document["parameters"]))
    position = 0
    inputs: dict[str, InputPlan] = {}
    for entry in _array("inputs", _member(document, "inputs")):
        spec = _read_input(_object("inputs", entry), position, max_bytes)
        name, *_, position, _tensor = spec
        if name in inputs:
            raise InvalidArgumentError(f"input '{name}' already exists in request")
        inputs[name] = spec
    plan.inputs = tuple(inputs.values())
    plan.binary_bytes = position
    for entry in _array("outputs", document.get("outputs", [])):
        name, output = _read_output(_object("outputs", entry))
        if name in plan.output_plans:
            raise InvalidArgumentError(f"output '{name}' already exists in request")
        plan.output_plans[name] = output
    plan.outputs = tuple(plan.output_plans)
    return plan


def _read_parameters(plan: RequestPlan, parameters: dict[str, Any]) -> None:
    custom: dict[str, ParameterValue] = {}
    priority = timeout = 0
    sequence: int | str = 0
    start = end = False
    for key, value in parameters.items():
        match key:
            case "sequence_id":
                sequence = value if isinstance(value, str) else _unsigned(key, value)
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
            case "headers":
                msg = "parameter key 'headers' is reserved for Triton usage and should not be specified."
                raise InvalidArgumentError(msg)
            case _:
                custom[key] = _custom_value(key, value)
    plan.parameters = custom or None
    if priority or timeout or sequence or start or end:
        plan.scheduling = Scheduling(priority, timeout, sequence, start, end)


def _custom_value(key: str, value: object) -> ParameterValue:
    if key.startswith(RESERVED_PREFIX):
        msg = (
            f"parameter keys starting with '{RESERVED_PREFIX}' are reserved for Triton usage "
            f"and should not be specified."
        )
        raise InvalidArgumentError(msg)
    if not isinstance(value, str | int | float):  # a boolean is an int to Python
        msg = f"parameter '{key}' has invalid type. It should be a string, an integer, a boolean or a double."
        raise InvalidArgumentError(msg)
    return value


def _read_input(entry: dict[str, Any], position: int, max_bytes: int) -> InputPlan:
    """One input, whose bytes begin at `position` if they are binary."""
    name = _string("name", _member(entry, "name"))
    datatype = BY_NAME.get(_string("datatype", _member(entry, "datatype")))
    if datatype is None:
        msg = f"input '{name}' has unknown datatype '{entry['datatype']}'; known are {', '.join(BY_NAME)}"
        raise InvalidArgumentError(msg)
    shape = _read_shape(entry)
    parameters = _object("parameters", entry.get("parameters", {}))
    given = [f"'{field}'" for field in ("binary_data_size", "shared_memory_region") if field in parameters]
    if "data" in entry:
        given.insert(0, "'data'")
    if len(given) != 1:
        msg = (
            f"Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
            f"'shared_memory_region' in 'parameters'. But {'set ' + ' '.join(given) if given else 'no field is set'}"
        )
        raise InvalidArgumentError(msg)
    if "data" in entry:
        tensor = tensor_from_json(name, datatype, shape, entry["data"], max_bytes)
        return name, datatype, shape, position, position, tensor
    if "shared_memory_region" in parameters:
        raise _no_shared_memory(f"input '{name}'")
    element_count(name, shape, datatype)
    size = _unsigned("binary_data_size", parameters["binary_data_size"])
    return name, datatype, shape, position, position + size, None


def _read_shape(entry: dict[str, Any]) -> tuple[int, ...]:
    shape = _array("shape", _member(entry, "shape"))
    for size in shape:
        if type(size) is not int or not 0 <= size <= UINT64_MAX:
            msg = "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"
            raise InternalError(msg)
    return tuple(shape)


def _read_output(entry: dict[str, Any]) -> tuple[str, OutputPlan]:
    name = _string("name", _member(entry, "name"))
    parameters = _object("parameters", entry.get("parameters", {}))
    binary = _boolean("binary_data", parameters.get("binary_data", False))
    classes = _unsigned("classification", parameters.get("classification", 0))
    if "shared_memory_region" in parameters:
        for other in ("classification", "binary_data"):
            if parameters.get(other):
                msg = f"output '{name}' can have either 'shared_memory_region' or '{other}', not both"
                raise InvalidArgumentError(msg)
        raise _no_shared_memory(f"output '{name}'")
    return name, OutputPlan(binary, classes)


def _no_shared_memory(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} uses shared memory, which this version does not support; use binary data"
    )


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


def _unsigned(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= UINT64_MAX:
        raise _wrong_type(key, "non-unsigned-integer as unsigned-integer")
    return value


def _array(key: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong_type(key, "non-array as array")
    return value


def _object(key: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong_type(key, "non-object as object")
    return value
