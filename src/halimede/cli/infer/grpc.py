"""A running server over gRPC, for which grpcio is needed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from halimede.cli.infer.remote import (
    RemoteError,
    RemoteModel,
    RemoteOutput,
    RemoteRequest,
    RemoteTensor,
    UnknownModelError,
)
from halimede.core.datatypes import BY_NAME, BYTES
from halimede.core.tensors import Tensor, encode_bytes
from halimede.frontends.grpc import kserve_pb2 as pb

_SERVICE = "/inference.GRPCInferenceService/"
_LARGEST_BYTES = (1 << 31) - 1


class GrpcRemote:
    """A running server.

    Args:
        target: its host and port.
        headers: sent with each call.
        timeout_s: how long an answer may take.
    """

    def __init__(self, target: str, headers: Mapping[str, str], timeout_s: float) -> None:
        try:
            import grpc
        except ModuleNotFoundError:
            raise RemoteError(
                "gRPC needs grpcio: pip install 'halimede[infer]'. Over HTTP nothing else is needed"
            ) from None
        self._error = grpc.RpcError
        self._unavailable = grpc.StatusCode.UNAVAILABLE
        self._not_found = grpc.StatusCode.NOT_FOUND
        sizes = [(f"grpc.max_{way}_message_length", _LARGEST_BYTES) for way in ("send", "receive")]
        self._channel = grpc.insecure_channel(target, options=sizes)
        self._target = target
        self._metadata = [(name.lower(), value) for name, value in headers.items()]
        self._timeout_s = timeout_s

    def model(self, name: str, version: str) -> RemoteModel:
        """What the model takes and gives."""
        metadata = self._call(
            "ModelMetadata", pb.ModelMetadataRequest(name=name, version=version), pb.ModelMetadataResponse
        )
        answer = self._call(
            "ModelConfig", pb.ModelConfigRequest(name=name, version=version), pb.ModelConfigResponse
        )
        optional = {each.name for each in answer.config.input if each.optional}
        return RemoteModel(
            name,
            tuple(_tensor(each, each.name in optional) for each in metadata.inputs),
            tuple(_tensor(each) for each in metadata.outputs),
            answer.config.model_transaction_policy.decoupled,
        )

    def models(self) -> list[str]:
        """The names of the models that there are."""
        index = self._call("RepositoryIndex", pb.RepositoryIndexRequest(), pb.RepositoryIndexResponse)
        return list(dict.fromkeys(each.name for each in index.models))

    def infer(self, request: RemoteRequest) -> Sequence[RemoteOutput]:
        """The outputs."""
        return _outputs(self._call("ModelInfer", _encode(request), pb.ModelInferResponse))

    def stream(self, request: RemoteRequest) -> Iterator[Sequence[RemoteOutput]]:
        """The outputs of each response, as they come."""
        call = self._channel.stream_stream(
            _SERVICE + "ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        try:
            for answer in call(iter([_encode(request)]), timeout=self._timeout_s, metadata=self._metadata):
                if answer.error_message:
                    raise RemoteError(answer.error_message)
                if answer.infer_response.outputs:
                    yield _outputs(answer.infer_response)
        except self._error as error:
            raise self._refusal(error) from None

    def _call(self, name: str, request: Any, response: Any) -> Any:
        call = self._channel.unary_unary(
            _SERVICE + name,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            return call(request, timeout=self._timeout_s, metadata=self._metadata)
        except self._error as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Any) -> RemoteError:
        if error.code() is self._unavailable and "unknown model" not in error.details():
            return RemoteError(
                f"no server answers at {self._target}: {error.details()}. Is `halimede serve` running there? "
                "--url says where it is"
            )
        unknown = error.code() is self._not_found or "unknown model" in error.details()
        return UnknownModelError(error.details()) if unknown else RemoteError(error.details())


def _tensor(message: Any, optional: bool = False) -> RemoteTensor:
    return RemoteTensor(message.name, BY_NAME[message.datatype], tuple(message.shape), optional)


def _encode(request: RemoteRequest) -> Any:
    message = pb.ModelInferRequest(model_name=request.model, model_version=request.version)
    for name, array in request.inputs.items():
        datatype = request.datatypes[name]
        message.inputs.add(name=name, datatype=datatype.name, shape=array.shape)
        message.raw_input_contents.append(
            encode_bytes(array.ravel().tolist()) if datatype is BYTES else array.tobytes()
        )
    for name in request.outputs:
        output = message.outputs.add(name=name)
        if request.classes:
            output.parameters["classification"].int64_param = request.classes
    for key, value in request.parameters.items():
        parameter = message.parameters[key]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            parameter.int64_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        else:
            parameter.string_param = value
    return message


def _outputs(response: Any) -> list[RemoteOutput]:
    return [
        RemoteOutput(each.name, each.datatype, Tensor(BY_NAME[each.datatype], tuple(each.shape), raw).array)
        for each, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    ]
