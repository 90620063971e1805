"""Servers with several front ends, as clients see them."""

import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from halimede.frontends.grpc.transport import frames
from tests.cli.echo import REQUEST, infer, write_model, write_slow_model
from tests.frontends.grpc.service_fakes import infer_request
from tests.frontends.grpc.transport.wire import message
from tests.python_models.support import processes, python_model
from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

FRONT_ENDS = 2
DOUBLE = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 2 * r.inputs()[0].as_numpy())]) for r in requests]
"""
COUNTING = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(request.inputs()[0].as_numpy()[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.float32([number]))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
FLOATS = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""


@contextmanager
def serving(repository: Path, *flags: str) -> Iterator[ServerProcess]:
    """A server whose front ends are all ready, and have no connections."""
    none_open = b'halimede_open_connections{protocol="http"} 0\n'
    with start_server(repository, f"--front-ends={FRONT_ENDS}", *flags) as server:
        wait_until(lambda: len(front_ends(server)) == FRONT_ENDS)
        wait_until(lambda: none_open in server.get("/metrics", server.metrics)[1])
        yield server


def front_ends(server: ServerProcess) -> list[int]:
    """Its front ends."""
    names = processes(server.process.pid)
    return [pid for pid, name in names.items() if name.startswith("halimede-front")]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of the servers that tests share."""
    directory = tmp_path_factory.mktemp("repository")
    write_model(directory)
    write_model(directory, "three", size=3)
    python_model(directory, "double", DOUBLE, FLOATS)
    python_model(directory, "count", COUNTING, FLOATS + "model_transaction_policy { decoupled: true }")
    return directory


@pytest.fixture(scope="module")
def several(repository: Path) -> Iterator[ServerProcess]:
    """A server with front ends."""
    with serving(repository) as server:
        yield server


@pytest.fixture(scope="module")
def one(repository: Path) -> Iterator[ServerProcess]:
    """A server of the same models without front ends."""
    with start_server(repository, "--front-ends=1") as server:
        yield server


def has_metric(server: ServerProcess, line: str) -> bool:
    """Whether the metrics have such a line."""
    return line in server.get("/metrics", server.metrics)[1].decode()


def connect(server: ServerProcess) -> HTTPConnection:
    """A connection that is kept, after one answer."""
    connection = HTTPConnection(server.http, timeout=30)
    assert ask(connection) == (200, b"")
    return connection


def ask(
    connection: HTTPConnection, method: str = "GET", path: str = "/v2/health/live", body: bytes = b""
) -> Any:
    """Status and body of an answer."""
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read()


def sockets(pid: int) -> set[str]:
    """The sockets that a process has open."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(each.readlink()))
        except OSError:
            continue
    return {name for name in found if name.startswith("socket:")}


def has_given_back(pid: int) -> bool:
    """Whether a process has no more shared memory than the progress of the two workers takes."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:halimede") <= 2


def array_of(client: Any, name: str, array: NDArray[Any], module: Any) -> NDArray[Any]:
    """The answer of a model with one input and one output."""
    given = module.InferInput("IN", array.shape, "FP32")
    given.set_data_from_numpy(array)
    result: NDArray[Any] = client.infer(name, [given]).as_numpy("OUT")
    return result


def test_connections_are_spread_evenly_also_if_they_stay(tmp_path: Path) -> None:
    write_model(tmp_path)
    with serving(tmp_path) as server, ExitStack() as stack:
        before = {pid: len(sockets(pid)) for pid in front_ends(server)}
        for _ in range(6):
            stack.callback(connect(server).close)
        assert [len(sockets(pid)) - before[pid] for pid in before] == [3, 3]


def test_front_end_that_dies_takes_only_its_own_connections_and_is_started_again(tmp_path: Path) -> None:
    write_model(tmp_path)
    with serving(tmp_path) as server, ExitStack() as stack:
        first, second = (connect(server) for _ in range(2))
        stack.callback(first.close)
        stack.callback(second.close)
        mine = Counter({pid: len(sockets(pid)) for pid in front_ends(server)})
        killed = mine.most_common()[0][0]
        os.kill(killed, signal.SIGKILL)
        server.wait_for(f"front-end process {killed} is gone: the process was killed")
        answers = []
        for connection in (first, second):
            try:
                answers.append(ask(connection)[0])
            except OSError:
                answers.append(0)
        assert sorted(answers) == [0, 200]
        assert infer(server) == 200
        wait_until(lambda: len(front_ends(server)) == FRONT_ENDS)
        assert killed not in front_ends(server)
        assert server.stop() == 0


