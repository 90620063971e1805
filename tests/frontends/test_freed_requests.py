"""Requests over HTTP and gRPC are freed when they are answered, or given up, and not by the garbage collector."""

import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from halimede.backends.testing import identity
from halimede.core.requests import InferRequest
from tests.frontends.grpc.test_service_clients import IDENTITY, REPEAT, SLOW, repeat_inputs, start, stop
from tests.frontends.http.models import ModelServer, serve_models
from tests.frontends.http.serving import post
from tests.support.loops import LoopThread
from tests.support.waiting import wait_until


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """What was there before is passed over by the garbage collector, and by `requests_left`: it takes long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """What only the garbage collector would free is there until the end of the test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def requests_left() -> list[InferRequest]:
    """All that there are in this process."""
    return [each for each in gc.get_objects() if isinstance(each, InferRequest)]


def assert_freed() -> None:
    wait_until(lambda: not requests_left(), "the requests to be freed")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models fp32, slow and repeat."""
    directory = tmp_path_factory.mktemp("repository")
    fp32 = IDENTITY.format(datatype="TYPE_FP32")
    for name, config in (("fp32", fp32), ("slow", fp32 + SLOW), ("repeat", REPEAT)):
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)
    return directory


@pytest.fixture(scope="module")
def http(repository: Path) -> Iterator[ModelServer]:
    """A server of them over HTTP."""
    with serve_models(repository, None, "fp32", "slow", "repeat") as server:
        yield server


@pytest.fixture(scope="module")
def grpc_address(repository: Path) -> Iterator[str]:
    """Where a server of them listens for gRPC."""
    with LoopThread() as loop:
        engine, server, clock, connections = loop.run(start(repository))
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            loop.run(stop(engine, server, clock, connections))


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An execution of `slow` ends once this is set, as it is at the end of the test."""
    event = threading.Event()
    monkeypatch.setattr(identity, "sleep", lambda _: event.wait())
    yield event
    event.set()


def infer_body(values: int, shape: list[int]) -> bytes:
    """A request to fp32 or slow."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": shape, "data": [1.0] * values}
    return json.dumps({"inputs": [tensor]}).encode()


NO_INPUT = b"{}"
REPEATED = json.dumps({"IN": [1, 2, 3], "DELAY": [0, 0, 0], "WAIT": 0}).encode()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("fp32/infer", infer_body(4, [1, 4]), 200),
        ("fp32/infer", infer_body(4, [1, 5]), 400),
        ("fp32/infer", infer_body(18, [9, 2]), 400),
        ("fp32/generate", b'{"INPUT0": [[1.0]]}', 200),
        ("fp32/generate", NO_INPUT, 400),
        ("fp32/generate_stream", NO_INPUT, 400),
        ("fp32/generate_stream", b'{"INPUT0": [[1.0]]}', 200),
        ("repeat/generate_stream", REPEATED, 200),
        ("repeat/generate", REPEATED, 500),
        ("repeat/infer", infer_body(4, [1, 4]), 501),
    ],
)
def test_request_over_http_is_freed_when_it_is_answered(
    http: ModelServer, path: str, body: bytes, status: int
) -> None:
    with http.served.client() as client:
        for _ in range(3):
            assert client.ask(post(body, f"/v2/models/{path}")).status == status
        assert_freed()


@pytest.mark.parametrize("path", ["slow/infer", "slow/generate", "slow/generate_stream"])
def test_request_over_http_is_freed_when_its_client_hangs_up(
    http: ModelServer, go_on: threading.Event, path: str
) -> None:
    body = infer_body(1, [1, 1]) if path == "slow/infer" else b'{"INPUT0": [[1.0]]}'
    clients = [http.served.client() for _ in range(3)]  # one executes, the others wait
    for client in clients:
        client.send(post(body, f"/v2/models/{path}"))
    wait_until(lambda: len(requests_left()) == 3, "the requests to arrive")
    for client in clients:
        client.vanish()
    wait_until(lambda: not http.served.connections, "the server to see that they are gone")
    go_on.set()
    assert_freed()


def fp32(rows: int = 1) -> list[grpcclient.InferInput]:
    tensor = grpcclient.InferInput("INPUT0", [rows, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((rows, 4), np.float32))
    return [tensor]


@pytest.mark.parametrize("rows", [1, 9])
def test_request_over_grpc_is_freed_when_it_is_answered(grpc_address: str, rows: int) -> None:
    with grpcclient.InferenceServerClient(grpc_address) as client:
        for _ in range(3):
            try:
                client.infer("fp32", fp32(rows))
            except InferenceServerException:
                assert rows == 9
        assert_freed()


@pytest.mark.parametrize("cancel", [False, True])
def test_requests_of_a_stream_are_freed(grpc_address: str, cancel: bool) -> None:
    answers: list[object] = []
    with grpcclient.InferenceServerClient(grpc_address) as client:
        client.start_stream(lambda result, error: answers.append(error or result))
        client.async_stream_infer("repeat", repeat_inputs([1, 2, 3], delay_ms=100 if cancel else 0))
        client.async_stream_infer("fp32", fp32())
        wait_until(lambda: len(answers) >= (2 if cancel else 4), "the answers")
        if not cancel:
            assert_freed()
        client.stop_stream(cancel_requests=cancel)
        assert_freed()


def test_request_over_grpc_is_freed_when_its_client_cancels_it(
    grpc_address: str, go_on: threading.Event
) -> None:
    with grpcclient.InferenceServerClient(grpc_address) as client:
        calls = [client.async_infer("slow", fp32(), lambda result, error: None) for _ in range(3)]
        wait_until(lambda: len(requests_left()) == 3, "the requests to arrive")
        for call in calls:
            call.cancel()
        wait_until(lambda: all(each.cancelled for each in requests_left()), "the requests to be cancelled")
        go_on.set()
        assert_freed()
