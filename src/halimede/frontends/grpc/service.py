"""The methods that the gRPC port serves: KServe v2 with Triton's extensions, health, and reflection."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from halimede.core.errors import Code, HalimedeError, InvalidArgumentError, UnavailableError
from halimede.core.tasks import Tasks
from halimede.core.uploads import CodeUpload
from halimede.engine.engine import Engine
from halimede.frontends.decoders import Decoders
from halimede.frontends.grpc import health, reflection
from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.grpc.codec_request import RequestDecoder
from halimede.frontends.grpc.health_pb2 import HealthCheckRequest
from halimede.frontends.grpc.infer import ModelInfer
from halimede.frontends.grpc.log_settings import log_settings
from halimede.frontends.grpc.management import Management, parse_message, read_load_request
from halimede.frontends.grpc.shared_memory import SharedMemory
from halimede.frontends.grpc.stream import ModelStreamInfer
from halimede.frontends.grpc.trace_settings import trace_setting
from halimede.frontends.grpc.transport.call import Call, Method, StreamMethod, UnaryMethod
from halimede.frontends.load_request import LARGE as LARGE_LOAD
from halimede.frontends.log_settings import LogControl
from halimede.frontends.request_bounds import MAX_SMALL_BYTES
from halimede.frontends.request_log.log import RequestLog
from halimede.frontends.restrictions import HeaderPattern, Restriction
from halimede.frontends.shared_memory.registry import Regions

logger = logging.getLogger("halimede")

_SERVICE: Final = "/inference.GRPCInferenceService/"
_HEALTH: Final = "/grpc.health.v1.Health/"

Request = TypeVar("Request", bound=Message)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What the command line decides about the service.

    Attributes:
        server_id: the server's name in its metadata (`--id`).
        restrictions: group of methods → the metadata that open it (`--grpc-restricted-protocol`).
        forward_pattern: finds the metadata that become parameters (`--grpc-header-forward-pattern`).
        compression: zlib level of inference responses to clients that accept gzip, 0 for none
            (`--grpc-infer-response-compression-level`).
        log: the settings of the log, for `LogSettings`.
        code_upload: clients that may send files of models (`--allow-model-code-upload`).
        request_log: hears of each request of a stream; None for no such log.
        regions: clients' shared memory.
        decoders: decode large requests.
    """

    server_id: str = "triton"
    restrictions: Mapping[str, Restriction] = field(default_factory=dict)
    forward_pattern: HeaderPattern | None = None
    compression: int = 0
    log: LogControl = field(default_factory=LogControl)
    code_upload: CodeUpload = CodeUpload.LOOPBACK
    request_log: RequestLog | None = None
    regions: Regions = field(default_factory=Regions)
    decoders: Decoders = field(default_factory=Decoders)


def methods(engine: Engine, settings: ServiceSettings) -> dict[str, Method]:
    """Every method by its full path, for the transport."""
    management = Management(engine, settings.server_id)
    tasks = Tasks()
    decoder = RequestDecoder(settings.decoders)
    regions = settings.regions
    infer = ModelInfer(engine, decoder.decode, settings.forward_pattern, regions)
    stream = ModelStreamInfer(engine, decoder, settings.forward_pattern, regions, settings.request_log)
    served: dict[str, tuple[str, Method]] = {
        "ServerLive": ("health", _answering(pb.ServerLiveRequest, management.server_live)),
        "ServerReady": ("health", _answering(pb.ServerReadyRequest, management.server_ready)),
        "ModelReady": ("health", _answering_later(pb.ModelReadyRequest, management.model_ready, tasks)),
        "ServerMetadata": ("metadata", _answering(pb.ServerMetadataRequest, management.server_metadata)),
        "ModelMetadata": (
            "metadata",
            _answering_later(pb.ModelMetadataRequest, management.model_metadata, tasks),
        ),
        "ModelInfer": ("inference", UnaryMethod(infer, settings.compression)),
        "ModelStreamInfer": ("inference", StreamMethod(stream, settings.compression)),
        "ModelConfig": (
            "model-config",
            _answering_later(pb.ModelConfigRequest, management.model_config, tasks),
        ),
        "ModelStatistics": (
            "statistics",
            _answering_later(pb.ModelStatisticsRequest, management.model_statistics, tasks),
        ),
        "RepositoryIndex": (
            "model-repository",
            _answering_later(pb.RepositoryIndexRequest, management.repository_index, tasks),
        ),
        "RepositoryModelLoad": (
            "model-repository",
            _answering_later_to(partial(_load, management, settings.code_upload, settings.decoders), tasks),
        ),
        "RepositoryModelUnload": (
            "model-repository",
            _answering_later(pb.RepositoryModelUnloadRequest, management.unload, tasks),
        ),
        "LogSettings": ("logging", _answering(pb.LogSettingsRequest, partial(log_settings, settings.log))),
        "TraceSetting": ("trace", _answering(pb.TraceSettingRequest, partial(trace_setting, engine))),
        **_shared_memory(SharedMemory(regions)),
    }
    by_path = {_SERVICE + name: entry for name, entry in served.items()}
    check = _answering(HealthCheckRequest, partial(health.check, engine))
    by_path[_HEALTH + "Check"] = ("health", check)
    by_path[_HEALTH + "Watch"] = ("health", StreamMethod(health.HealthWatch(engine)))
    for path in reflection.PATHS:
        by_path[path] = ("metadata", StreamMethod(reflection.reflect))
    return {
        path: replace(
            _restricted(method, settings.restrictions[group]) if group in settings.restrictions else method,
            group=group,
        )
        for path, (group, method) in by_path.items()
    }