def test_server_that_is_killed_leaves_no_front_end(tmp_path: Path) -> None:
    write_model(tmp_path)
    with serving(tmp_path) as server:
        left = front_ends(server)
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


def test_stopping_server_answers_what_is_in_flight_and_leaves_no_front_end(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 1000)
    with serving(tmp_path) as server:
        left = front_ends(server)
        connection = connect(server)
        connection.request("POST", "/v2/models/echo/infer", REQUEST)
        in_flight = 'halimede_requests_in_flight{protocol="http"} 1\n'
        wait_until(lambda: in_flight in server.get("/metrics", server.metrics)[1].decode())
        server.process.send_signal(signal.SIGTERM)
        assert connection.getresponse().status == 200
        connection.close()
        assert server.process.wait(30) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in left)


@pytest.mark.parametrize("size", [4, 40_000, 2_500_000])
def test_tensors_of_any_size_go_both_ways(several: ServerProcess, size: int) -> None:
    generator = np.random.default_rng(size)
    with (
        httpclient.InferenceServerClient(several.http) as over_http,
        grpcclient.InferenceServerClient(several.grpc) as over_grpc,
    ):
        for _ in range(5):
            array = generator.random(size, np.float32)
            np.testing.assert_array_equal(array_of(over_http, "double", array, httpclient), 2 * array)
            np.testing.assert_array_equal(array_of(over_grpc, "double", array, grpcclient), 2 * array)


