import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.override import ConfigOverride
from halimede.core import datatypes
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from halimede.core.requests import InferResponse
from halimede.core.tensors import Tensor, decode_bytes
from halimede.core.uploads import CodeUpload
from halimede.engine.statistics import ModelStatistics
from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.grpc.service import ServiceSettings, methods
from halimede.frontends.grpc.transport.call import StreamMethod, UnaryMethod
from halimede.frontends.log_settings import LogControl, LogSettings
from halimede.frontends.restrictions import (
    GRPC_HEADER_PREFIX,
    compile_forward_pattern,
    parse_restrictions,
)
from tests.frontends.grpc.service_fakes import (
    STREAM,
    FakeCall,
    FakeEngine,
    FakeModel,
    echo,
    infer_request,
    status_of,
)
from tests.support.batches import ran

PREFIX = "/inference.GRPCInferenceService/"


def ask(
    engine: FakeEngine,
    method: str,
    message: Any,
    settings: ServiceSettings | None = None,
    metadata: dict[str, str | bytes] | None = None,
    peer: str = "127.0.0.1",
) -> FakeCall:
    """Call a unary method; one that works in a task has finished it."""
    call = FakeCall(PREFIX + method, metadata)
    call.peer = peer
    handler = methods(engine, settings or ServiceSettings())[PREFIX + method]  # type: ignore[arg-type]  # a fake
    assert isinstance(handler, UnaryMethod)

    async def run() -> None:
        encoded = message if isinstance(message, bytes) else message.SerializeToString()
        handler.handler(call, memoryview(encoded))  # type: ignore[arg-type]  # a fake
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

    asyncio.run(run())
    return call


def failure(call: FakeCall) -> tuple[int | None, str]:
    assert not call.messages
    return call.status, call.text


# ModelInfer


def test_a_request_is_answered_with_its_id_and_the_models_version() -> None:
    call = ask(FakeEngine(FakeModel(version=3, answer=echo)), "ModelInfer", infer_request(identifier="r1"))

    response = pb.ModelInferResponse.FromString(call.messages[0])
    assert (response.model_name, response.model_version, response.id) == ("identity", "3", "r1")
    assert response.raw_output_contents[0] == np.array([1], np.float32).tobytes()
    assert call.status == 0


def test_response_parameters_are_sent() -> None:
    model = FakeModel(answer=lambda request: request.respond(InferResponse({}, {"reason": "stop"}), True))
    call = ask(FakeEngine(model), "ModelInfer", infer_request())

    response = pb.ModelInferResponse.FromString(call.messages[0])
    assert response.parameters["reason"].string_param == "stop"


def test_errors_of_the_model_are_the_status_of_the_call() -> None:
    error = InternalError("it broke")
    model = FakeModel(answer=lambda request: request.respond(InferResponse(error=error), True))

    assert failure(ask(FakeEngine(model), "ModelInfer", infer_request())) == (13, "it broke")


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (
            b"\xff",
            InvalidArgumentError,
            "Unable to parse request: it is not a valid ModelInferRequest message",
        ),
        (infer_request(model="x"), NotFoundError, "Request for unknown model: 'x' is not found"),
        (
            infer_request(version="9"),
            NotFoundError,
            "Request for unknown model: 'identity' version 9 is not found",
        ),
        (
            infer_request(version="0"),
            NotFoundError,
            "Request for unknown model: 'identity' version 0 is not found",
        ),
        (
            infer_request(version="-1"),
            InvalidArgumentError,
            "invalid model version specified '-1' , version should be an integral value > 0",
        ),
        (
            infer_request(version="x"),
            InvalidArgumentError,
            (
                "failed to get model version from specified version string 'x' (details: stol), "
                "version should be an integral value > 0"
            ),
        ),
        (
            infer_request(model="decoupled"),
            UnsupportedError,
            "ModelInfer RPC doesn't support models with decoupled transaction policy",
        ),
    ],
)
def test_requests_that_cannot_be_served_are_refused(
    message: Any, kind: type[HalimedeError], text: str
) -> None:
    engine = FakeEngine(FakeModel(), FakeModel("decoupled", decoupled=True))

    assert failure(ask(engine, "ModelInfer", message)) == (status_of(kind), text)


