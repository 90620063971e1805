"""The response cache as clients see it, over HTTP and gRPC, against a real server."""

import json
import os
import re
import textwrap
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from numpy.typing import NDArray

from halimede.core.ports import free_port
from tests.support.redis_server import RedisServer, redis_server
from tests.support.server import ServerProcess, run_command, start_server
from tests.support.waiting import wait_until

Array = NDArray[Any]

COUNTING = """
import numpy as np, triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.executed = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            self.executed += 1
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if values.size and values.flat[0] == 666:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("the number of the beast")))
                continue
            made = {
                "OUT": 2 * values,
                "NUMBER": np.array([self.executed], np.int32),
                "TEXT": np.array([str(self.executed)], np.object_),
            }
            wanted = request.requested_output_names()
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor(name, made[name]) for name in made if name in wanted])
            )
        return responses
"""
"""Doubles its input, and tells how many requests it has executed."""

CONFIG = """
backend: "python" parameters { key: "isolation" value { string_value: "none" } }
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1, -1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1, -1] }, { name: "NUMBER" data_type: TYPE_INT32 dims: [1] },
        { name: "TEXT" data_type: TYPE_STRING dims: [1] }]
"""
ENABLED = "response_cache { enable: true }\n"
ENSEMBLE = """
platform: "ensemble"
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1, -1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1, -1] }, { name: "NUMBER" data_type: TYPE_INT32 dims: [1] }]
ensemble_scheduling { step [{
  model_name: "plain" model_version: -1 input_map { key: "IN" value: "IN" }
  output_map { key: "OUT" value: "OUT" } output_map { key: "NUMBER" value: "NUMBER" } }] }
response_cache { enable: true }
"""
SAMPLE = np.array([[1, 2], [3, 4]], np.float32)


def add(repository: Path, name: str, config: str, source: str = COUNTING) -> Path:
    directory = repository / name
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(config)
    if "ensemble" not in config:
        (directory / "1" / "model.py").write_text(textwrap.dedent(source))
    return directory


