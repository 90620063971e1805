"""The service as real clients see it: grpcio and tritonclient, over sockets, with the real transport and engine."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from halimede.backends.testing import identity
from halimede.core.clock import LoopClock
from halimede.engine.engine import Engine
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode, EngineSettings
from halimede.engine.tracing.settings import TraceConfig
from halimede.frontends.grpc.health_pb2 import HealthCheckRequest, HealthCheckResponse
from halimede.frontends.grpc.service import ServiceSettings, methods
from halimede.frontends.grpc.transport.connection import GrpcProtocol
from halimede.frontends.grpc.transport.limits import GrpcSettings
from tests.support.loops import LoopThread

IDENTITY = """
backend: "identity" max_batch_size: 8
input {{ name: "INPUT0" data_type: {datatype} dims: -1 }}
output {{ name: "OUTPUT0" data_type: {datatype} dims: -1 }}
"""
SLOW = """
instance_group { kind: KIND_CPU count: 1 }
parameters { key: "execute_delay_ms" value { string_value: "300" } }
"""
REPEAT = """
backend: "repeat"
input [ { name: "IN" data_type: TYPE_INT32 dims: -1 },
        { name: "DELAY" data_type: TYPE_UINT32 dims: -1 },
        { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 }, { name: "IDX" data_type: TYPE_UINT32 dims: 1 } ]
