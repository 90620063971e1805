"""A real server that loads models when they are asked for, with room for some of them only."""

import gzip
import json
import random
import socket
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from onnx import TensorProto, helper, numpy_helper
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from tests.python_models.support import FLOATS, answering, executing, grpc_inputs, http_inputs, python_model
from tests.support import onnx_models
from tests.support.server import ServerProcess, start_server

ROWS, COLUMNS = 512, 4096
MIB = 1 << 20
ONNX = [f"onnx{number}" for number in range(1, 6)]
PYTHON = [f"python{number}" for number in range(1, 4)]
BUDGET = 30 * MIB
"""Room for three of the ONNX models, whose weights are 8 MiB, or for more of the Python models."""

GATED = """
class TritonPythonModel:
    def initialize(self, args):
        while not os.path.exists(os.path.join(args["model_repository"], "go")):
            time.sleep(0.01)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() * 7)]
            )
            for request in requests
        ]
"""
"""A model whose load ends when there is a file `go` in its directory."""

CALLING = """
responses = []
for request in requests:
    x = pb_utils.get_input_tensor_by_name(request, "IN")
    call = pb_utils.InferenceRequest(model_name="python2", requested_output_names=["OUT"], inputs=[x])
    answer = call.exec()
    if answer.has_error():
        raise pb_utils.TritonModelException(answer.error().message())
    out = pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
    responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out + 1)]))
return responses
"""

ONES = np.ones((1, ROWS), np.float32)


def write_onnx(repository: Path, name: str, factor: float) -> None:
    """A model whose every output is `factor` times the sum of its inputs, with 8 MiB of weights."""
    weights = np.full((ROWS, COLUMNS), factor, np.float32)
    model = onnx_models.build(
        [helper.make_node("MatMul", ["IN", "W"], ["OUT"])],
        {"IN": (TensorProto.FLOAT, ["batch", ROWS])},
        {"OUT": (TensorProto.FLOAT, ["batch", COLUMNS])},
        [numpy_helper.from_array(weights, "W")],
    )
    onnx_models.write_model(repository, name, model)


def write_ensemble(repository: Path, name: str, *steps: str) -> None:
    """A chain of Python models."""
    (repository / name / "1").mkdir(parents=True)
    tensors = ["IN", *(f"T{number}" for number in range(1, len(steps))), "OUT"]
    entries = ", ".join(
        f'{{ model_name: "{step}" model_version: -1 input_map {{ key: "IN" value: "{one}" }} '
        f'output_map {{ key: "OUT" value: "{two}" }} }}'
        for step, one, two in zip(steps, tensors, tensors[1:], strict=False)
    )
    (repository / name / "config.pbtxt").write_text(
        f'platform: "ensemble"\n{FLOATS}\nensemble_scheduling {{ step [ {entries} ] }}'
    )