def test_cancelling_the_call_cancels_the_request() -> None:
    model = FakeModel()
    call = ask(FakeEngine(model), "ModelInfer", infer_request())
    assert call.status is None

    call.cancel()

    assert model.requests[0].cancelled
    assert call.messages == []


def test_an_answered_call_holds_no_tensor() -> None:
    call = ask(FakeEngine(FakeModel(answer=echo)), "ModelInfer", infer_request())

    assert call.on_cancel is None


def test_classification_gives_the_top_classes_with_labels() -> None:
    model = FakeModel(labels={"OUTPUT0": ["cat", "dog", "bird"]}, answer=echo, max_batch_size=4)
    request = infer_request(np.array([[1, 3, 2], [6, 5, 4]], np.float32).tobytes(), shape=(2, 3))
    request.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 2
    call = ask(FakeEngine(model), "ModelInfer", request)

    response = pb.ModelInferResponse.FromString(call.messages[0])
    assert (response.outputs[0].datatype, list(response.outputs[0].shape)) == ("BYTES", [2, 2])
    assert decode_bytes(response.raw_output_contents[0]) == [
        b"3.000000:1:dog",
        b"2.000000:2:bird",
        b"6.000000:0:cat",
        b"5.000000:1:dog",
    ]


def test_classification_of_what_has_no_order_is_refused() -> None:
    model = FakeModel(answer=echo, datatype=datatypes.BYTES)
    request = infer_request(b"\1\0\0\0a", datatype="BYTES")
    request.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 2

    status, text = failure(ask(FakeEngine(model), "ModelInfer", request))
    assert status == status_of(InvalidArgumentError)
    assert text == "class result not available for output due to unsupported type 'BYTES'"


def test_large_outputs_are_sent_as_they_are() -> None:
    data = memoryview(bytes(1 << 20))

    def answer(request: Any) -> None:
        request.respond(InferResponse({"OUTPUT0": Tensor(datatypes.UINT8, (1 << 20,), data)}), True)

    call = ask(FakeEngine(FakeModel(answer=answer)), "ModelInfer", infer_request())

    assert call.parts[0][-1] is data


def test_metadata_that_the_pattern_finds_become_parameters() -> None:
    model = FakeModel(answer=echo)
    settings = ServiceSettings(forward_pattern=compile_forward_pattern("^X-"))
    metadata: dict[str, str | bytes] = {"x-user": "me", "other": "no", "x-blob-bin": b"\xff"}
    request = infer_request()
    request.parameters["own"].bool_param = True
    ask(FakeEngine(model), "ModelInfer", request, settings, metadata)
    assert model.requests[0].parameters == {"own": True, "x-user": "me"}

    settings = ServiceSettings(forward_pattern=compile_forward_pattern("timeout"))
    call = ask(FakeEngine(model), "ModelInfer", request, settings, {"timeout": "3"})
    assert failure(call) == (3, "Header 'timeout' is reserved for Triton usage and cannot be forwarded.")


# Restrictions


def test_restricted_protocols_need_their_metadata() -> None:
    restrictions = parse_restrictions(["inference,health:Key=secret"], "protocol", GRPC_HEADER_PREFIX)
    settings = ServiceSettings(restrictions=restrictions)
    engine = FakeEngine(FakeModel(answer=echo))
    refusal = (14, "This protocol is restricted, expecting header 'triton-grpc-protocol-Key'")
    right: dict[str, str | bytes] = {"triton-grpc-protocol-key": "secret"}
    wrong: dict[str, str | bytes] = {"triton-grpc-protocol-key": "guess"}

    assert failure(ask(engine, "ModelInfer", infer_request(), settings)) == refusal
    assert failure(ask(engine, "ServerLive", pb.ServerLiveRequest(), settings, wrong)) == refusal
    assert ask(engine, "ModelInfer", infer_request(), settings, right).status == 0
    assert ask(engine, "ServerMetadata", pb.ServerMetadataRequest(), settings).status == 0

    served = methods(engine, settings)  # type: ignore[arg-type]  # a fake
    for path in (STREAM, "/grpc.health.v1.Health/Watch"):
        call = FakeCall(path)
        method = served[path]
        assert isinstance(method, StreamMethod)
        method.handler(call)  # type: ignore[arg-type]  # a fake
        assert failure(call) == refusal


# The other methods