model_transaction_policy { decoupled: true }
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server with the models fp32, text, slow and repeat listens."""
    repository = tmp_path_factory.mktemp("repository")
    for name, config in (
        ("fp32", IDENTITY.format(datatype="TYPE_FP32")),
        ("text", IDENTITY.format(datatype="TYPE_STRING")),
        ("slow", IDENTITY.format(datatype="TYPE_FP32") + SLOW),
        ("repeat", REPEAT),
    ):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
    with LoopThread() as loop:
        engine, server, clock, connections = loop.run(start(repository))
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            loop.run(stop(engine, server, clock, connections))


async def start(repository: Path) -> tuple[Engine, asyncio.Server, LoopClock, set[GrpcProtocol]]:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    tracing = TraceConfig(file=str(repository / "trace.json"))
    settings = EngineSettings((repository,), ControlMode.EXPLICIT, load_models=("*",), tracing=tracing)
    engine = Engine(settings, clock, Lifecycle(settings, clock, loop))
    served = methods(engine, ServiceSettings())
    connections: set[GrpcProtocol] = set()
    server = await loop.create_server(
        partial(GrpcProtocol, served, GrpcSettings(), clock, connections), "127.0.0.1", 0
    )
    assert await engine.lifecycle.start()
    return engine, server, clock, connections


async def stop(
    engine: Engine, server: asyncio.Server, clock: LoopClock, connections: set[GrpcProtocol]
) -> None:
    server.close()
    await engine.lifecycle.stop(5)
    engine.tracing.close(5)
    for connection in list(connections):
        connection.abort()
    await server.wait_closed()
    clock.close()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Any]:
    """A client of tritonclient."""
    with triton.InferenceServerClient(url) as client:
        yield client


def fp32_input(*shape: int) -> tuple[Any, np.ndarray[Any, Any]]:
    data = np.random.default_rng(7).random(shape, np.float32)
    tensor = triton.InferInput("INPUT0", list(shape), "FP32")
    tensor.set_data_from_numpy(data)
    return tensor, data


def repeat_inputs(values: list[int], delay_ms: int = 0) -> list[Any]:
    tensors = []
    for name, datatype, data in (
        ("IN", "INT32", np.array(values, np.int32)),
        ("DELAY", "UINT32", np.full(len(values), delay_ms, np.uint32)),
        ("WAIT", "UINT32", np.array([0], np.uint32)),
    ):
        tensor = triton.InferInput(name, list(data.shape), datatype)
        tensor.set_data_from_numpy(data)
        tensors.append(tensor)
    return tensors


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("fp32", "1")
    assert client.get_server_metadata().name == "triton"
    metadata = client.get_model_metadata("fp32")
    assert (metadata.platform, list(metadata.inputs[0].shape)) == ("identity", [-1, -1])
    assert client.get_model_config("repeat").config.model_transaction_policy.decoupled
    assert {row.name: row.state for row in client.get_model_repository_index().models} == {
        "fp32": "READY",
        "text": "READY",
        "slow": "READY",
        "repeat": "READY",
    }


@pytest.mark.parametrize("elements", [16, 2_500_000])
def test_tensors_come_back_as_they_were_sent(client: Any, elements: int) -> None:
    tensor, data = fp32_input(1, elements)
    for request_id in ("", "r1"):
        result = client.infer("fp32", [tensor], request_id=request_id)

        assert np.array_equal(result.as_numpy("OUTPUT0"), data)
        assert result.get_response().id == request_id
        assert result.get_response().model_version == "1"
        assert result.get_response().parameters["param1"].int64_param == 42


def test_strings_come_back_as_they_were_sent(client: Any) -> None:
    data = np.array([["ein Käse".encode(), b"", bytes(300)]], np.object_)
    tensor = triton.InferInput("INPUT0", [1, 3], "BYTES")
    tensor.set_data_from_numpy(data)

    assert client.infer("text", [tensor]).as_numpy("OUTPUT0").tolist() == data.tolist()


def test_classification(client: Any) -> None:
    tensor = triton.InferInput("INPUT0", [1, 3], "FP32")
    tensor.set_data_from_numpy(np.array([[1, 3, 2]], np.float32))
    wanted = triton.InferRequestedOutput("OUTPUT0", class_count=2)

    result = client.infer("fp32", [tensor], outputs=[wanted])

    assert result.as_numpy("OUTPUT0").tolist() == [[b"3.000000:1", b"2.000000:2"]]


def test_statistics_count_requests(client: Any) -> None:
    tensor, _ = fp32_input(3, 5)
    before = client.get_inference_statistics("fp32").model_stats[0]
    client.infer("fp32", [tensor])
    after = client.get_inference_statistics("fp32").model_stats[0]

    assert after.inference_stats.success.count == before.inference_stats.success.count + 1
    assert after.inference_count == before.inference_count + 3


def test_errors_carry_their_status_and_text(client: Any) -> None:
    tensor, _ = fp32_input(1, 2)
    for model, inputs, status, text in (
        ("none", [tensor], "NOT_FOUND", "Request for unknown model: 'none' is not found"),
        ("repeat", repeat_inputs([1]), "UNIMPLEMENTED", "models with decoupled transaction policy"),
        ("text", [tensor], "INVALID_ARGUMENT", "data-type is 'FP32', but model 'text' expects 'BYTES'"),
    ):
        with pytest.raises(InferenceServerException) as caught:
            client.infer(model, inputs)
        assert caught.value.status() == f"StatusCode.{status}"
        assert text in caught.value.message()


def trace_settings(client: Any, settings: dict[str, Any] | None = None, **model: str) -> dict[str, list[str]]:
    """The settings of tracing, after a change if there is one."""
    response = (
        client.get_trace_settings(**model)
        if settings is None
        else client.update_trace_settings(settings=settings, **model)
    )
    return {name: list(setting.value) for name, setting in response.settings.items() if name != "trace_file"}


TRACE_SETTINGS = {
    "trace_level": ["OFF"],
    "trace_rate": ["1000"],
    "trace_count": ["-1"],
    "log_frequency": ["0"],
    "trace_mode": ["triton"],
}


def test_trace_settings_are_changed_by_a_client(client: Any) -> None:
    assert trace_settings(client) == TRACE_SETTINGS
    changes = {"trace_level": ["TENSORS", "TIMESTAMPS"], "trace_rate": "5"}
    changed = TRACE_SETTINGS | {"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": ["5"]}
    assert trace_settings(client, changes) == changed
    assert trace_settings(client, {"trace_rate": "7"}, model_name="fp32") == changed | {"trace_rate": ["7"]}
    assert trace_settings(client, {"trace_rate": None}, model_name="fp32") == changed
    assert trace_settings(client, {"trace_level": [], "trace_rate": None}) == TRACE_SETTINGS


@pytest.mark.parametrize(
    ("settings", "model", "status", "text"),
    [
        ({"trace_level": ["OFF", "TENSORS"]}, "", "INVALID_ARGUMENT", "Expect only one trace level 'OFF' is specified"),
        ({"trace_rate": ["1", "2"]}, "fp32", "INVALID_ARGUMENT", "expect only 1 value for 'trace_rate'"),
        ({"trace_rate": "x"}, "", "INVALID_ARGUMENT", "Unable to parse 'trace_rate', got: x"),
        ({"trace_file": "x"}, "", "UNIMPLEMENTED", "trace file location can not be updated through network protocol"),
        ({"trace_rate": "1"}, "nobody", "INVALID_ARGUMENT", "Request for unknown model : nobody"),
        ({}, "nobody", "INVALID_ARGUMENT", "Request for unknown model : nobody"),
    ],
)  # fmt: skip
def test_wrong_trace_settings_are_refused(
    client: Any, settings: dict[str, Any], model: str, status: str, text: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        trace_settings(client, settings, model_name=model)
    assert (caught.value.status(), caught.value.message()) == (f"StatusCode.{status}", text)
    assert trace_settings(client) == TRACE_SETTINGS


def test_log_settings_are_changed_by_a_client(client: Any) -> None:
    changed = client.update_log_settings({"log_verbose_level": 1, "log_info": False}, as_json=True)[
        "settings"
    ]

    assert client.get_log_settings(as_json=True)["settings"] == changed
    assert changed["log_verbose_level"] == {"uint32_param": 1}
    with pytest.raises(InferenceServerException, match="invalid argument for log_format, got: x"):
        client.update_log_settings({"log_format": "x"})


def test_models_are_unloaded_and_loaded(client: Any) -> None:
    tensor, data = fp32_input(1, 4)
    client.unload_model("fp32")
    with pytest.raises(InferenceServerException, match="has no available versions"):
        client.infer("fp32", [tensor])
    client.load_model("fp32")

    assert np.array_equal(client.infer("fp32", [tensor]).as_numpy("OUTPUT0"), data)


def test_a_stream_serves_ordinary_and_decoupled_models(url: str) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    tensor, data = fp32_input(1, 4)
    with triton.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("fp32", [tensor], request_id="a")
        client.async_stream_infer("none", [tensor], request_id="b")
        client.async_stream_infer("fp32", [tensor], request_id="c")
        first, second, third = (answers.get(timeout=60) for _ in range(3))
        client.async_stream_infer(
            "repeat", repeat_inputs([4, 5]), request_id="d", enable_empty_final_response=True
        )
        decoupled = [answers.get(timeout=60)[0].get_response() for _ in range(3)]
        client.stop_stream()

    assert first[0].get_response().id == "a"
    assert np.array_equal(first[0].as_numpy("OUTPUT0"), data)
    assert "unknown model: 'none'" in second[1].message()
    assert third[0].get_response().id == "c"
    assert [len(response.outputs) for response in decoupled] == [2, 2, 0]
    assert [response.parameters["triton_final_response"].bool_param for response in decoupled] == [
        False,
        False,
        True,
    ]


def test_stopping_a_stream_waits_for_its_responses(url: str) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with triton.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: answers.put(result))
        client.async_stream_infer("repeat", repeat_inputs([1, 2, 3], delay_ms=20))
        client.stop_stream()

    assert [answers.get(timeout=60).as_numpy("OUT")[0] for _ in range(3)] == [1, 2, 3]


def test_the_asyncio_client_is_served(url: str) -> None:
    tensor, data = fp32_input(2, 16)

    async def run() -> None:
        async with triton_aio.InferenceServerClient(url) as client:
            assert await client.is_server_ready()
            results = await asyncio.gather(*(client.infer("fp32", [tensor]) for _ in range(20)))
            assert all(np.array_equal(result.as_numpy("OUTPUT0"), data) for result in results)

            async def requests() -> Any:
                for number in range(5):
                    yield {"model_name": "fp32", "inputs": [tensor], "request_id": str(number)}

            found = [
                result.get_response().id
                async for result, error in client.stream_infer(requests())
                if not error
            ]
            assert found == list("01234")

    asyncio.run(run())


def test_with_triton_grpc_error_a_stream_ends_with_the_status(url: str) -> None:
    tensor = triton.InferInput("INPUT0", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[b"text"]], np.object_))
    classes = [triton.InferRequestedOutput("OUTPUT0", class_count=1)]

    async def run() -> None:
        async with triton_aio.InferenceServerClient(url) as client:

            async def requests() -> Any:
                yield {"model_name": "text", "inputs": [tensor], "outputs": classes}
                await asyncio.Event().wait()  # until the stream is cancelled

            stream = client.stream_infer(requests(), headers={"triton_grpc_error": "true"})
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in stream:
                    pass
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "BYTES" in str(caught.value.details())

    asyncio.run(run())


def test_a_cancelled_stream_cancels_its_requests(url: str) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with triton.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("repeat", repeat_inputs([1] * 3, delay_ms=200))
        assert answers.get(timeout=60)[1] is None
        client.stop_stream(cancel_requests=True)
        ends = [answers.get(timeout=60)]
        while ends[-1][1] is None:
            ends.append(answers.get(timeout=60))

    assert ends[-1][1].status() == "StatusCode.CANCELLED"


def test_a_cancelled_call_leaves_the_queue(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor, _ = fp32_input(1, 4)
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    executing, finish = threading.Event(), threading.Event()

    def execution(_seconds: float) -> None:
        executing.set()
        assert finish.wait(60)

    def answered(result: Any, error: Any) -> None:
        answers.put((result, error))

    def executions(client: Any) -> int:
        return int(client.get_inference_statistics("slow").model_stats[0].execution_count)

    monkeypatch.setattr(identity, "sleep", execution)
    with triton.InferenceServerClient(url) as client:
        before = executions(client)
        client.async_infer("slow", [tensor], answered)
        assert executing.wait(60)
        client.async_infer("slow", [tensor], answered).cancel()
        with pytest.raises(InferenceServerException) as caught:
            client.infer("slow", [tensor], client_timeout=0.02)
        assert client.is_server_live()  # the server has read that both calls have ended
        finish.set()
        outcomes = [answers.get(timeout=60)[1] for _ in range(2)]
        after = executions(client)

    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert sorted(outcome is None for outcome in outcomes) == [False, True]
    assert after - before == 1


def test_malformed_messages_are_refused_and_the_connection_lives(url: str) -> None:
    with grpc.insecure_channel(url) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for message in (b"\xff\xff", b"\x3a\xff\xff\xff\xff\x0f", b"\x2a\x02\x0a", b"\x0b"):
            with pytest.raises(grpc.RpcError) as caught:
                infer(message, timeout=10)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert live(b"", timeout=10) == b"\x08\x01"


def test_the_health_service(url: str) -> None:
    with grpc.insecure_channel(url) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            HealthCheckRequest.SerializeToString,
            HealthCheckResponse.FromString,
        )
        assert check(HealthCheckRequest(service="any"), timeout=10).status == HealthCheckResponse.SERVING
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            HealthCheckRequest.SerializeToString,
            HealthCheckResponse.FromString,
        )
        statuses = watch(HealthCheckRequest(), timeout=10)
        assert next(statuses).status == HealthCheckResponse.SERVING
        statuses.cancel()