def write_gated(repository: Path) -> tuple[str, Callable[[], None]]:
    """A new model, and a function that lets its load end."""
    name = f"gated-{uuid4().hex}"
    python_model(repository, name, GATED, FLOATS)
    return name, (repository / name / "go").touch


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    for number, name in enumerate(ONNX, 1):
        write_onnx(directory, name, number)
    for number, name in enumerate(PYTHON, 1):
        python_model(directory, name, answering(f"x * {number * 10}"), FLOATS)
    python_model(directory, "calling", executing(CALLING), FLOATS)
    write_ensemble(directory, "chain", "python1", "python3")
    (directory / "broken" / "1").mkdir(parents=True)
    (directory / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    (directory / "large" / "1").mkdir(parents=True)
    with (directory / "large" / "1" / "model.onnx").open("wb") as file:
        file.truncate(200 * MIB)
    return directory


class OnDemand:
    """A server with clients."""

    def __init__(self, server: ServerProcess, repository: Path) -> None:
        self.server = server
        self.repository = repository
        self.http = httpclient.InferenceServerClient(server.http, concurrency=32, network_timeout=60)
        self.grpc = grpcclient.InferenceServerClient(server.grpc)

    def close(self) -> None:
        self.http.close()
        self.grpc.close()

    def infer(self, name: str, array: Any = None, *, over: str = "http", timeout: float = 60) -> Any:
        """The output of a model for an input of its size."""
        if array is None:
            array = ONES if name in ONNX else np.ones(4, np.float32)
        if over == "http":  # its clients belong to one thread
            with httpclient.InferenceServerClient(self.server.http, network_timeout=60) as http:
                return http.infer(name, http_inputs(IN=array)).as_numpy("OUT")
        return self.grpc.infer(name, grpc_inputs(IN=array), client_timeout=timeout).as_numpy("OUT")

    def error(self, name: str, **options: Any) -> tuple[str, str]:
        """Status and text of the error that a request is answered with."""
        with pytest.raises(InferenceServerException) as caught:
            self.infer(name, **options)
        return str(caught.value.status()), str(caught.value.message())

    def index(self) -> dict[str, tuple[str, str]]:
        """Model → state and reason."""
        return {
            row["name"]: (row.get("state", ""), row.get("reason", ""))
            for row in self.http.get_model_repository_index()
        }

    def metrics(self) -> dict[str, dict[str, float]]:
        """Family → model → value; "" for a family without models."""
        _, body = self.server.get("/metrics", self.server.metrics)
        return {
            family.name: {sample.labels.get("model", ""): sample.value for sample in family.samples}
            for family in text_string_to_metric_families(body.decode())
            if family.name.startswith("halimede_")
        }

    def loads(self, name: str) -> int:
        """How often the model was begun to be loaded."""
        return self.server.log.count(f"loading: {name}:1")


@contextmanager
def serve(repository: Path, *flags: str) -> Iterator[OnDemand]:
    with start_server(repository, "--model-control-mode=ondemand", *flags) as server:
        running = OnDemand(server, repository)
        try:
            yield running
        finally:
            running.close()


@pytest.fixture(scope="module")
def served(repository: Path) -> Iterator[OnDemand]:
    with serve(repository, f"--model-memory-budget={BUDGET}") as running:
        yield running


def expected(name: str) -> float:
    """What each element of a model's output is."""
    if name == "chain":
        return 300
    number = int(name[-1])
    return number * ROWS if name in ONNX else number * 10


def test_models_come_and_go_and_every_answer_is_right(served: OnDemand) -> None:
    names = [*ONNX, *PYTHON, "chain"]

    def client(number: int) -> list[tuple[str, bool]]:
        chosen = random.Random(number)
        outcomes = []
        for step in range(15):
            name = chosen.choice(names)
            out = served.infer(name, over="grpc" if step % 2 else "http")
            outcomes.append((name, bool((out == expected(name)).all())))
        return outcomes

    with ThreadPoolExecutor(6) as threads:
        outcomes = [outcome for answers in threads.map(client, range(6)) for outcome in answers]
    assert [name for name, right in outcomes if not right] == []
    metrics = served.metrics()
    assert metrics["halimede_model_evictions"][""] > 5
    held = metrics["halimede_model_memory_bytes"]
    assert sum(held.values()) <= metrics["halimede_model_memory_budget_bytes"][""] == BUDGET
    assert all(held[name] > 4 * MIB for name in held if name in ONNX)
    index = served.index()
    assert {name for name, (state, _) in index.items() if state == "READY"} - {"chain"} == set(held)
    assert {index[name] for name in names} <= {("READY", ""), ("UNAVAILABLE", "unloaded"), ("", "")}
    assert served.server.get("/v2/health/ready")[0] == 200


def test_concurrent_first_requests_cause_one_load(served: OnDemand) -> None:
    name, release = write_gated(served.repository)
    with ThreadPoolExecutor(16) as threads:
        answers = [
            threads.submit(served.infer, name, over=over) for over in ("http", "grpc") for _ in range(8)
        ]
        served.server.wait_for(f"loading: {name}:1")
        release()
        assert all((answer.result(60) == 7).all() for answer in answers)
    assert served.loads(name) == 1


def test_a_request_gives_up_at_its_deadline_while_the_load_goes_on(served: OnDemand) -> None:
    name, release = write_gated(served.repository)
    status, _ = served.error(name, over="grpc", timeout=2)
    assert status == "StatusCode.DEADLINE_EXCEEDED"
    assert served.index()[name][0] == "LOADING"
    release()
    assert (served.infer(name, over="grpc") == 7).all()
    assert served.loads(name) == 1


def test_a_request_waits_no_longer_than_the_flag_says(tmp_path: Path) -> None:
    name, release = write_gated(tmp_path)
    with serve(tmp_path, "--ondemand-timeout-secs=1") as served:
        assert served.error(name) == (
            "503", f"model '{name}' is still being loaded after 1 s; the load goes on",
        )  # fmt: skip
        release()
        served.server.wait_for(f"successfully loaded '{name}'")
        assert (served.infer(name) == 7).all()


def test_a_client_that_leaves_stops_no_load(served: OnDemand) -> None:
    name, release = write_gated(served.repository)
    host, port = served.server.http.split(":")
    body = json.dumps(
        {"inputs": [{"name": "IN", "shape": [4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}
    ).encode()
    with socket.create_connection((host, int(port))) as client:
        client.sendall(
            b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
            % (name.encode(), len(body), body)
        )
        served.server.wait_for(f"loading: {name}:1")
    release()
    served.server.wait_for(f"successfully loaded '{name}'")
    assert (served.infer(name) == 7).all()
    assert served.loads(name) == 1


def test_a_broken_model_fails_alone(served: OnDemand) -> None:
    status, text = served.error("broken")
    assert status == "400"
    assert text.startswith("load failed for model 'broken': version 1 is at UNAVAILABLE state: ")
    assert (served.infer("onnx1") == ROWS).all()
    assert served.index()["broken"][0] == "UNAVAILABLE"
    assert served.server.get("/v2/health/ready")[0] == 200
    assert served.error("nothing") == ("404", "Request for unknown model: 'nothing' is not found")
    assert served.error("nothing", over="grpc")[0] == "StatusCode.NOT_FOUND"


def test_a_model_larger_than_the_budget_is_unavailable_and_others_stay(served: OnDemand) -> None:
    served.infer("onnx1")
    status, text = served.error("large")
    assert status == "503"
    assert text == (
        "model 'large' needs 250.0 MiB of memory, more than all models may take together (30.0 MiB); "
        "raise --model-memory-budget"
    )
    assert served.error("large", over="grpc")[0] == "StatusCode.UNAVAILABLE"
    assert served.index()["onnx1"] == ("READY", "")


def test_descriptions_load_a_model_but_readiness_and_statistics_do_not(served: OnDemand) -> None:
    http, grpc = served.http, served.grpc
    for describe in (
        http.get_model_metadata,
        http.get_model_config,
        grpc.get_model_metadata,
        grpc.get_model_config,
    ):
        http.unload_model("python1")
        assert not http.is_model_ready("python1")
        assert not grpc.is_model_ready("python1")
        with pytest.raises(InferenceServerException, match="'python1' is not available"):
            http.get_inference_statistics("python1")
        assert served.index()["python1"][0] != "READY"
        assert describe("python1")
        assert http.is_model_ready("python1")


def test_clients_may_load_and_unload_too(served: OnDemand) -> None:
    served.http.load_model("python3")
    assert served.http.is_model_ready("python3")
    served.grpc.unload_model("python3")
    assert (served.infer("python3") == 30).all()


def test_requests_of_a_stream_wait_for_their_models(served: OnDemand) -> None:
    for name in PYTHON:
        served.http.unload_model(name)
    answers: SimpleQueue[Any] = SimpleQueue()
    with grpcclient.InferenceServerClient(served.server.grpc) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        for number, name in enumerate(PYTHON * 2):
            client.async_stream_infer(name, grpc_inputs(IN=np.ones(4, np.float32)), request_id=str(number))
        results = [answers.get(timeout=60) for _ in range(6)]
        client.stop_stream()
    assert [result.get_response().id for result in results] == [str(number) for number in range(6)]
    assert [result.as_numpy("OUT")[0] for result in results] == [10, 20, 30] * 2


def test_generate_waits_for_its_model(served: OnDemand) -> None:
    served.http.unload_model("python2")
    request = urllib.request.Request(
        f"http://{served.server.http}/v2/models/python2/generate", json.dumps({"IN": [1, 2]}).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        assert json.loads(response.read())["OUT"] == [20, 40]


def test_a_model_that_calls_another_waits_for_it(served: OnDemand) -> None:
    served.http.unload_model("python2")
    assert (served.infer("calling") == 21).all()


def test_a_large_compressed_request_reaches_its_model(served: OnDemand) -> None:
    served.http.unload_model("onnx2")
    array = np.random.default_rng(0).integers(0, 9, (4, ROWS)).astype(np.float32)
    result = served.http.infer("onnx2", http_inputs(IN=array), request_compression_algorithm="gzip")
    assert (result.as_numpy("OUT") == 2 * array.sum(1, keepdims=True)).all()
    assert len(gzip.compress(array.tobytes())) < 4096  # decompressed at once
    array = np.random.default_rng(0).random((4, ROWS), np.float32)
    served.http.unload_model("onnx2")
    result = served.http.infer("onnx2", http_inputs(IN=array), request_compression_algorithm="gzip")
    assert np.allclose(result.as_numpy("OUT"), 2 * array.sum(1, keepdims=True), rtol=1e-4)
    assert len(gzip.compress(array.tobytes())) > 4096  # in a thread


def test_explicit_mode_with_a_budget_refuses_what_does_not_fit(repository: Path) -> None:
    with start_server(
        repository, "--model-control-mode=explicit", "--model-memory-budget=14MiB", "--load-model=onnx1"
    ) as server:
        served = OnDemand(server, repository)
        with pytest.raises(InferenceServerException) as caught:
            served.http.load_model("onnx2")
        assert caught.value.status() == "503"
        assert "that all models may take together" in caught.value.message()
        assert served.index()["onnx1"] == ("READY", "")
        served.http.unload_model("onnx1")
        served.server.wait_for("successfully unloaded 'onnx1' version 1")
        served.http.load_model("onnx2")
        assert (served.infer("onnx2") == 2 * ROWS).all()
        served.close()


def test_memory_does_not_grow_as_models_come_and_go(served: OnDemand) -> None:
    def resident() -> int:
        lines = Path(f"/proc/{served.server.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    for name in ONNX * 2:
        served.infer(name)
    before = resident()
    for name in ONNX * 4:
        served.infer(name)
    assert resident() < 1.1 * before


def test_more_instances_are_refused_if_there_is_no_room_for_them(tmp_path: Path) -> None:
    source = answering("x").replace(
        "def execute",
        "def initialize(self, args):\n        self.held = np.ones(30 << 20, np.int8)\n\n    def execute",
    )
    config = python_model(tmp_path, "held", source, FLOATS).parents[1] / "config.pbtxt"
    text = config.read_text()
    flags = ("--model-control-mode=explicit", "--load-model=held", "--model-memory-budget=160MiB")
    with start_server(tmp_path, *flags) as server:
        served = OnDemand(server, tmp_path)

        def change(count: int) -> None:
            config.write_text(f"{text} instance_group {{ count: {count} kind: KIND_CPU }}")
            served.http.load_model("held")

        change(2)
        with pytest.raises(InferenceServerException) as caught:
            change(8)
        assert caught.value.status() == "503"
        assert "model 'held' needs" in caught.value.message()
        assert (served.infer("held") == 1).all()
        change(1)
        change(2)
        assert served.http.get_inference_statistics("held")["model_stats"][0]["inference_count"] == 1
        assert "changed the instances of 'held' version 1" in server.log
        served.close()