def test_server_health() -> None:
    engine = FakeEngine()
    engine.lifecycle.ready = False

    live = ask(engine, "ServerLive", pb.ServerLiveRequest())
    ready = ask(engine, "ServerReady", pb.ServerReadyRequest())

    assert pb.ServerLiveResponse.FromString(live.messages[0]).live
    assert not pb.ServerReadyResponse.FromString(ready.messages[0]).ready


def test_model_readiness() -> None:
    async def model_ready(name: str, version: int) -> bool:
        if name != "m":
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return version in (-1, 2)

    engine = FakeEngine(model_ready=model_ready)
    for version, expected in (("", True), ("2", True), ("3", False)):
        call = ask(engine, "ModelReady", pb.ModelReadyRequest(name="m", version=version))
        assert pb.ModelReadyResponse.FromString(call.messages[0]).ready is expected

    call = ask(engine, "ModelReady", pb.ModelReadyRequest(name="n"))
    assert (call.messages, call.status) == ([pb.ModelReadyResponse(ready=False).SerializeToString()], 0)
    assert failure(ask(engine, "ModelReady", b"\xff"))[0] == 3


def test_server_metadata_names_the_server() -> None:
    call = ask(FakeEngine(), "ServerMetadata", pb.ServerMetadataRequest(), ServiceSettings("mine"))

    metadata = pb.ServerMetadataResponse.FromString(call.messages[0])
    assert metadata.name == "mine"
    assert "classification" in metadata.extensions


@pytest.fixture
def described() -> FakeEngine:
    """An engine with a model that can be described."""
    model: Any = FakeModel("m", version=2, max_batch_size=8)
    model.config = ModelConfig(name="m", backend="identity", max_batch_size=8)
    model.statistics = ModelStatistics()
    model.statistics.count_execution(ran(4, 1, 2, 3))
    engine = FakeEngine(model, versions=lambda _: [1, 2], loaded_models=lambda: [model])
    engine.lifecycle.find = engine.find
    return engine


def test_model_metadata(described: FakeEngine) -> None:
    call = ask(described, "ModelMetadata", pb.ModelMetadataRequest(name="m"))
    metadata = pb.ModelMetadataResponse.FromString(call.messages[0])
    assert (metadata.name, list(metadata.versions), metadata.platform) == ("m", ["1", "2"], "identity")
    assert [(entry.name, entry.datatype, list(entry.shape)) for entry in metadata.inputs] == [
        ("INPUT0", "FP32", [-1, -1])
    ]

    call = ask(described, "ModelMetadata", pb.ModelMetadataRequest(name="m", version="2"))
    assert list(pb.ModelMetadataResponse.FromString(call.messages[0]).versions) == ["2"]


def test_model_config(described: FakeEngine) -> None:
    call = ask(described, "ModelConfig", pb.ModelConfigRequest(name="m"))

    assert pb.ModelConfigResponse.FromString(call.messages[0]).config.max_batch_size == 8


def test_model_statistics(described: FakeEngine) -> None:
    for name in ("m", ""):
        call = ask(described, "ModelStatistics", pb.ModelStatisticsRequest(name=name))
        (statistics,) = pb.ModelStatisticsResponse.FromString(call.messages[0]).model_stats
        assert (statistics.name, statistics.version, statistics.inference_count) == ("m", "2", 4)
        assert statistics.batch_stats[0].batch_size == 4
        assert statistics.batch_stats[0].compute_infer.ns == 2

    call = ask(described, "ModelStatistics", pb.ModelStatisticsRequest(name="x"))
    assert failure(call) == (3, "requested model 'x' is not available")


def test_statistics_have_the_responses_of_decoupled_models_by_their_index(described: FakeEngine) -> None:
    (model,) = described.lifecycle.loaded_models()
    model.statistics.count_response(0, InferResponse(), 5, 3)
    model.statistics.count_response(1, InferResponse(error=InternalError("it broke")), 4, 2)
    model.statistics.count_response(2, None, 6, 0)

    call = ask(described, "ModelStatistics", pb.ModelStatisticsRequest(name="m"))
    (statistics,) = pb.ModelStatisticsResponse.FromString(call.messages[0]).model_stats
    first, second, third = (statistics.response_stats[index] for index in ("0", "1", "2"))
    assert (first.compute_infer.ns, first.compute_output.ns) == (5, 3)
    assert (first.success.count, first.success.ns) == (1, 8)
    assert (second.fail.count, second.fail.ns) == (1, 6)
    assert (third.empty_response.count, third.empty_response.ns, third.compute_output.count) == (1, 6, 0)