def fill(repository: Path) -> Path:
    """The models of these tests."""
    add(repository, "counting", CONFIG + ENABLED)
    add(repository, "batching", CONFIG + ENABLED + "dynamic_batching {}\n")
    add(repository, "plain", CONFIG)
    add(repository, "pipeline", ENSEMBLE)
    return repository


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipe; the model `waiting` goes on once it has been opened to be written."""
    path = tmp_path_factory.mktemp("gate") / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture(scope="module")
def server(gate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = fill(tmp_path_factory.mktemp("repository"))
    waiting = COUNTING.replace("self.executed += 1", f"self.executed += 1; open({str(gate)!r}).read()")
    add(repository, "waiting", CONFIG + ENABLED, waiting)
    flags = ("--model-control-mode=explicit", "--load-model=*", "--cache-config=local,size=1048576")
    with start_server(repository, *flags) as started:
        yield started


@pytest.fixture(autouse=True)
def begin_anew(request: pytest.FixtureRequest) -> None:
    """Load the models again, which empties the cache, if the test uses the server of all."""
    if "server" in request.fixturenames:
        started = request.getfixturevalue("server")
        with httpclient.InferenceServerClient(started.http) as client:
            for name in ("plain", "counting", "batching", "pipeline", "waiting"):
                client.unload_model(name)
            for name in ("counting", "batching", "pipeline", "waiting"):
                client.load_model(name)


def infer(
    server: ServerProcess,
    protocol: str,
    model: str = "counting",
    values: Array = SAMPLE,
    outputs: tuple[str, ...] = (),
    request_id: str = "",
    parameters: dict[str, Any] | None = None,
) -> Any:
    """The result of one inference."""
    module = httpclient if protocol == "http" else grpcclient
    with module.InferenceServerClient(getattr(server, protocol)) as client:
        tensor = module.InferInput("IN", values.shape, "FP32")
        tensor.set_data_from_numpy(values)
        wanted = [module.InferRequestedOutput(name) for name in outputs] or None
        return client.infer(model, [tensor], outputs=wanted, request_id=request_id, parameters=parameters)


def number(result: Any) -> int:
    """How many requests the model had executed when it made the result."""
    return int(result.as_numpy("NUMBER")[0])


def statistics(server: ServerProcess, model: str = "counting") -> Any:
    status, body = server.get(f"/v2/models/{model}/stats")
    assert status == 200
    return json.loads(body)["model_stats"][0]


def counts(server: ServerProcess, model: str = "counting") -> dict[str, int]:
    """The counts of `inference_stats`, and those of inferences and executions."""
    told = statistics(server, model)
    found = {name: entry["count"] for name, entry in told["inference_stats"].items()}
    return {**found, "inferences": told["inference_count"], "executions": told["execution_count"]}


def gauges(server: ServerProcess) -> dict[str, float]:
    _, body = server.get("/metrics", server.metrics)
    return {
        name: float(value)
        for name, value in re.findall(r"^(nv_cache\S*) (\S+)$", body.decode(), re.MULTILINE)
    }


@pytest.mark.parametrize("model", ["counting", "batching", "pipeline"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_is_answered_from_the_cache_under_its_own_id(
    server: ServerProcess, protocol: str, model: str
) -> None:
    first = infer(server, protocol, model, request_id="one")
    second = infer(server, protocol, model, request_id="two")
    assert number(first) == number(second) == 1
    assert second.as_numpy("OUT").tolist() == [[2, 4], [6, 8]]
    response = second.get_response() if protocol == "http" else second.get_response(as_json=True)
    assert response["id"] == "two"
    assert counts(server, model) == {
        "success": 2, "fail": 0, "queue": 2, "compute_input": 1, "compute_infer": 1, "compute_output": 1,
        "cache_hit": 1, "cache_miss": 1, "inferences": 1, "executions": 1,
    }  # fmt: skip
    spent = statistics(server, model)["inference_stats"]
    assert 0 < spent["cache_hit"]["ns"] < spent["success"]["ns"]
    assert 0 < spent["cache_miss"]["ns"] < spent["success"]["ns"]


def test_both_protocols_share_the_cache_and_tell_the_same_statistics(server: ServerProcess) -> None:
    assert number(infer(server, "http")) == number(infer(server, "grpc")) == 1
    with grpcclient.InferenceServerClient(server.grpc) as client:
        told = client.get_inference_statistics("counting", as_json=True)["model_stats"][0]
    assert told["inference_stats"]["cache_hit"]["count"] == "1"
    assert told["inference_stats"]["cache_miss"]["count"] == "1"
    body = json.dumps(
        {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]}
    ).encode()
    with urllib.request.urlopen(f"http://{server.http}/v2/models/counting/infer", body) as response:
        outputs = {each["name"]: each["data"] for each in json.load(response)["outputs"]}
    assert outputs == {"OUT": [2, 4, 6, 8], "NUMBER": [1], "TEXT": ["1"]}


def test_shapes_outputs_and_parameters_make_another_request(server: ServerProcess) -> None:
    assert number(infer(server, "http")) == 1
    other = infer(server, "http", values=SAMPLE.reshape(1, 4))
    assert number(other) == 2
    assert other.as_numpy("OUT").shape == (1, 4)
    part = infer(server, "http", outputs=("NUMBER",))
    assert number(part) == 3
    assert part.as_numpy("OUT") is None
    assert number(infer(server, "http", parameters={"temperature": 1})) == 4
    assert number(infer(server, "http", parameters={"temperature": 2})) == 5
    whole = infer(server, "http")
    assert number(whole) == 1
    assert whole.as_numpy("TEXT").tolist() == [b"1"]


def test_priority_and_timeout_make_the_same_request(server: ServerProcess) -> None:
    infer(server, "http", "batching")
    with httpclient.InferenceServerClient(server.http) as client:
        tensor = httpclient.InferInput("IN", [2, 2], "FP32")
        tensor.set_data_from_numpy(SAMPLE)
        result = client.infer("batching", [tensor], priority=3, timeout=1_000_000)
    assert number(result) == 1


def test_errors_are_not_kept(server: ServerProcess) -> None:
    bad = np.array([[666]], np.float32)
    for _ in range(2):
        with pytest.raises(httpclient.InferenceServerException, match="the number of the beast"):
            infer(server, "http", values=bad)
    told = counts(server)
    assert (told["fail"], told["success"], told["cache_hit"], told["cache_miss"]) == (2, 0, 0, 0)


def test_equal_requests_at_once_are_computed_once(server: ServerProcess, gate: Path) -> None:
    results: list[int] = []

    def send(protocol: str) -> None:
        results.append(number(infer(server, protocol, "waiting")))

    threads = [threading.Thread(target=send, args=(protocol,)) for protocol in ("http", "grpc") * 4]
    for thread in threads:
        thread.start()
    wait_until(lambda: in_flight(server) == len(threads), "all requests to arrive")
    with gate.open("w"):
        pass
    for thread in threads:
        thread.join(60)
    told = counts(server, "waiting")
    assert results == [1] * 8
    assert (told["executions"], told["cache_hit"], told["success"]) == (1, 7, 8)


def in_flight(server: ServerProcess) -> float:
    """Requests that the models have not answered."""
    _, body = server.get("/metrics", server.metrics)
    found = re.findall(r"^halimede_requests_in_flight\S* (\S+)$", body.decode(), re.MULTILINE)
    return sum(map(float, found))


def test_metrics_tell_what_the_cache_did(server: ServerProcess) -> None:
    before = gauges(server)
    for _ in range(3):
        infer(server, "grpc")
    infer(server, "grpc", "pipeline")
    told = gauges(server)
    labels = '{model="counting",version="1"}'
    assert told[f"nv_cache_num_hits_per_model{labels}"] == 2
    assert told[f"nv_cache_num_misses_per_model{labels}"] == 1
    assert 'nv_cache_num_hits_per_model{model="plain",version="1"}' not in told
    changes = {name: told[name] - before[name] for name in told if "{" not in name}
    assert changes["nv_cache_num_lookups"] == 4
    assert changes["nv_cache_num_hits"] == 2
    assert changes["nv_cache_num_misses"] == 2
    assert told["nv_cache_num_entries"] == 2
    assert 0 < told["nv_cache_util"] < 0.01


def test_entries_go_with_their_version(server: ServerProcess) -> None:
    infer(server, "http")
    assert gauges(server)["nv_cache_num_entries"] == 1
    with httpclient.InferenceServerClient(server.http) as client:
        client.unload_model("counting")
        assert gauges(server)["nv_cache_num_entries"] == 0
        client.load_model("counting")
    assert number(infer(server, "http")) == 1
    assert counts(server)["executions"] == 1


def test_generate_is_answered_from_the_cache(server: ServerProcess) -> None:
    body = json.dumps({"IN": [[7]]}).encode()
    url = f"http://{server.http}/v2/models/counting/generate"
    with urllib.request.urlopen(url, body) as first, urllib.request.urlopen(url, body) as second:
        one, other = json.load(first), json.load(second)
    assert one == other
    assert one["NUMBER"] == counts(server)["executions"] == 1


def test_a_stream_is_answered_from_the_cache(server: ServerProcess) -> None:
    results: SimpleQueue[Any] = SimpleQueue()
    with grpcclient.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: results.put((result, error)))
        for name in ("one", "two"):
            tensor = grpcclient.InferInput("IN", [2, 2], "FP32")
            tensor.set_data_from_numpy(SAMPLE)
            client.async_stream_infer("counting", [tensor], request_id=name)
            result, error = results.get(timeout=60)
            assert error is None
            assert result.get_response().id == name
            assert number(result) == 1
        client.stop_stream()
    assert counts(server)["cache_hit"] == 1


def test_responses_that_are_too_large_are_computed_each_time(tmp_path: Path) -> None:
    add(tmp_path, "counting", CONFIG + ENABLED)
    large = np.ones((100, 100), np.float32)
    with start_server(tmp_path, "--response-cache-byte-size=4000") as started:
        assert "'--response-cache-byte-size' has been deprecated!" in started.log
        assert [number(infer(started, "http", values=large)) for _ in range(3)] == [1, 2, 3]
        assert [number(infer(started, "http")) for _ in range(2)] == [4, 4]
        assert started.log.count("is greater than total cache size: 4000") == 1


def test_without_a_cache_the_model_is_served_all_the_same(tmp_path: Path) -> None:
    add(tmp_path, "counting", CONFIG + ENABLED)
    with start_server(tmp_path) as started:
        assert [number(infer(started, "http")) for _ in range(2)] == [1, 2]
        assert "'counting' enables the response cache, which has no effect" in started.log
        assert gauges(started) == {}


DECOUPLED = "model_transaction_policy { decoupled: true }"


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What a server and `halimede check` say of models whose responses cannot be kept."""
    repository = tmp_path_factory.mktemp("refused")
    for name, more in (("sequences", "sequence_batching {}"), ("decoupled", DECOUPLED)):
        add(repository, name, f"{CONFIG}{ENABLED}max_batch_size: 4\n{more}\n")
    add(repository, "plain", f"{CONFIG}{DECOUPLED}\n")
    add(repository, "pipeline", ENSEMBLE)
    with start_server(
        repository, "--cache-config=local,size=1000", "--exit-on-error=false", ready=False
    ) as started:
        for name in ("sequences", "decoupled", "pipeline"):
            started.wait_for(f"Response Cache does not currently support model {name}")
        log = started.log
    checked = run_command("check", str(repository))
    assert checked.returncode == 1
    return log, checked.stdout