def test_large_tensors_of_many_clients_are_not_mixed_up_and_their_memory_is_given_back(
    several: ServerProcess,
) -> None:
    wrong: list[int] = []

    def ask_often(number: int) -> None:
        with httpclient.InferenceServerClient(several.http) as client:
            for turn in range(10):
                array = np.full(200_000 + 1000 * turn, 100 * number + turn, np.float32)
                answer = array_of(client, "double", array, httpclient)
                if answer.shape != array.shape or not (answer == 2 * array).all():
                    wrong.append(number)

    threads = [threading.Thread(target=ask_often, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for pid in (several.process.pid, *front_ends(several)):
        wait_until(partial(has_given_back, pid))


def test_stream_of_many_responses_arrives_whole_and_in_order(several: ServerProcess) -> None:
    count = 2_000
    numbers: list[float] = []
    done = threading.Event()

    def take(result: Any, error: Any) -> None:
        assert error is None
        numbers.append(float(result.as_numpy("OUT")[0]))
        if len(numbers) == count:
            done.set()

    with grpcclient.InferenceServerClient(several.grpc) as client:
        given = grpcclient.InferInput("IN", [1], "FP32")
        given.set_data_from_numpy(np.full(1, count, np.float32))
        client.start_stream(take)
        client.async_stream_infer("count", [given])
        assert done.wait(60)
        client.stop_stream()
        assert numbers == list(range(count))


def test_reloaded_model_is_what_every_front_end_serves(tmp_path: Path) -> None:
    write_model(tmp_path)
    with (
        serving(tmp_path, "--model-control-mode=explicit", "--load-model=echo") as server,
        ExitStack() as stack,
    ):
        connections = [connect(server) for _ in range(4)]
        for connection in connections:
            stack.callback(connection.close)
        for size in (3, 2, 5):
            config = {
                "backend": "identity",
                "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [size]}],
                "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [size]}],
            }
            body = json.dumps({"parameters": {"config": json.dumps(config)}}).encode()
            assert ask(connections[0], "POST", "/v2/repository/models/echo/load", body)[0] == 200
            given = {"name": "INPUT0", "datatype": "FP32", "shape": [size], "data": list(range(size))}
            request = json.dumps({"inputs": [given]}).encode()
            for connection in connections:
                status, answer = ask(connection, "POST", "/v2/models/echo/infer", request)
                assert (status, json.loads(answer)["outputs"][0]["data"]) == (200, list(range(size)))
        assert ask(connections[0], "POST", "/v2/repository/models/echo/unload")[0] == 200
        for connection in connections:
            assert ask(connection, "POST", "/v2/models/echo/infer", REQUEST)[0] == 404


def test_limit_of_requests_in_flight_holds_over_all_front_ends(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 1000)
    with serving(tmp_path, "--max-inflight-requests=2") as server, ExitStack() as stack:
        connections = [connect(server) for _ in range(4)]
        for connection in connections:
            stack.callback(connection.close)
            connection.request("POST", "/v2/models/echo/infer", REQUEST)
        responses = [connection.getresponse() for connection in connections]
        assert sorted(response.status for response in responses) == [200, 200, 503, 503]
        assert {each.headers["Retry-After"] for each in responses if each.status == 503} == {"1"}


def test_client_that_goes_cancels_its_request(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 500)
    with serving(tmp_path) as server:
        host, _, port = server.http.rpartition(":")
        with ExitStack() as stack:
            for _ in range(3):
                client = stack.enter_context(socket.create_connection((host, int(port)), 10))
                length = f"Host: localhost\r\nContent-Length: {len(REQUEST)}\r\n\r\n".encode()
                client.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\n" + length + REQUEST)
            wait_until(lambda: b'in_flight{protocol="http"} 3\n' in server.get("/metrics", server.metrics)[1])
        cancelled = b'failure{model="echo",reason="CANCELED",version="1"} 2\n'
        wait_until(lambda: cancelled in server.get("/metrics", server.metrics)[1])
        wait_until(lambda: b'in_flight{protocol="http"} 0\n' in server.get("/metrics", server.metrics)[1])


def test_deadline_that_passes_is_counted_as_one(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 1_000)
    fields = {
        ":scheme": "http",
        ":path": "/inference.GRPCInferenceService/ModelInfer",
        "content-type": "application/grpc",
        "grpc-timeout": "200m",
    }
    block = b"\x83"  # POST
    for name, value in fields.items():
        block += b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
    body = message(infer_request(bytes(8), model="echo", shape=(2,)).SerializeToString())
    with serving(tmp_path) as server:
        host, _, port = server.grpc.rpartition(":")
        # a client that does not cancel calls itself when their time is over
        with socket.create_connection((host, int(port)), 30) as client:
            client.sendall(frames.PREFACE + frames.settings({}))
            for number in range(1, 4):  # the first is asked by itself, the others by their form
                stream = 2 * number - 1
                client.sendall(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block))
                client.sendall(frames.frame(frames.DATA, frames.END_STREAM, stream, body))
                line = f'{{method="ModelInfer",status="DEADLINE_EXCEEDED"}} {number}\n'
                wait_until(partial(has_metric, server, line))


def test_requests_are_traced_once_tracing_is_on_and_not_before(tmp_path: Path) -> None:
    repository, file = tmp_path / "models", tmp_path / "trace.json"
    write_model(repository)
    with (
        serving(repository, "--trace-config=mode=triton", f"--trace-config=triton,file={file}") as server,
        httpclient.InferenceServerClient(server.http) as client,
    ):
        assert infer(server) == 200
        client.update_trace_settings(
            settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "log_frequency": "1"}
        )
        for _ in range(4):
            assert infer(server) == 200
        client.update_trace_settings(settings={"trace_level": ["OFF"]})
        assert infer(server) == 200
        assert server.stop() == 0
    traced = [row for path in tmp_path.glob("trace.json*") for row in json.loads(path.read_text())]
    assert len({row["id"] for row in traced}) == 4
    assert "HTTP_RECV_START" in {stamp["name"] for row in traced for stamp in row.get("timestamps", ())}


def test_errors_are_those_of_a_server_without_front_ends(several: ServerProcess, one: ServerProcess) -> None:
    bad = {
        "/v2/models/echo/infer": b"{",
        "/v2/models/none/infer": REQUEST,
        "/v2/models/echo/versions/7/infer": REQUEST,
        "/v2/models/echo/versions/99999999999999999999/infer": REQUEST,
        "/v2/nothing": b"",
    }

    def told(server: ServerProcess) -> list[Any]:
        connection = connect(server)
        try:
            answers = [ask(connection, "POST", path, body) for path, body in bad.items()]
        finally:
            connection.close()
        with grpcclient.InferenceServerClient(server.grpc) as client:
            given = grpcclient.InferInput("INPUT0", [3], "FP32")
            given.set_data_from_numpy(np.ones(3, np.float32))
            for name in ("echo", "none"):
                with pytest.raises(InferenceServerException) as error:
                    client.infer(name, [given])
                answers.append(str(error.value))
        return answers

    assert told(several) == told(one)