@dataclass
class Row:
    name: str
    version: str | None = None
    state: str = ""
    reason: str = ""


def test_repository_index() -> None:
    rows = [Row("a", "1", "READY"), Row("b", "1", "UNAVAILABLE", "unloaded"), Row("c")]
    refreshed = []

    async def refresh() -> None:
        refreshed.append(True)

    engine = FakeEngine(refresh=refresh, index=lambda ready: rows[:1] if ready else rows)

    call = ask(engine, "RepositoryIndex", pb.RepositoryIndexRequest())
    models = pb.RepositoryIndexResponse.FromString(call.messages[0]).models
    assert [(model.name, model.version, model.state, model.reason) for model in models] == [
        ("a", "1", "READY", ""),
        ("b", "1", "UNAVAILABLE", "unloaded"),
        ("c", "", "", ""),
    ]
    call = ask(engine, "RepositoryIndex", pb.RepositoryIndexRequest(ready=True))
    assert len(pb.RepositoryIndexResponse.FromString(call.messages[0]).models) == 1
    assert len(refreshed) == 2


@pytest.fixture
def repository() -> FakeEngine:
    """An engine that writes down what is loaded and unloaded."""
    done: list[Any] = []

    async def load(name: str, parameters: dict[str, str | bytes]) -> None:
        if name == "missing":
            raise UnavailableError("no such model")
        if name == "broken":
            raise RuntimeError("a bug")
        done.append(("load", name, parameters))

    async def unload(name: str, dependents: bool) -> None:
        done.append(("unload", name, dependents))

    return FakeEngine(load=load, unload=unload, done=done)


def test_models_are_loaded_with_overrides(repository: FakeEngine) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="m")
    request.parameters["config"].string_param = "{}"
    request.parameters["file:1/model.onnx"].bytes_param = b"\0"

    call = ask(repository, "RepositoryModelLoad", request)

    assert (call.messages, call.status) == ([b""], 0)
    parameters = {"config": ConfigOverride("{}"), "file:1/model.onnx": b"\0"}
    assert repository.lifecycle.done == [("load", "m", parameters)]


@pytest.mark.parametrize(
    ("upload", "peer", "needed"),
    [(CodeUpload.LOOPBACK, "10.0.0.2", "=all"), (CodeUpload.NONE, "127.0.0.1", "=loopback")],
)
def test_code_of_a_stranger_is_not_loaded(
    repository: FakeEngine, upload: CodeUpload, peer: str, needed: str
) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="m")
    request.parameters["config"].string_param = "{}"
    request.parameters["file:1/model.py"].bytes_param = b"code"

    settings = ServiceSettings(code_upload=upload)
    status, text = failure(ask(repository, "RepositoryModelLoad", request, settings, peer=peer))

    assert status == 7
    assert f"--allow-model-code-upload{needed}" in text
    assert repository.lifecycle.done == []


def test_a_stranger_may_load_what_lies_in_the_repository(repository: FakeEngine) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="m")
    settings = ServiceSettings(code_upload=CodeUpload.NONE)
    assert ask(repository, "RepositoryModelLoad", request, settings, peer="10.0.0.2").status == 0


def test_models_are_unloaded(repository: FakeEngine) -> None:
    request = pb.RepositoryModelUnloadRequest(model_name="m")
    ask(repository, "RepositoryModelUnload", request)
    request.parameters["unload_dependents"].bool_param = True
    ask(repository, "RepositoryModelUnload", request)

    assert repository.lifecycle.done == [("unload", "m", False), ("unload", "m", True)]


