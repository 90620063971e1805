import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.cli.echo import REQUEST, write_model, write_slow_model
from tests.support.lines import complete_lines
from tests.support.names import new_name
from tests.support.server import ServerProcess, run_command, start_server

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def post(server: ServerProcess, path: str, body: bytes, *headers: str, address: str = "") -> bytes:
    """The whole response of one request, after which the connection is closed."""
    host, _, port = (address or server.http).rpartition(":")
    head = "\r\n".join((f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers))
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)
        with client.makefile("rb") as file:
            return file.read()


def has_metric(server: ServerProcess, line: str) -> bool:
    """Whether the metrics have such a line."""
    return line in server.get("/metrics", server.metrics)[1].decode()


def metrics(server: ServerProcess) -> dict[str, int]:
    """The values of the metrics that count requests, by their names and labels."""
    lines = server.get("/metrics", server.metrics)[1].decode().splitlines()
    samples = (
        line.rpartition(" ") for line in lines if line.startswith("halimede_") and "_requests_" in line
    )
    return {name: int(value) for name, _, value in samples}


def tensor() -> grpcclient.InferInput:
    made = grpcclient.InferInput("INPUT0", [2], "FP32")
    made.set_data_from_numpy(np.array([1, 2], np.float32))
    return made


def send_no_http(server: ServerProcess) -> None:
    """Send what is no request."""
    host, _, port = server.http.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(b"what is this\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def invoke(server: ServerProcess) -> None:
    """One invocation of SageMaker."""
    post(server, "/invocations", REQUEST, "Content-Type: application/json", address=server.sagemaker)


def infer_over_grpc(server: ServerProcess, **options: Any) -> None:
    """An inference, and one with a model that is unknown."""
    with grpcclient.InferenceServerClient(server.grpc) as client:
        client.infer("echo", [tensor()], **options)
        with pytest.raises(InferenceServerException):
            client.infer("nobody", [tensor()])


def call_unknown_method(server: ServerProcess) -> None:
    """Call a method that gRPC has not."""
    with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/a.B/C")(b"")


class Logged:
    """A server, and its access log as far as it was read."""

    def __init__(self, server: ServerProcess, path: Path) -> None:
        self.server = server
        self._path = path
        self._seen = 0

    def next(self, count: int = 1) -> list[dict[str, Any]]:
        """The next lines about requests for models or unreadable ones, once there are so many."""
        entries: list[dict[str, Any]] = []

        def complete() -> bool:
            lines = complete_lines(self._path).splitlines()
            entries[:] = [entry for entry in map(json.loads, lines) if "/health/" not in entry["path"]]
            return len(entries) >= self._seen + count

        self.server.wait_until(complete, "lines of the access log")
        found = entries[self._seen :]
        self._seen = len(entries)
        return found


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    repository, path = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("log") / "access.log"
    write_model(repository)
    flags = ("--access-log=json", f"--access-log-file={path}", "--allow-sagemaker=true", "--log-verbose=1")
    with start_server(repository, *flags) as server:
        yield Logged(server, path)


pytestmark = pytest.mark.timeout(120)


@pytest.mark.front_ends
def test_an_inference_over_http_is_one_line(logged: Logged) -> None:
    body = REQUEST[:-1] + b',"id":"r1"}'
    response = post(logged.server, "/v2/models/echo/infer", body, f"traceparent: {TRACEPARENT}")
    (entry,) = logged.next()
    assert entry["client"].startswith("127.0.0.1:")
    assert (entry["protocol"], entry["method"], entry["path"]) == ("HTTP", "POST", "/v2/models/echo/infer")
    assert (entry["model"], entry["version"], entry["batch_size"]) == ("echo", 1, 1)
    assert (entry["status"], entry["request_id"], entry["trace_id"]) == (200, "r1", TRACE)
    assert entry["bytes_in"] == len(body)
    assert entry["bytes_out"] == len(response.partition(b"\r\n\r\n")[2])
    assert 0 < entry["queue_ms"] + entry["compute_ms"] < entry["total_ms"]


@pytest.mark.front_ends
def test_a_request_for_an_unknown_model_is_logged_and_its_reason_too(logged: Logged) -> None:
    nobody = new_name("nobody")
    path = f"/v2/models/{nobody}/infer"
    post(logged.server, path, REQUEST)
    (entry,) = logged.next()
    assert (entry["status"], entry["path"], entry["model"]) == (404, path, None)
    logged.server.wait_for(f"HTTP request failed with 404: POST {path} from 127.0.0.1:")
    logged.server.wait_for(f"Request for unknown model: '{nobody}' is not found")


@pytest.mark.front_ends
def test_what_is_no_http_is_logged(logged: Logged) -> None:
    send_no_http(logged.server)
    (entry,) = logged.next()
    assert (entry["status"], entry["method"], entry["path"]) == (400, "", "")


@pytest.mark.front_ends
def test_text_of_clients_stays_on_its_line(logged: Logged) -> None:
    body = REQUEST[:-1] + b',"id":"a\\nb\\"c"}'
    post(logged.server, '/v2/models/echo/infer?"x', body)
    (entry,) = logged.next()
    assert entry["request_id"] == 'a\nb"c'


@pytest.mark.front_ends
def test_an_event_stream_is_logged_when_it_ends(logged: Logged) -> None:
    response = post(logged.server, "/v2/models/echo/generate_stream", b'{"INPUT0":[1,2]}')
    (entry,) = logged.next()
    assert (entry["status"], entry["model"]) == (200, "echo")
    chunk = response.partition(b"\r\n\r\n")[2].partition(b"\r\n")[0]
    assert entry["bytes_out"] == int(chunk, 16)


@pytest.mark.front_ends
def test_an_invocation_of_sagemaker_is_logged(logged: Logged) -> None:
    invoke(logged.server)
    (entry,) = logged.next()
    assert (entry["protocol"], entry["path"], entry["model"]) == ("SageMaker", "/invocations", "echo")


@pytest.mark.front_ends
def test_an_inference_over_grpc_is_one_line(logged: Logged) -> None:
    failure = "gRPC call failed with NOT_FOUND: /inference.GRPCInferenceService/ModelInfer from "
    told = logged.server.log.count(failure)
    infer_over_grpc(logged.server, request_id="g1", headers={"traceparent": TRACEPARENT})
    good, bad = logged.next(2)
    assert (good["protocol"], good["method"]) == ("gRPC", "ModelInfer")
    assert good["path"] == "/inference.GRPCInferenceService/ModelInfer"
    assert (good["model"], good["version"], good["batch_size"]) == ("echo", 1, 1)
    assert (good["status"], good["request_id"], good["trace_id"]) == ("OK", "g1", TRACE)
    assert good["bytes_in"] > 8
    assert good["bytes_out"] > 8
    assert 0 < good["queue_ms"] + good["compute_ms"] < good["total_ms"]
    assert (bad["status"], bad["model"]) == ("NOT_FOUND", None)
    logged.server.wait_for(failure, times=told + 1)


@pytest.mark.front_ends
def test_each_request_of_a_stream_is_a_line(logged: Logged) -> None:
    failure = "gRPC request of a stream failed with NOT_FOUND"
    told = logged.server.log.count(failure)
    answers: Queue[Any] = Queue()
    with grpcclient.InferenceServerClient(logged.server.grpc) as client:
        client.start_stream(lambda result, error: answers.put(error))
        client.async_stream_infer("echo", [tensor()], request_id="s1")
        client.async_stream_infer("nobody", [tensor()], request_id="s2")
        errors = [answers.get(timeout=60) for _ in range(2)]
        client.stop_stream()
    assert [error is None for error in errors] == [True, False]
    good, bad = logged.next(2)
    assert (good["method"], good["model"], good["status"]) == ("ModelStreamInfer", "echo", "OK")
    assert good["request_id"] == "s1"
    assert good["bytes_in"] > 8
    assert good["bytes_out"] > 8
    assert good["compute_ms"] > 0
    assert (bad["method"], bad["status"]) == ("ModelStreamInfer", "NOT_FOUND")
    logged.server.wait_for(failure, times=told + 1)


@pytest.mark.front_ends
def test_an_unknown_method_of_grpc_is_logged(logged: Logged) -> None:
    call_unknown_method(logged.server)
    (entry,) = logged.next()
    assert (entry["path"], entry["status"]) == ("/a.B/C", "UNIMPLEMENTED")


@pytest.mark.front_ends
def test_metrics_count_what_the_log_tells(logged: Logged) -> None:
    before = metrics(logged.server)
    post(logged.server, "/v2/models/nobody/infer", REQUEST)
    send_no_http(logged.server)
    post(logged.server, "/v2/models/echo/generate_stream", b'{"INPUT0":[1,2]}')
    invoke(logged.server)
    infer_over_grpc(logged.server)
    call_unknown_method(logged.server)
    logged.next(7)
    after = metrics(logged.server)
    for name in (
        'halimede_http_requests_total{protocol="http",route="infer",status="404"}',
        'halimede_http_requests_total{protocol="http",route="other",status="400"}',
        'halimede_http_requests_total{protocol="http",route="generate_stream",status="200"}',
        'halimede_http_requests_total{protocol="sagemaker",route="invocations",status="200"}',
        'halimede_grpc_requests_total{method="ModelInfer",status="OK"}',
        'halimede_grpc_requests_total{method="ModelInfer",status="NOT_FOUND"}',
        'halimede_grpc_requests_total{method="other",status="UNIMPLEMENTED"}',
    ):
        assert after[name] - before.get(name, 0) == 1, name
    assert after['halimede_requests_in_flight{protocol="http"}'] == 0


@pytest.mark.front_ends
def test_a_client_that_goes_is_logged_with_499(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 2000)
    path = tmp_path / "access.log"
    with start_server(tmp_path, "--access-log=json", f"--access-log-file={path}") as server:
        host, _, port = server.http.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as client:
            head = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(REQUEST)}\r\n\r\n"
            client.sendall(head.encode() + REQUEST)
            for line in ('requests_in_flight{protocol="http"} 1\n', 'open_connections{protocol="http"} 1\n'):
                server.wait_until(partial(has_metric, server, f"halimede_{line}"), line)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        (entry,) = Logged(server, path).next()
        assert (entry["status"], entry["model"]) == (499, "echo")
        samples = server.get("/metrics", server.metrics)[1].decode()
        assert 'halimede_http_requests_total{protocol="http",route="infer",status="499"} 1\n' in samples