@pytest.mark.parametrize(
    ("name", "why"),
    [("sequences", "sequence batching scheduler"), ("decoupled", "'decoupled' transaction policy")],
)
def test_sequence_and_decoupled_models_are_refused(refused: tuple[str, str], name: str, why: str) -> None:
    log, checked = refused
    text = f"Response Cache does not currently support model {name} with {why}. Please disable the response cache."
    assert text in log
    assert text in checked
    assert "fix: response_cache { enable: false }" in checked.partition(text)[2].splitlines()[1]


def test_an_ensemble_of_a_decoupled_model_is_refused(refused: tuple[str, str]) -> None:
    text = (
        "Response Cache does not currently support model pipeline with 'decoupled' transaction policy. Please disable "
        "the response cache."
    )
    for said in refused:
        assert text in said


# Redis

PATIENT = "connect_timeout=60000,socket_timeout=60000,wait_timeout=60000"
"""Settings of servers on a busy machine, where a Redis may be slow to answer."""


def test_servers_share_a_redis_and_a_restarted_one_finds_what_it_kept(tmp_path: Path) -> None:
    repository = fill(tmp_path / "repository")
    with redis_server(tmp_path, port=free_port()) as redis:
        flag = f"--cache-config={redis.settings},{PATIENT}"
        with start_server(repository, flag) as one, start_server(repository, flag) as other:
            assert number(infer(one, "http")) == 1
            wait_until(lambda: kept(redis) == 1, "the response to be kept")
            assert number(infer(other, "grpc")) == 1
            assert counts(other)["cache_hit"] == 1
            assert counts(other)["executions"] == 0
            assert number(infer(one, "http", "pipeline")) == 1
            wait_until(lambda: kept(redis) == 2, "the response to be kept")
        with start_server(repository, flag) as again:
            assert number(infer(again, "http")) == number(infer(again, "http", "pipeline")) == 1
            assert counts(again)["executions"] == counts(again, "pipeline")["executions"] == 0
            told = gauges(again)
            assert told["nv_cache_num_hits"] == told["nv_cache_num_lookups"] == 2
            assert "nv_cache_util" not in told