def test_a_failed_load_says_why(repository: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    call = ask(repository, "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="missing"))
    assert failure(call) == (14, "no such model")

    call = ask(repository, "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="broken"))
    assert failure(call) == (13, "the server failed: RuntimeError('a bug')")
    assert "RepositoryModelLoad failed" in caplog.text


@pytest.mark.parametrize(
    ("name", "field", "text"),
    [
        ("config", "bytes_param", "invalid value type for load parameter 'config', expected string_param."),
        (
            "file:1/x",
            "string_param",
            "invalid value type for load parameter 'file:1/x', expected bytes_param.",
        ),
        ("other", "string_param", "unrecognized load parameter 'other'."),
    ],
)
def test_wrong_load_parameters_are_refused(repository: FakeEngine, name: str, field: str, text: str) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="m")
    setattr(request.parameters[name], field, "x" if field == "string_param" else b"x")

    assert failure(ask(repository, "RepositoryModelLoad", request)) == (3, text)


def test_wrong_unload_parameters_are_refused(repository: FakeEngine) -> None:
    request = pb.RepositoryModelUnloadRequest(model_name="m")
    request.parameters["unload_dependents"].string_param = "yes"
    text = "invalid value type for 'unload_dependents' parameter, expected bool_param."
    assert failure(ask(repository, "RepositoryModelUnload", request)) == (3, text)


def test_unknown_unload_parameters_are_ignored(repository: FakeEngine) -> None:
    request = pb.RepositoryModelUnloadRequest(model_name="m")
    request.parameters["config"].string_param = "{}"
    request.parameters["x"].bool_param = True

    assert ask(repository, "RepositoryModelUnload", request).status == 0
    assert repository.lifecycle.done == [("unload", "m", False)]


def test_repositories_have_no_names(repository: FakeEngine) -> None:
    for method, request in (
        ("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="r")),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(repository_name="r", model_name="m")),
        ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(repository_name="r", model_name="m")),
    ):
        assert failure(ask(repository, method, request)) == (
            12,
            "'repository_name' specification is not supported",
        )


def log_request(**settings: bool | int | str | None) -> pb.LogSettingsRequest:
    request = pb.LogSettingsRequest()
    for name, value in settings.items():
        setting = request.settings[name]
        if isinstance(value, bool):
            setting.bool_param = value
        elif isinstance(value, int):
            setting.uint32_param = value
        elif value is not None:
            setting.string_param = value
    return request


def test_log_settings_are_read() -> None:
    call = ask(FakeEngine(), "LogSettings", log_request())

    settings = pb.LogSettingsResponse.FromString(call.messages[0]).settings
    assert {name: MessageToDict(value) for name, value in settings.items()} == {
        "log_file": {"stringParam": ""},
        "log_info": {"boolParam": True},
        "log_warning": {"boolParam": True},
        "log_error": {"boolParam": True},
        "log_verbose_level": {"uint32Param": 0},
        "log_format": {"stringParam": "default"},
    }


def test_log_settings_are_changed_and_told_as_they_are_then() -> None:
    applied: list[LogSettings] = []
    control = LogControl(apply=applied.append)
    request = log_request(log_info=False, log_verbose_level=2, log_format="ISO8601", unknown="x")
    call = ask(FakeEngine(), "LogSettings", request, ServiceSettings(log=control))

    settings = pb.LogSettingsResponse.FromString(call.messages[0]).settings
    assert not settings["log_info"].bool_param
    assert (settings["log_verbose_level"].uint32_param, settings["log_format"].string_param) == (2, "ISO8601")
    assert applied == [LogSettings(info=False, verbose=2, format="ISO8601")]


@pytest.mark.parametrize(
    ("settings", "status", "text"),
    [
        ({"log_info": 1}, 3, "expect boolean for 'log_info'"),
        ({"log_warning": "true"}, 3, "expect boolean for 'log_warning'"),
        ({"log_error": None}, 3, "expect boolean for 'log_error'"),
        ({"log_verbose_level": True}, 3, "expect int32 for 'log_verbose_level'"),
        ({"log_format": 1}, 3, "expect string for 'log_format'"),
        ({"log_format": "x"}, 3, "invalid argument for log_format, got: x"),
        ({"log_file": 1}, 12, "log file location can not be updated through network protocol"),
        (
            {"log_file": "f", "log_info": 1},
            12,
            "log file location can not be updated through network protocol",
        ),
    ],
)
def test_wrong_log_settings_are_refused_and_change_nothing(
    settings: dict[str, bool | int | str | None], status: int, text: str
) -> None:
    control = LogControl()
    request = log_request(**{"log_error": False, **settings})

    assert failure(ask(FakeEngine(), "LogSettings", request, ServiceSettings(log=control))) == (status, text)
    assert control.settings == LogSettings()


def test_every_method_of_the_protocol_is_served() -> None:
    served = methods(FakeEngine(), ServiceSettings())  # type: ignore[arg-type]  # a fake
    names = [method.name for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]

    assert {PREFIX + name for name in names} <= served.keys()