def http_request(
    array: NDArray[Any], identifier: str = "", parameters: str = "", size: int = -1
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request for bytes of what is sent as bytes."""
    given = array.tobytes()
    fields = f'{{"id":"{identifier}",' if identifier else "{"
    if parameters:
        fields += f'"parameters":{parameters},'
    described = (
        f'{fields}"inputs":[{{"name":"IN","datatype":"FP32","shape":{list(array.shape)},'
        f'"parameters":{{"binary_data_size":{len(given) if size < 0 else size}}}}}],'
        f'"outputs":[{{"name":"OUT","parameters":{{"binary_data":true}}}}]}}'
    ).encode()
    return described + given, {"Inference-Header-Content-Length": str(len(described))}


def test_requests_that_are_repeated_get_the_answers_of_a_server_without_front_ends(
    several: ServerProcess, one: ServerProcess
) -> None:
    path = "/v2/models/double/infer"

    def http_answers(connection: HTTPConnection) -> list[Any]:
        answers: list[Any] = []
        for turn in range(4):
            array = np.full(5, turn, np.float32)
            for body, headers in (
                http_request(array),
                http_request(array, f"a{turn}"),
                http_request(array, "ü"),
                http_request(array, parameters='{"some":1}'),
                http_request(array, size=7),
                http_request(np.full(20_000, turn, np.float32)),
                (http_request(array)[0][:-1], http_request(array)[1]),
                (http_request(array)[0], {**http_request(array)[1], "Accept-Encoding": "gzip"}),
                (http_request(array)[0], {**http_request(array)[1], "Content-Encoding": "none"}),
            ):
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                told = (
                    "content-type",
                    "inference-header-content-length",
                    "content-length",
                    "content-encoding",
                )
                answers.append((response.status, [response.headers[each] for each in told], response.read()))
        return answers

    def grpc_answers(client: grpcclient.InferenceServerClient) -> list[Any]:
        answers: list[Any] = []
        for turn in range(4):
            for identifier in ("", f"a{turn}", "ü"):
                for datatype in ("FP32", "FP33"):
                    given = grpcclient.InferInput("IN", [5], datatype)
                    given._raw_content = np.full(5, turn, np.float32).tobytes()  # noqa: SLF001 - set_data_from_numpy() refuses FP33
                    try:
                        answer = client.infer("double", [given], request_id=identifier).get_response()
                    except InferenceServerException as error:
                        answers.append(str(error))
                    else:
                        answers.append(answer.SerializeToString(deterministic=True))
        return answers

    def answers(server: ServerProcess) -> list[Any]:
        connection = connect(server)
        try:
            over_http = http_answers(connection)
        finally:
            connection.close()
        with grpcclient.InferenceServerClient(server.grpc) as client:
            return [*over_http, *grpc_answers(client)]

    assert answers(several) == answers(one)


def test_more_kinds_of_requests_than_are_remembered_are_answered(several: ServerProcess) -> None:
    connection = connect(several)
    try:
        for number in [*range(600), *range(0, 600, 5)]:
            array = np.full(3, number, np.float32)
            body, headers = http_request(array, parameters=f'{{"number":{number}}}')
            body = body.replace(b'"IN"', b'"INPUT0"').replace(b'"OUT"', b'"OUTPUT0"')
            headers["Inference-Header-Content-Length"] = str(len(body) - 12)
            for _ in range(1 + number % 2):
                connection.request("POST", "/v2/models/three/infer", body, headers)
                response = connection.getresponse()
                assert (response.status, response.read()[-12:]) == (200, array.tobytes())
    finally:
        connection.close()


def test_metrics_count_what_each_front_end_answers(tmp_path: Path) -> None:
    write_model(tmp_path)
    with serving(tmp_path) as server, ExitStack() as stack:
        connections = [connect(server) for _ in range(4)]
        for connection in connections:
            stack.callback(connection.close)
            assert ask(connection, "POST", "/v2/models/echo/infer", REQUEST)[0] == 200
            assert ask(connection, "POST", "/v2/models/echo/infer", b"{")[0] == 400
            assert ask(connection, "GET", "/nowhere")[0] == 404
        text = server.get("/metrics", server.metrics)[1].decode()
        for line in (
            'halimede_http_requests_total{protocol="http",route="infer",status="200"} 4',
            'halimede_http_requests_total{protocol="http",route="infer",status="400"} 4',
            'halimede_http_requests_total{protocol="http",route="other",status="404"} 4',
            'nv_inference_request_success{model="echo",version="1"} 4',
        ):
            assert line + "\n" in text
        assert 'halimede_open_connections{protocol="http"} 4\n' in text