def _shared_memory(memory: SharedMemory) -> dict[str, tuple[str, Method]]:
    """The methods about regions, with their group."""
    served = {
        "SystemSharedMemoryStatus": _answering(pb.SystemSharedMemoryStatusRequest, memory.system_status),
        "SystemSharedMemoryRegister": _answering(
            pb.SystemSharedMemoryRegisterRequest, memory.register_system
        ),
        "SystemSharedMemoryUnregister": _answering(
            pb.SystemSharedMemoryUnregisterRequest, memory.unregister_system
        ),
        "CudaSharedMemoryStatus": _answering(pb.CudaSharedMemoryStatusRequest, memory.cuda_status),
        "CudaSharedMemoryRegister": _answering(pb.CudaSharedMemoryRegisterRequest, memory.register_cuda),
        "CudaSharedMemoryUnregister": _answering(
            pb.CudaSharedMemoryUnregisterRequest, memory.unregister_cuda
        ),
    }
    return {name: ("shared-memory", method) for name, method in served.items()}


def _answering(request: type[Request], answer: Callable[[Request], Message]) -> UnaryMethod:
    """A method that answers each call at once."""

    def handle(call: Call, message: memoryview) -> None:
        try:
            response = answer(_parse(request, message))
        except HalimedeError as error:
            call.finish(error.code.grpc_status, error.message)
        else:
            call.reply([response.SerializeToString()])

    return UnaryMethod(handle)


async def _load(
    management: Management, upload: CodeUpload, decoders: Decoders, message: memoryview, peer: str
) -> pb.RepositoryModelLoadResponse:
    """Load a model for a client that may send what it has sent."""
    if len(message) > LARGE_LOAD:
        request = await decoders.decode(read_load_request, message)
    else:
        request = read_load_request(message)
    request.check(upload, peer)
    return await management.load(request)


def _answering_later(
    request: type[Request],
    answer: Callable[[Request], Coroutine[Any, Any, Message]],
    tasks: Tasks,
) -> UnaryMethod:
    """A method that answers each call as `_answering_later_to`, whoever asks."""
    return _answering_later_to(lambda message, _peer: answer(_parse(request, message)), tasks)


def _answering_later_to(
    answer: Callable[[memoryview, str], Coroutine[Any, Any, Message]],
    tasks: Tasks,
) -> UnaryMethod:
    """A method that answers each call when a coroutine has done the work; it gets the message and the client's address.

    The work goes on when the client gives up: half a load would help nobody.
    """

    async def work(call: Call, message: memoryview) -> None:
        try:
            response = await answer(message, call.peer)
        except HalimedeError as error:
            call.finish(error.code.grpc_status, error.message)
        except Exception as error:
            logger.exception("%s failed", call.path)
            call.finish(Code.INTERNAL.grpc_status, f"the server failed: {error!r}")
        else:
            call.reply([response.SerializeToString()])

    def handle(call: Call, message: memoryview) -> None:
        tasks.start("answering a call", work(call, message))

    return UnaryMethod(handle)


def _parse(request: type[Request], message: memoryview) -> Request:
    """A message that is small, if it is right.

    Raises:
        InvalidArgumentError: it is not.
    """
    if len(message) > MAX_SMALL_BYTES:
        name = request.DESCRIPTOR.name
        raise InvalidArgumentError(f"a {name} has {len(message)} bytes, and the maximum is {MAX_SMALL_BYTES}")
    return parse_message(request, message)


def _restricted(method: Method, restriction: Restriction) -> Method:
    """The method, for calls with the metadata that open it."""
    refusal = UnavailableError(f"This protocol is restricted, expecting header '{restriction.name}'")

    def refused(call: Call) -> bool:
        if restriction.opened_by(call.metadata.get(restriction.header)):
            return False
        call.finish(refusal.code.grpc_status, refusal.message)
        return True

    if isinstance(method, UnaryMethod):
        answer = method.handler

        def handle(call: Call, message: memoryview) -> None:
            if not refused(call):
                answer(call, message)

        return UnaryMethod(handle, method.compression)
    serve = method.handler

    def begin(call: Call) -> None:
        if not refused(call):
            serve(call)

    return StreamMethod(begin, method.compression)
