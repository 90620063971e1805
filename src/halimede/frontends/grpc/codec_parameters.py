"""Parameters of requests, of requested outputs and of responses: what types they may have, and what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.core.requests import ParameterValue
from halimede.frontends.grpc.kserve_pb2 import InferParameter

FINAL_RESPONSE: Final = "triton_final_response"
EMPTY_FINAL_RESPONSE: Final = "triton_enable_empty_final_response"

_RESERVED: Final = "triton_"
_SHARED_MEMORY: Final = "shared_memory_"
_UINT64: Final = (1 << 64) - 1
_INT64_MAX: Final = (1 << 63) - 1

_EXPECTED: Final[Mapping[str, tuple[str, ...]]] = {
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
    EMPTY_FINAL_RESPONSE: ("bool_param",),
    "classification": ("int64_param",),
    "shared_memory_region": ("string_param",),
    "shared_memory_byte_size": ("int64_param",),
    "shared_memory_offset": ("int64_param",),
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
        InvalidArgumentError: a reserved name, a wrong type or a negative number.
    """
    found = RequestParameters()
    for name, parameter in parameters.items():
        value = _value(name, parameter)
        match name:
            case "sequence_id":
                found.sequence_id = value if isinstance(value, str) else int(value) & _UINT64
            case "sequence_start":
                found.sequence_start = bool(value)
            case "sequence_end":
                found.sequence_end = bool(value)
            case "priority":
                found.priority = _not_negative(name, value)
            case "timeout":
                found.timeout_us = _not_negative(name, value)
            case "triton_enable_empty_final_response":
                found.empty_final = bool(value)
            case _ if name.startswith(_RESERVED):
                msg = (
                    f"parameter keys starting with '{_RESERVED}' are reserved for Triton usage and should not be "
                    f"specified. Only the following keys starting with '{_RESERVED}' are allowed: "
                    f"{EMPTY_FINAL_RESPONSE}"
                )
                raise InvalidArgumentError(msg)
            case _:
                found.custom[name] = value
    return found


def read_classification(name: str, parameters: Mapping[str, InferParameter]) -> int:
    """How many classes the client wants of output `name`; 0 for the tensor itself.

    Raises:
        InvalidArgumentError: a wrong type, or a count that is not positive.
        UnsupportedError: the output is wanted in shared memory.
    """
    refuse_shared_memory("output", name, parameters)
    if "classification" not in parameters:
        return 0
    count = int(_value("classification", parameters["classification"]))
    if count <= 0:
        msg = f"invalid value for 'classification' parameter of output '{name}', expected a value > 0, got {count}"
        raise InvalidArgumentError(msg)
    return count


def refuse_shared_memory(kind: str, name: str, parameters: Mapping[str, InferParameter]) -> None:
    """Raise if the tensor is said to be in shared memory.

    Args:
        kind: ``input`` or ``output``.
        name: the tensor.
        parameters: its parameters.

    Raises:
        InvalidArgumentError: a parameter of shared memory has a wrong type.
        UnsupportedError: shared memory is asked for.
    """
    for key, parameter in parameters.items():
        if key.startswith(_SHARED_MEMORY) and key in _EXPECTED:
            _value(key, parameter)
            msg = (
                f"{kind} '{name}' has parameter '{key}', but shared memory is not available in this version: "
                f"send and receive tensors in the messages"
            )
            raise UnsupportedError(msg)


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
        words = " or ".join([", ".join(expected[:-1]), expected[-1]] if len(expected) > 1 else expected)
        raise InvalidArgumentError(f"invalid value type for '{name}' parameter, expected {words}.")
    value: ParameterValue = getattr(parameter, kind)
    return value


def _not_negative(name: str, value: ParameterValue) -> int:
    number = int(value)
    if number < 0:
        raise InvalidArgumentError(
            f"invalid value for '{name}' parameter, expected a value >= 0, got {number}"
        )
    return number
