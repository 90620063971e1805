import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.cli.echo import REQUEST, two_requests, write_model, write_slow_model
from tests.frontends.http.serving import Client
from tests.support.names import new_name, new_number
from tests.support.server import ServerProcess, run_command, start_server
from tests.support.traces import COMPUTED, RUN, ReadTrace, await_traces, read_traces

pytestmark = pytest.mark.timeout(120)

ENSEMBLE = """
platform: "ensemble"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling { step [
  { model_name: "echo" model_version: -1
    input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "between" } },
  { model_name: "inner" model_version: -1
    input_map { key: "INPUT0" value: "between" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } ] }
"""
INNER = ENSEMBLE.replace('"inner"', '"echo"')
SQUARE = """
backend: "square" model_transaction_policy { decoupled: true }
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]
"""


class Traced:
    """A server, and the file that its traces go to."""

    def __init__(self, server: ServerProcess, path: Path) -> None:
        self.server = server
        self.path = path

    def of(self, request_id: str, count: int = 1) -> list[ReadTrace]:
        """The traces of a request and of all that it has caused, once there are so many."""

        def chosen(traces: list[ReadTrace]) -> list[ReadTrace]:
            return [trace for trace in traces if trace.request_id == request_id]

        return chosen(await_traces(self.path, lambda traces: len(chosen(traces)) >= count))


def write_models(repository: Path) -> None:
    write_model(repository)
    write_model(repository, "cached", rest="response_cache { enable: true }")
    for name, config in (("ensemble", ENSEMBLE), ("inner", INNER), ("square", SQUARE)):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    write_models(directory)
    return directory


def flags(path: Path, *settings: str) -> tuple[str, ...]:
    """What traces every request into a file, and further settings."""
    every = ("level=TIMESTAMPS", "rate=1", f"triton,file={path}", *settings)
    return tuple(f"--trace-config={setting}" for setting in every)


@pytest.fixture(scope="module")
def traced(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    more = ("--cache-config=local,size=1MiB", "--allow-sagemaker=true", "--access-log=text")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "echo")
        with start_server(repository, *flags(path, "level=TENSORS"), *more) as server:
            yield Traced(server, path)


