"""From the engine's response to the bytes of a ModelInferResponse, without copying a tensor.

What does not change from one response to the next (model, names, datatypes, shapes, the lengths of the tensors)
is written by protobuf once and remembered; a response is then a list of buffers, tensors as views among them.
Fields of a message may come in any order, so the id and the parameters, which do change, go first.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from halimede.core.datatypes import Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import NamedTensors, ParameterValue
from halimede.core.tensors import Buffer
from halimede.frontends.classification import classify
from halimede.frontends.grpc.codec_parameters import FINAL_RESPONSE, write_parameters
from halimede.frontends.grpc.codec_wire import field_head, total_length
from halimede.frontends.grpc.kserve_pb2 import ModelInferResponse, ModelStreamInferResponse

_LARGEST_RESPONSE: Final = (1 << 31) - 1

# Field numbers of ModelInferResponse and ModelStreamInferResponse
_ID: Final = 3
_RAW: Final = 6
_INFER_RESPONSE: Final = 2


class ResponseLayout:
    """The bytes of the last response that do not change while its outputs keep names, datatypes, shapes and sizes.

    Attributes:
        version: the model's version that it is of; 0 before the first response.
        outputs: (name, datatype, shape, bytes) of each output.
        frames: what stands before each output's data; with no outputs, the whole message.
    """

    __slots__ = ("frames", "outputs", "version")

    def __init__(self) -> None:
        self.version = 0
        self.outputs: list[tuple[str, Datatype, tuple[int, ...], int]] = []
        self.frames: list[bytes] = []

    def parts(self, model_name: str, version: int, outputs: NamedTensors) -> list[Buffer]:
        """A ModelInferResponse without id and parameters, as buffers to be sent one after the other.

        Args:
            model_name: the model.
            version: its version.
            outputs: (name, tensor) of each output.

        Raises:
            InvalidArgumentError: it is larger than a message may be.
        """
        if self.version == version and len(outputs) == len(self.outputs):
            parts: list[Buffer] = []
            for (name, tensor), known, frame in zip(outputs, self.outputs, self.frames, strict=False):
                data = tensor.data
                if (name, tensor.datatype, tensor.shape, len(data)) != known:
                    break
                parts += (frame, data)
            else:
                return parts or [self.frames[0]]
        self._fit(model_name, version, outputs)
        if not outputs:
            return [self.frames[0]]
        return [
            part
            for frame, (_, tensor) in zip(self.frames, outputs, strict=True)
            for part in (frame, tensor.data)
        ]

    def _fit(self, model_name: str, version: int, outputs: NamedTensors) -> None:
        """Make this the layout of a response with these outputs."""
        known = [(name, tensor.datatype, tensor.shape, len(tensor.data)) for name, tensor in outputs]
        head = ModelInferResponse(model_name=model_name, model_version=str(version))
        for name, datatype, shape, _ in known:
            head.outputs.add(name=name, datatype=datatype.name, shape=shape)
        frames = [field_head(_RAW, size) for *_, size in known] or [b""]
        frames[0] = head.SerializeToString() + frames[0]
        size = total_length(frames) + sum(size for *_, size in known)
        if size > _LARGEST_RESPONSE:
            msg = f"Response has byte size {size} which exceeds gRPC's byte size limit {_LARGEST_RESPONSE}."
            raise InvalidArgumentError(msg)
        self.version, self.outputs, self.frames = version, known, frames


def encode_extras(identifier: str, parameters: Mapping[str, ParameterValue] | None) -> bytes:
    """Id and parameters of a response, as its first bytes."""
    encoded = b""
    if identifier:
        content = identifier.encode()
        encoded = field_head(_ID, len(content)) + content
    if parameters:
        message = ModelInferResponse()
        write_parameters(message.parameters, parameters)
        encoded += message.SerializeToString()
    return encoded


_FINAL: Final = encode_extras("", {FINAL_RESPONSE: True})
_NOT_FINAL: Final = encode_extras("", {FINAL_RESPONSE: False})


def stream_parts(parts: Sequence[Buffer], *, final: bool) -> list[Buffer]:
    """A ModelStreamInferResponse around the parts of a response, which is said to be the last one or not."""
    flag = _FINAL if final else _NOT_FINAL
    return [field_head(_INFER_RESPONSE, len(flag) + total_length(parts)) + flag, *parts]


def refusal(message: str, identifier: str) -> bytes:
    """A ModelStreamInferResponse that tells that the request `identifier` was not taken."""
    return ModelStreamInferResponse(
        error_message=message, infer_response=ModelInferResponse(id=identifier)
    ).SerializeToString()


def stream_error(message: str, identifier: str, model_name: str, version_text: str, *, final: bool) -> bytes:
    """A ModelStreamInferResponse with an error for a response, which is said to be the last one or not.

    Args:
        message: the error's text.
        identifier: the request's id.
        model_name: the model.
        version_text: the version as the request gave it.
        final: whether it is the last response.
    """
    response = ModelInferResponse(model_name=model_name, model_version=version_text, id=identifier)
    response.parameters[FINAL_RESPONSE].bool_param = final
    return ModelStreamInferResponse(error_message=message, infer_response=response).SerializeToString()


def stream_empty_final(model_name: str, version_text: str, identifier: str) -> list[Buffer]:
    """A ModelStreamInferResponse that only tells that the request is over.

    Args:
        model_name: the model.
        version_text: the version as the request gave it.
        identifier: the request's id.
    """
    head = ModelInferResponse(model_name=model_name, model_version=version_text, id=identifier)
    return stream_parts([head.SerializeToString()], final=True)


def with_classes(
    outputs: NamedTensors,
    classes: Mapping[str, int],
    labels: Mapping[str, Sequence[str]],
    *,
    batched: bool,
) -> NamedTensors:
    """The outputs, those that the client wants classified as their top classes.

    Args:
        outputs: (name, tensor) of each output.
        classes: output → how many classes of it are wanted.
        labels: output → labels of its classes.
        batched: the first dimension of the outputs is the batch's.

    Raises:
        InvalidArgumentError: the datatype has no order, or the tensor is too large.
    """
    return [
        (name, classify(tensor, classes[name], labels.get(name, ()), batched) if name in classes else tensor)
        for name, tensor in outputs
    ]
