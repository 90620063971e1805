"""What a ModelInferRequest says but for its id and its raw tensors, checked and ready to make requests of it."""

from collections.abc import Mapping

from halimede.core.datatypes import BY_NAME, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest, Respond
from halimede.core.tensors import Buffer, Tensor
from halimede.core.versions import parse_version
from halimede.frontends.grpc.codec_contents import contents_data
from halimede.frontends.grpc.codec_parameters import (
    read_classification,
    read_request_parameters,
    refuse_shared_memory,
)
from halimede.frontends.grpc.codec_response import ResponseLayout
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest


class RequestPlan:
    """All of a request but its id and raw tensors.

    Attributes:
        model_name: the model.
        version_text: the version as the client wrote it.
        model_version: the version, -1 for the highest that is ready.
        inputs: (name, datatype, shape) of each input, in order.
        contents: the inputs' data where it is not raw, else None.
        outputs: names of the outputs wanted, empty for all.
        classes: output → how many classes of it are wanted; empty for tensors only.
        parameters: the request's parameters, or None.
        layout: the response's bytes, remembered from the last request of this plan.
    """

    __slots__ = (
        "classes",
        "contents",
        "inputs",
        "layout",
        "model_name",
        "model_version",
        "outputs",
        "parameters",
        "version_text",
    )

    def __init__(self, message: ModelInferRequest, *, raw: bool) -> None:
        self.model_name: str = message.model_name
        self.version_text: str = message.model_version
        self.model_version = parse_version(message.model_version)
        self.parameters = read_request_parameters(message.parameters) if message.parameters else None
        self.inputs = _read_inputs(message)
        self.contents = None if raw else _read_contents(message, self.inputs)
        if raw:
            _refuse_contents(message)
        self.classes: dict[str, int] = {}
        names: dict[str, None] = {}
        for output in message.outputs:
            if output.name in names:
                raise InvalidArgumentError(f"output '{output.name}' already exists in request")
            names[output.name] = None
            count = read_classification(output.name, output.parameters) if output.parameters else 0
            if count:
                self.classes[output.name] = count
        self.outputs = tuple(names)
        self.layout = ResponseLayout()

    def request(
        self,
        identifier: str,
        tensors: list[memoryview],
        respond: Respond,
        received_ns: int,
        forwarded: Mapping[str, str] | None,
    ) -> InferRequest:
        """A request of this plan.

        Args:
            identifier: the client's identifier.
            tensors: the raw tensors, one an input, or empty if the plan has their contents.
            respond: where responses go.
            received_ns: when the request was complete.
            forwarded: headers that become parameters, or None.

        Raises:
            InvalidArgumentError: not as many tensors as inputs.
        """
        data: list[memoryview] | list[Buffer] = tensors if self.contents is None else self.contents
        if len(data) != len(self.inputs):
            raise self._wrong_count(len(data))
        inputs = {}
        for (name, datatype, shape), view in zip(self.inputs, data, strict=False):
            inputs[name] = Tensor(datatype, shape, view)
        request = InferRequest(
            self.model_name,
            inputs,
            respond,
            model_version=self.model_version,
            id=identifier,
            outputs=self.outputs,
            received_ns=received_ns,
        )
        parameters = self.parameters
        if parameters is not None:
            request.parameters = parameters.custom.copy() or None
            request.priority = parameters.priority
            request.timeout_us = parameters.timeout_us
            request.sequence_id = parameters.sequence_id
            request.sequence_start = parameters.sequence_start
            request.sequence_end = parameters.sequence_end
        if forwarded:
            request.parameters = {**(request.parameters or {}), **forwarded}
        return request

    def _wrong_count(self, count: int) -> InvalidArgumentError:
        if count < len(self.inputs):
            return _no_data(self.inputs[count][0], self.model_name)
        return InvalidArgumentError(
            f"expected {len(self.inputs)} entries in raw_input_contents, one for each input, "
            f"but got {count} for model '{self.model_name}'"
        )


def _read_inputs(message: ModelInferRequest) -> tuple[tuple[str, Datatype, tuple[int, ...]], ...]:
    inputs: dict[str, tuple[str, Datatype, tuple[int, ...]]] = {}
    for entry in message.inputs:
        name = entry.name
        if name in inputs:
            raise InvalidArgumentError(f"input '{name}' already exists in request")
        datatype = BY_NAME.get(entry.datatype)
        if datatype is None:
            msg = (
                f"input '{name}' for model '{message.model_name}' has unknown datatype '{entry.datatype}', "
                f"it should be one of {', '.join(BY_NAME)}"
            )
            raise InvalidArgumentError(msg)
        if entry.parameters:
            refuse_shared_memory("input", name, entry.parameters)
        inputs[name] = (name, datatype, tuple(entry.shape))
    return tuple(inputs.values())


def _read_contents(
    message: ModelInferRequest, inputs: tuple[tuple[str, Datatype, tuple[int, ...]], ...]
) -> list[Buffer]:
    """Every input's data, from its contents."""
    data = []
    for entry, (name, datatype, _) in zip(message.inputs, inputs, strict=True):
        if not entry.HasField("contents"):
            raise _no_data(name, message.model_name)
        data.append(contents_data(entry.contents, datatype, name, message.model_name))
    return data


def _refuse_contents(message: ModelInferRequest) -> None:
    for entry in message.inputs:
        if entry.HasField("contents"):
            msg = (
                f"contents field must not be specified when using raw_input_contents for '{entry.name}' "
                f"for model '{message.model_name}'"
            )
            raise InvalidArgumentError(msg)


def _no_data(name: str, model: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"unable to find data for input tensor '{name}' for model '{model}' in request."
    )
