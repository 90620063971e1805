"""Parameters of requests, of requested outputs and of responses: what types they may have, and what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.core.requests import ParameterValue
from halimede.frontends.grpc.kserve_pb2 import InferParameter
from halimede.frontends.shared_memory.registry import Place

FINAL_RESPONSE: Final = "triton_final_response"
EMPTY_FINAL_RESPONSE: Final = "triton_enable_empty_final_response"

_RESERVED: Final = "triton_"
_REGION: Final = "shared_memory_region"
_OFFSET: Final = "shared_memory_offset"
_BYTE_SIZE: Final = "shared_memory_byte_size"
_UINT64: Final = (1 << 64) - 1
_INT64_MAX: Final = (1 << 63) - 1
_LONGEST_SEQUENCE_ID: Final = 128

_EXPECTED: Final[Mapping[str, tuple[str, ...]]] = {
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
    EMPTY_FINAL_RESPONSE: ("bool_param",),
}
_CUSTOM: Final = ("bool_param", "int64_param", "string_param", "double_param")


@dataclass(slots=True)
class RequestParameters:
    """What the parameters of a request say.

    Attributes:
        custom: those that only the model understands.
        sequence_id: correlation id, 0 or "" for none.
        sequence_start, sequence_end: the first, the last request of its sequence.
        priority: 0 for the model's default.
        timeout_us: in microseconds, 0 for the model's default.
        empty_final: a decoupled request wants its end told even if there is nothing else to tell.
    """

    custom: dict[str, ParameterValue] = field(default_factory=dict)
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    priority: int = 0
    timeout_us: int = 0
    empty_final: bool = False


def read_request_parameters(parameters: Mapping[str, InferParameter]) -> RequestParameters:
    """The parameters of a request, sorted by what they mean.

    Raises:
        InvalidArgumentError: a reserved name, a wrong type or a negative priority.
        UnsupportedError: a correlation id that is too long.
    """
    found = RequestParameters()
    for name, parameter in parameters.items():
        if name.startswith(_RESERVED) and name != EMPTY_FINAL_RESPONSE:
            msg = (
                f"parameter keys starting with '{_RESERVED}' are reserved for Triton usage. "
                f"Only the following keys starting with '{_RESERVED}' are allowed: {EMPTY_FINAL_RESPONSE}"
            )
            raise InvalidArgumentError(msg)
        value = _value(name, parameter)
        match name:
            case "sequence_id":
                found.sequence_id = _sequence_id(value)
            case "sequence_start":
                found.sequence_start = bool(value)
            case "sequence_end":
                found.sequence_end = bool(value)
            case "priority":
                found.priority = int(value)
                if found.priority < 0:
                    raise InvalidArgumentError("invalid value for 'priority', expected value >= 0.")
            case "timeout":
                found.timeout_us = int(value) & _UINT64
            case "triton_enable_empty_final_response":
                found.empty_final = bool(value)
            case _:
                found.custom[name] = value
    return found


def read_output(name: str, parameters: Mapping[str, InferParameter]) -> tuple[int, Place | None]:
    """How many classes the client wants of output `name`, 0 for the tensor itself; and the region that it goes into.

    Raises:
        InvalidArgumentError: a wrong type, a count that is not positive, or classes in shared memory.
    """
    place = read_place(name, parameters)
    count = 0
    if "classification" in parameters:
        parameter = parameters["classification"]
        if not parameter.HasField("int64_param"):
            raise InvalidArgumentError(
                "invalid value type for 'classification' parameter, expected int64_param"
            )
        count = parameter.int64_param
        if count <= 0:
            raise InvalidArgumentError("invalid value for 'classification' parameter, expected >= 0")
        if place is not None:
            raise InvalidArgumentError("output can't set both 'shared_memory_region' and 'classification'")
    return count, place


def read_place(tensor: str, parameters: Mapping[str, InferParameter]) -> Place | None:
    """Where a tensor is that is said to be in shared memory; None for any other.

    Raises:
        InvalidArgumentError: the parameters of shared memory contradict each other or have a wrong type.
    """
    shared = _REGION in parameters
    if shared and not parameters[_REGION].HasField("string_param"):
        raise _wrong_tensor_type(_REGION, tensor, "string_param")
    for name in (_OFFSET, _BYTE_SIZE):
        if name not in parameters:
            continue
        if not shared:
            msg = f"'{name}' can not be specified without '{_REGION}' parameter for tensor '{tensor}'"
            raise InvalidArgumentError(msg)
        if not parameters[name].HasField("int64_param"):
            raise _wrong_tensor_type(name, tensor, "int64_param")
    if not shared:
        return None
    if _BYTE_SIZE not in parameters:
        msg = f"'{_BYTE_SIZE}' must be specified along with '{_REGION}' parameter for tensor '{tensor}'"
        raise InvalidArgumentError(msg)
    offset = parameters[_OFFSET].int64_param if _OFFSET in parameters else 0
    return Place(parameters[_REGION].string_param, offset, parameters[_BYTE_SIZE].int64_param)


def _wrong_tensor_type(name: str, tensor: str, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"invalid value type for '{name}' parameter for tensor '{tensor}', expected {expected}."
    )


def write_parameters(target: Mapping[str, InferParameter], parameters: Mapping[str, ParameterValue]) -> None:
    """Put response parameters into a message's map, each as the type that it has."""
    for name, value in parameters.items():
        parameter = target[name]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            if value > _INT64_MAX:
                parameter.uint64_param = value
            else:
                parameter.int64_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        else:
            parameter.string_param = value


def _value(name: str, parameter: InferParameter) -> ParameterValue:
    kind = parameter.WhichOneof("parameter_choice")
    expected = _EXPECTED.get(name, _CUSTOM)
    if kind is None or kind not in expected:
        words = "int64_param, bool_param, or string_param" if expected is _CUSTOM else " or ".join(expected)
        raise InvalidArgumentError(f"invalid value type for '{name}' parameter, expected {words}.")
    value: ParameterValue = getattr(parameter, kind)
    return value


def _sequence_id(value: ParameterValue) -> int | str:
    if not isinstance(value, str):
        return int(value) & _UINT64
    if len(value.encode()) > _LONGEST_SEQUENCE_ID:
        msg = f"string correlation ID cannot be longer than {_LONGEST_SEQUENCE_ID} characters"
        raise UnsupportedError(msg)
    return value