def kept(redis: RedisServer) -> int:
    """How many entries it has."""
    return int(redis.ask("DBSIZE")[1:])


def logged(server: ServerProcess, pattern: str, times: int) -> bool:
    """Whether the log has that text so often."""
    return len(re.findall(pattern, server.log)) >= times


def test_requests_go_on_while_redis_is_killed_and_restarted(tmp_path: Path) -> None:
    repository = fill(tmp_path / "repository")
    failures: list[Exception] = []
    answered = [0] * 4
    over = threading.Event()
    with (
        redis_server(tmp_path) as redis,
        start_server(repository, f"--cache-config={redis.settings},{PATIENT}") as started,
    ):

        def load(worker: int) -> None:
            with httpclient.InferenceServerClient(started.http) as client:
                while not over.is_set():
                    values = np.array([[answered[worker] % 5]], np.float32)
                    tensor = httpclient.InferInput("IN", [1, 1], "FP32")
                    tensor.set_data_from_numpy(values)
                    try:
                        result = client.infer("counting", [tensor])
                        assert result.as_numpy("OUT").tolist() == [[2 * values[0, 0]]]
                    except Exception as error:
                        failures.append(error)
                        return
                    answered[worker] += 1

        def go_on(requests: int) -> None:
            target = [count + requests for count in answered]
            wait_until(lambda: bool(failures) or all(map(int.__ge__, answered, target)), "answers")

        threads = [threading.Thread(target=load, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        try:
            for lost in range(1, 4):
                go_on(20)
                redis.kill()
                wait_until(
                    partial(logged, started, "redis [^ ]* failed, and is left out", lost), "the failure"
                )
                go_on(20)
                redis.start()
                wait_until(
                    partial(logged, started, "redis [^ ]* works again", lost), "Redis to be used again"
                )
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
        assert failures == []
        assert counts(started)["fail"] == 0
        assert counts(started)["cache_hit"] > 0


def test_a_redis_that_is_not_there_does_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    repository = fill(tmp_path)
    with start_server(
        repository, f"--cache-config=redis,host=127.0.0.1,port={free_port()},password=hush"
    ) as started:
        started.wait_for("failed, and is left out until it works again")
        assert [number(infer(started, "http")) for _ in range(2)] == [1, 2]
        assert "hush" not in started.log