@pytest.mark.front_ends
def test_a_slow_request_is_logged_with_its_stages(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 50)
    with start_server(tmp_path, "--slow-request-ms=40") as server:
        post(server, "/v2/models/echo/infer", REQUEST)
        server.wait_for(
            "Slow request: HTTP POST /v2/models/echo/infer (model 'echo' version 1, batch 1) took "
        )
        assert "GET" not in server.log.partition("Slow request")[2]


@pytest.mark.front_ends
def test_the_access_log_goes_to_standard_error(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, "--access-log=text") as server:
        server.wait_for('HTTP "GET /v2/health/ready" 200 total=')
        post(server, "/v2/models/echo/infer", REQUEST)
        assert server.stop() == 0
        assert '"POST /v2/models/echo/infer" 200 model="echo" version=1 batch=1 queue=' in server.log


def test_without_a_flag_nothing_is_logged_of_requests(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path) as server:
        post(server, "/v2/models/nobody/infer", REQUEST)
        assert server.stop() == 0
        assert "nobody" not in server.log


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--access-log-file=x",), "--access-log-file needs --access-log=text or --access-log=json"),
        (("--access-log=text", "--access-log-file=/"), "--access-log-file: cannot write '/': Is a directory"),
    ],
)
def test_a_log_that_cannot_be_is_a_wrong_use(tmp_path: Path, flags: tuple[str, ...], told: str) -> None:
    done = run_command("serve", f"--model-repository={tmp_path}", *flags)
    assert done.returncode != 0
    assert told in done.stderr