def post(server: ServerProcess, path: str, document: Any, address: str = "") -> Any:
    """What a POST of a JSON document brings."""
    request = urllib.request.Request(
        f"http://{address or server.http}{path}",
        json.dumps(document).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()


def infer(server: ServerProcess, model: str = "echo", identifier: str = "", second: float = 2) -> None:
    """One request over HTTP, with this as the second element of its tensor."""
    document = json.loads(REQUEST)
    document["inputs"][0]["data"][1] = second
    post(server, f"/v2/models/{model}/infer", {**document, "id": identifier})


def floats() -> grpcclient.InferInput:
    made = grpcclient.InferInput("INPUT0", [2], "FP32")
    made.set_data_from_numpy(np.array([1, 2], np.float32))
    return made


@pytest.mark.front_ends
def test_a_request_over_http_is_traced_from_its_reception_to_its_response(traced: Traced) -> None:
    request_id = new_name("http")
    with httpclient.InferenceServerClient(traced.server.http) as client:
        tensor = httpclient.InferInput("INPUT0", [2], "FP32")
        tensor.set_data_from_numpy(np.array([1, 2], np.float32))
        client.infer("echo", [tensor], request_id=request_id)
    (trace,) = traced.of(request_id)
    assert (trace.model, trace.parent) == (("echo", 1), 0)
    assert trace.names() == [
        "HTTP_RECV_START", "HTTP_RECV_END", *RUN[:-1],
        "INFER_RESPONSE_COMPLETE", "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END",
    ]  # fmt: skip


@pytest.mark.front_ends
def test_a_request_over_grpc_is_traced_from_its_reception_to_its_response(traced: Traced) -> None:
    request_id = new_name("grpc")
    with grpcclient.InferenceServerClient(traced.server.grpc) as client:
        client.infer("echo", [floats()], request_id=request_id)
    (trace,) = traced.of(request_id)
    assert trace.names() == [
        "GRPC_WAITREAD_START", "GRPC_WAITREAD_END", *RUN[:-1],
        "INFER_RESPONSE_COMPLETE", "REQUEST_END", "GRPC_SEND_START", "GRPC_SEND_END",
    ]  # fmt: skip


@pytest.mark.front_ends
def test_the_reception_begins_when_the_body_does(traced: Traced) -> None:
    request_id = new_name("slow")
    body = json.dumps({**json.loads(REQUEST), "id": request_id}).encode()
    port = int(traced.server.http.rpartition(":")[2])
    head = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with Client(port) as client:
        client.send(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert [client.read_line() for _ in range(2)] == [b"HTTP/1.1 100 Continue\r\n", b"\r\n"]
        between = time.monotonic_ns()
        assert client.ask(body).status == 200
        assert client.ask(f"{head}\r\n".encode() + body.replace(b"slow", b"next")).status == 200
    slow, after = traced.of(request_id)[0], traced.of(request_id.replace("slow", "next"))[0]
    assert slow.at("HTTP_RECV_START") < between < slow.at("HTTP_RECV_END")
    assert slow.at("HTTP_SEND_END") < after.at("HTTP_RECV_START")


@pytest.mark.front_ends
def test_tensors_are_traced_with_their_elements(traced: Traced) -> None:
    request_id = new_name("tensors")
    infer(traced.server, identifier=request_id)
    (trace,) = traced.of(request_id)
    assert [(each.activity, each.name, each.data, each.shape, each.dtype) for each in trace.tensors] == [
        ("TENSOR_QUEUE_INPUT", "INPUT0", "1,2", "2", "FP32"),
        ("TENSOR_BACKEND_INPUT", "INPUT0", "1,2", "2", "FP32"),
        ("TENSOR_BACKEND_OUTPUT", "OUTPUT0", "1,2", "2", "FP32"),
    ]


@pytest.mark.front_ends
def test_requests_of_a_stream_are_traced_each_by_itself(traced: Traced) -> None:
    answers: Queue[Any] = Queue()
    identifiers = new_name("stream"), new_name("stream")
    with grpcclient.InferenceServerClient(traced.server.grpc) as client:
        client.start_stream(lambda result, error: answers.put(error))
        for identifier in identifiers:
            client.async_stream_infer("echo", [floats()], request_id=identifier)
        assert [answers.get(timeout=60) for _ in range(2)] == [None, None]
    for identifier in identifiers:
        (trace,) = traced.of(identifier)
        assert trace.names(*RUN) == list(RUN)


@pytest.mark.front_ends
def test_a_request_of_a_decoupled_model_is_traced_with_each_response(traced: Traced) -> None:
    request_id = new_name("decoupled")
    post(traced.server, "/v2/models/square/generate_stream", {"IN": 3, "id": request_id})
    (trace,) = traced.of(request_id)
    names = trace.names()
    assert names.count("INFER_RESPONSE_COMPLETE") == names.count("REQUEST_END") == 1
    assert names.count("HTTP_SEND_START") == names.count("HTTP_SEND_END") >= 3
    assert trace.names(*COMPUTED) == list(COMPUTED)
    outputs = [each.data for each in trace.tensors if each.activity == "TENSOR_BACKEND_OUTPUT"]
    assert outputs == ["3", "3", "3"]


@pytest.mark.front_ends
def test_steps_of_ensembles_are_traced_below_those_that_caused_them(traced: Traced) -> None:
    request_id = new_name("ensemble")
    infer(traced.server, "ensemble", request_id)
    outer, first, second, third, fourth = traced.of(request_id, 5)
    assert [each.model for each in (outer, first, second, third, fourth)] == [
        ("ensemble", 1), ("echo", 1), ("inner", 1), ("echo", 1), ("echo", 1),
    ]  # fmt: skip
    assert [each.parent for each in (first, second, third, fourth)] == [
        outer.number, outer.number, second.number, second.number,
    ]  # fmt: skip
    for step in (first, third, fourth):
        assert step.names() == list(RUN)
    assert outer.names(*COMPUTED) == second.names(*COMPUTED) == []
    assert (
        outer.at("QUEUE_START")
        <= first.at("REQUEST_START")
        <= first.at("REQUEST_END")
        <= second.at("REQUEST_START")
        <= third.at("REQUEST_START")
        <= fourth.at("REQUEST_END")
        <= outer.at("REQUEST_END")
    )


@pytest.mark.front_ends
def test_a_response_from_the_cache_takes_no_execution(traced: Traced) -> None:
    identifiers, element = (new_name("miss"), new_name("hit")), new_number()
    for identifier in identifiers:
        infer(traced.server, "cached", identifier, element)
    (miss,), (hit,) = map(traced.of, identifiers)
    assert miss.names(*RUN) == list(RUN)
    assert hit.names(*RUN) == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]


@pytest.mark.front_ends
def test_a_request_that_its_model_does_not_take_is_traced(traced: Traced) -> None:
    request_id = new_name("refused")
    with grpcclient.InferenceServerClient(traced.server.grpc) as client:
        wrong = grpcclient.InferInput("INPUT0", [2], "INT32")
        wrong.set_data_from_numpy(np.array([1, 2], np.int32))
        with pytest.raises(InferenceServerException):
            client.infer("echo", [wrong], request_id=request_id)
    (trace,) = traced.of(request_id)
    assert trace.names(*RUN) == ["REQUEST_START", "REQUEST_END"]
    assert trace.names()[-1] == "GRPC_SEND_END"


@pytest.mark.front_ends
def test_an_invocation_of_sagemaker_is_traced(traced: Traced) -> None:
    request_id = new_name("sagemaker")
    document = {**json.loads(REQUEST), "id": request_id}
    post(traced.server, "/invocations", document, traced.server.sagemaker)
    (trace,) = traced.of(request_id)
    assert trace.names(*RUN) == list(RUN)


@pytest.mark.front_ends
def test_the_access_log_still_has_the_stages_of_a_traced_request(traced: Traced) -> None:
    request_id = new_name("both")
    infer(traced.server, identifier=request_id)
    traced.server.wait_for(f' id="{request_id}"')
    (line,) = [line for line in traced.server.log.splitlines() if f'id="{request_id}"' in line]
    assert " compute=-" not in line


@pytest.mark.front_ends
def test_requests_are_traced_from_when_clients_say_so(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    off = (f"--trace-config=triton,file={path}", "--trace-config=triton,log-frequency=2")
    with start_server(repository, *off) as server:
        infer(server, identifier="before")
        with grpcclient.InferenceServerClient(server.grpc) as client:
            client.update_trace_settings("echo", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
            client.update_trace_settings("echo", {"trace_count": "3"})
        for number in range(5):
            infer(server, identifier=str(number))
        infer(server, "cached", identifier="another model")
        settings = json.loads(server.get("/v2/models/echo/trace/setting")[1])
        assert settings["trace_count"] == "0"
        first = await_traces(Path(f"{path}.0"), lambda traces: len(traces) == 2)
        second = await_traces(Path(f"{path}.1"), lambda traces: len(traces) == 1)
        assert server.stop() == 0
    assert [each.request_id for each in (*first, *second)] == ["0", "1", "2"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t.json.0", "t.json.1"]


@pytest.mark.front_ends
def test_all_that_was_traced_is_in_the_file_when_the_server_has_stopped(
    repository: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    with start_server(repository, *flags(path)) as server:
        for number in range(100):
            infer(server, identifier=str(number))
        assert server.stop() == 0
    assert [each.request_id for each in read_traces(path)] == [str(number) for number in range(100)]


@pytest.mark.front_ends
def test_requests_under_way_when_the_server_is_stopped_are_traced_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    write_slow_model(tmp_path / "repository", 500)
    with start_server(tmp_path / "repository", *flags(path)) as server:
        with two_requests(server) as statuses:
            assert server.stop() == 0
        assert statuses == [200, 200]
    traces = read_traces(path)
    assert [trace.names(*RUN) for trace in traces] == [list(RUN), list(RUN)]


def test_the_deprecated_flags_trace_too(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    old = (f"--trace-file={path}", "--trace-level=TIMESTAMPS", "--trace-rate=2", "--trace-count=1")
    with start_server(repository, *old) as server:
        for number in range(4):
            infer(server, identifier=str(number))
        assert server.stop() == 0
        assert "'--trace-rate' has been deprecated and will be removed in future releases" in server.log
    assert [each.request_id for each in read_traces(path)] == ["1"]


def test_a_file_that_cannot_be_written_is_refused_at_the_start(repository: Path, tmp_path: Path) -> None:
    place = tmp_path / "missing" / "t.json"
    done = run_command("serve", f"--model-repository={repository}", *flags(place))
    assert done.returncode == 2
    assert f"cannot write traces to {place}: No such file or directory" in done.stderr


def test_levels_without_a_file_are_remarked_on(repository: Path) -> None:
    with start_server(repository, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1") as server:
        infer(server)
        server.wait_for(
            "no file is named for traces; nothing is traced without --trace-config triton,file=FILE"
        )


def test_a_directory_that_is_gone_costs_traces_and_not_answers(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "below" / "t.json"
    path.parent.mkdir()
    with start_server(repository, *flags(path)) as server:
        path.parent.rmdir()
        infer(server)
        server.wait_for(f"tracing: cannot write to {path}: No such file or directory")
        path.parent.mkdir()
        infer(server, identifier="again")
        assert await_traces(path, bool)[0].request_id == "again"
        server.wait_for("tracing: 1 traced requests were dropped, as they could not be written")


def test_a_writer_that_is_killed_is_replaced(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with start_server(repository, *flags(path)) as server:
        infer(server, identifier="before")
        await_traces(path, lambda traces: len(traces) == 1)
        os.kill(_writer(server), signal.SIGKILL)
        infer(server, identifier="after")
        traces = await_traces(path, lambda traces: len(traces) == 2)
        assert [each.request_id for each in traces] == ["before", "after"]
        assert "tracing: its process ended with status -9; another is started" in server.log


def _writer(server: ServerProcess) -> int:
    """The process that writes traces."""
    tasks = Path(f"/proc/{server.process.pid}/task")
    children = " ".join(each.read_text() for each in tasks.glob("*/children")).split()
    (writer,) = [
        int(child) for child in children if b"trace_writing" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    return writer
