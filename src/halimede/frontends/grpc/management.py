"""Every unary method of the service but ModelInfer: health, metadata, configuration, statistics, repository."""

from collections.abc import Mapping
from typing import Final, TypeVar

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message

from halimede.core.errors import InvalidArgumentError, NotFoundError, NotLoadedError, UnsupportedError
from halimede.core.tensors import Buffer
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends import descriptions
from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.grpc.versions import parse_version
from halimede.frontends.load_request import LoadRequest
from halimede.frontends.steps_of_work import in_steps, taken

Parsed = TypeVar("Parsed", bound=Message)

_STATISTICS_A_STEP: Final = 5


class Management:
    """Answers to requests about the server and its models."""

    def __init__(self, engine: Engine, server_id: str) -> None:
        self._engine = engine
        self._lifecycle = engine.lifecycle
        self._server_id = server_id

    def server_live(self, _request: pb.ServerLiveRequest) -> pb.ServerLiveResponse:
        """Whether the server has started."""
        return pb.ServerLiveResponse(live=self._lifecycle.live)

    def server_ready(self, _request: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        """Whether the server is ready for inference."""
        return pb.ServerReadyResponse(ready=self._lifecycle.ready)

    async def model_ready(self, request: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        """Whether a model is ready for inference; one that there is not is not."""
        version = parse_version(request.version)
        try:
            ready = await self._lifecycle.model_ready(request.name, version)
        except NotFoundError:
            ready = False
        return pb.ModelReadyResponse(ready=ready)

    def server_metadata(self, _request: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        """The server's name, version and extensions."""
        return pb.ServerMetadataResponse(**descriptions.server_metadata(self._server_id))

    async def model_metadata(self, request: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        """A model's versions, inputs and outputs."""
        version = parse_version(request.version)
        await self._find(request.name, version)
        metadata = descriptions.model_metadata(self._lifecycle, request.name, version)
        return ParseDict(metadata, pb.ModelMetadataResponse())

    async def model_config(self, request: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        """A model's complete configuration."""
        model = await self._find(request.name, parse_version(request.version))
        return pb.ModelConfigResponse(config=model.config)

    async def _find(self, name: str, version: int) -> ServedModel:
        """The model, after it was loaded if need be."""
        try:
            return self._engine.find(name, version)
        except NotLoadedError:
            return await self._engine.demand(name, version)

    async def model_statistics(self, request: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        """What is counted of a model, of one of its versions, or, without a name, of all."""
        version = parse_version(request.version)
        models = descriptions.models_for_statistics(self._lifecycle, request.name, version)
        statistics = await taken(in_steps(models, _statistics, _STATISTICS_A_STEP))
        return pb.ModelStatisticsResponse(model_stats=statistics)

    async def repository_index(self, request: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        """The models that there are, loaded or not, in all repositories."""
        if request.repository_name:
            raise _no_repositories()
        await self._lifecycle.refresh()
        response = pb.RepositoryIndexResponse()
        for row in self._lifecycle.index(request.ready):
            response.models.add(name=row.name, version=row.version or "", state=row.state, reason=row.reason)
        return response

    async def load(self, request: LoadRequest) -> pb.RepositoryModelLoadResponse:
        """Load a model, or load it anew; returns when that is done."""
        await self._lifecycle.load(request.name, request.parameters)
        return pb.RepositoryModelLoadResponse()

    async def unload(self, request: pb.RepositoryModelUnloadRequest) -> pb.RepositoryModelUnloadResponse:
        """Begin to unload a model."""
        if request.repository_name:
            raise _no_repositories()
        await self._lifecycle.unload(request.model_name, _unload_dependents(request.parameters))
        return pb.RepositoryModelUnloadResponse()


def read_load_request(message: Buffer) -> LoadRequest:
    """The request that a RepositoryModelLoadRequest spells.

    Raises:
        HalimedeError: it is no such message, names a repository, or has another parameter.
    """
    request = parse_message(pb.RepositoryModelLoadRequest, message)
    if request.repository_name:
        raise _no_repositories()
    return LoadRequest.of(request.model_name, _load_parameters(request.parameters))


def parse_message(kind: type[Parsed], message: Buffer) -> Parsed:
    """The message.

    Raises:
        InvalidArgumentError: the bytes are no such message.
    """
    try:
        return kind.FromString(bytes(message))
    except DecodeError:
        msg = f"Unable to parse request: it is not a valid {kind.DESCRIPTOR.name} message"
        raise InvalidArgumentError(msg) from None


def _load_parameters(parameters: Mapping[str, pb.ModelRepositoryParameter]) -> dict[str, str | bytes]:
    found: dict[str, str | bytes] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if name == "config":
            if kind != "string_param":
                raise _wrong_type(name, "string_param")
            found[name] = parameter.string_param
        elif name.startswith("file:"):
            if kind != "bytes_param":
                raise _wrong_type(name, "bytes_param")
            found[name] = parameter.bytes_param
        else:
            raise InvalidArgumentError(f"unrecognized load parameter '{name}'.")
    return found


def _statistics(model: ServedModel) -> pb.ModelStatistics:
    return ParseDict(descriptions.statistics(model), pb.ModelStatistics())


def _unload_dependents(parameters: Mapping[str, pb.ModelRepositoryParameter]) -> bool:
    """Whether to unload what the model is made of, too; other parameters are ignored."""
    if "unload_dependents" not in parameters:
        return False
    parameter = parameters["unload_dependents"]
    if not parameter.HasField("bool_param"):
        msg = "invalid value type for 'unload_dependents' parameter, expected bool_param."
        raise InvalidArgumentError(msg)
    return parameter.bool_param


def _wrong_type(name: str, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"invalid value type for load parameter '{name}', expected {expected}.")


def _no_repositories() -> UnsupportedError:
    return UnsupportedError("'repository_name' specification is not supported")
