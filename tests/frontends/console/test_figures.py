"""A known load, and the figures of everything that tells of it: each has to say what was sent."""

import json
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from playwright.sync_api import Browser, expect
from tritonclient.utils import InferenceServerException

from halimede.top.rates import ModelRates, rates
from halimede.top.snapshot import of_console
from tests.support.browser import opened
from tests.support.meanwhile import meanwhile
from tests.support.server import ServerProcess, run_command, start_server
from tests.support.waiting import wait_until

_WORK = """
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.gate = GATE

    def execute(self, requests):
        responses = []
        for request in requests:
            numbers = pb_utils.get_input_tensor_by_name(request, "numbers").as_numpy()
            time.sleep(0.002)  # not so quick that it is sent the next request ahead, which cannot be cancelled then
            while (numbers == 77).any() and not os.path.exists(self.gate):
                time.sleep(0.01)
            if (numbers < 0).any():
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("negative")))
            else:
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("numbers", numbers)]))
        return responses
"""
_CALL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="work", requested_output_names=["numbers"], inputs=request.inputs()
            )
            answer = call.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            responses.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return responses
"""
_TENSORS = """
max_batch_size: 4
input { name: "numbers" data_type: TYPE_INT32 dims: 1 }
output { name: "numbers" data_type: TYPE_INT32 dims: 1 }
"""
_PIPELINE = """
platform: "ensemble"
max_batch_size: 4
input { name: "numbers" data_type: TYPE_INT32 dims: 1 }
output { name: "result" data_type: TYPE_INT32 dims: 1 }
ensemble_scheduling {
  step { model_name: "work" model_version: -1
    input_map { key: "numbers" value: "numbers" } output_map { key: "numbers" value: "middle" } }
  step { model_name: "same" model_version: -1
    input_map { key: "numbers" value: "middle" } output_map { key: "numbers" value: "result" } }
}
"""
_CACHED = 'backend: "identity" response_cache { enable: true }' + _TENSORS

SUCCESS = {"work": 11, "same": 3, "pipeline": 3, "caller": 2, "cached": 3}
BY_OTHERS = {"work": 5, "same": 3}
FAILURES = {"work": {"BACKEND": 2, "CANCELED": 1}, "pipeline": {"OTHER": 1}}
CACHE_HITS = {"cached": 2}
INFERENCES = {"work": 16, "same": 3, "pipeline": 3, "caller": 2, "cached": 1}
"""Rows: direct requests have 1, 1, 1, 3, 1 and 2, a failed one counts too, and hits of the cache are not computed."""
OF_CLIENTS = 3 + 2 + 4 + 2 + 3
STATUSES = {
    ("HTTP", "200"): 12, ("HTTP", "400"): 2, ("HTTP", "404"): 1, ("HTTP", "499"): 1, ("HTTP", "500"): 2,
    ("gRPC", "OK"): 2, ("gRPC", "INVALID_ARGUMENT"): 1,
}  # fmt: skip
"""Of inferences, as the access log names them."""
CLIENT_ERRORS = 2 + 1 + 1 + 1
"""Health checks that are told that the server is not ready yet are none."""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def access_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "access.jsonl"


@pytest.fixture(scope="module")
def loaded(
    tmp_path_factory: pytest.TempPathFactory, gate: Path, access_log: Path
) -> Iterator[tuple[ServerProcess, dict[str, Any]]]:
    """A server that had the load, and its snapshot from before."""
    repository = tmp_path_factory.mktemp("repository")
    python = 'backend: "python" instance_group { kind: KIND_CPU count: 1 }' + _TENSORS
    models = {
        "work": (python, _WORK.replace("GATE", repr(str(gate)))),
        "caller": (python, _CALL),
        "same": ('backend: "identity"' + _TENSORS, ""),
        "cached": (_CACHED, ""),
        "pipeline": (_PIPELINE, ""),
    }
    for name, (config, code) in models.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
        if code:
            (repository / name / "1" / "model.py").write_text(code)
    flags = ("--cache-config=local,size=1048576", "--access-log=json", f"--access-log-file={access_log}")
    with start_server(repository, *flags) as server:
        before = snapshot(server)
        send_all(server, gate)
        yield server, before


def snapshot(server: ServerProcess) -> dict[str, Any]:
    """What the console and `halimede top` read."""
    found: dict[str, Any] = json.loads(server.get("/v2/console/snapshot")[1])
    return found


def model_in(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A model of a snapshot."""
    [found] = [each for each in document["models"] if each["name"] == name]
    return dict(found)


def numbers(values: list[int], kind: Any = httpclient) -> Any:
    """The input of all models: a row for each value."""
    tensor = kind.InferInput("numbers", [len(values), 1], "INT32")
    tensor.set_data_from_numpy(np.array(values, np.int32).reshape(-1, 1))
    return tensor


def send_all(server: ServerProcess, gate: Path) -> None:
    """The load, of which each request is over before the next begins, but for those that `send_gated` sends."""
    with httpclient.InferenceServerClient(server.http) as client:
        for values in ([1], [2], [3, 4, 5]):
            client.infer("work", [numbers(values)])
        for number in range(3):
            client.infer("pipeline", [numbers([number])])
            client.infer("cached", [numbers([7])])
        for number in range(2):
            client.infer("caller", [numbers([number])])
        for name in ("work", "pipeline"):
            with pytest.raises(InferenceServerException, match="negative"):
                client.infer(name, [numbers([-1])])
        wrong = httpclient.InferInput("numbers", [1, 1], "FP32")
        wrong.set_data_from_numpy(np.zeros((1, 1), np.float32))
        for name in ("work", "pipeline"):
            with pytest.raises(InferenceServerException, match="FP32"):
                client.infer(name, [wrong])
        with pytest.raises(InferenceServerException, match="nobody"):
            client.infer("nobody", [numbers([1])])
    with grpcclient.InferenceServerClient(server.grpc) as client:
        for values in ([1], [2, 3]):
            client.infer("work", [numbers(values, grpcclient)])
        with pytest.raises(InferenceServerException, match="numbers"):
            client.infer("work", [])
    send_gated(server, gate)


def send_gated(server: ServerProcess, gate: Path) -> None:
    """A request that is computed until the gate opens, beside one whose client goes while it waits."""
    tensors = [{"name": "numbers", "datatype": "INT32", "shape": [1, 1], "data": [77]}]
    body = json.dumps({"inputs": tensors}).encode()
    head = f"POST /v2/models/work/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    host, _, port = server.http.rpartition(":")

    def waits(pending: int, inflight: int, cancelled: int) -> bool:
        work = model_in(snapshot(server), "work")
        found = (work["pending"], work["inflight"], work["counters"]["failures"]["CANCELED"])
        return found == (pending, inflight, cancelled)

    with socket.create_connection((host, int(port)), 30) as computed:
        computed.sendall(head + body)
        wait_until(lambda: waits(0, 1, 0), lambda: "an execution")
        with closing(socket.create_connection((host, int(port)), 30)) as leaving:
            leaving.sendall(head + body)
            wait_until(lambda: waits(1, 2, 0), lambda: "a request in the queue")
            shown = run_command("top", "-u", server.http, "-n", "1", "-d", "10ms").stdout
            [row] = [line.split() for line in shown.splitlines() if line.strip().startswith("work 1")]
            assert "1/1" in row
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # it is reset
        wait_until(lambda: waits(0, 1, 1), lambda: "a cancelled request")
        gate.touch()
        assert computed.recv(1000).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: waits(0, 0, 1), lambda: "the end")


Loaded = tuple[ServerProcess, dict[str, Any]]


def sums(name: str, server: ServerProcess, *labels: str) -> dict[tuple[str, ...], int]:
    """The values of a metric by some of its labels; those that are 0 are left out."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in server.get("/metrics", server.metrics)[1].decode().splitlines():
        if line.startswith(name + "{"):
            told = dict(re.findall(r'(\w+)="([^"]*)"', line))
            found[tuple(told[label] for label in labels)] += int(line.rpartition(" ")[2])
    return {key: value for key, value in found.items() if value}


def flat(counts: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    """Counts by model as `sums` has them."""
    return {(name,): count for name, count in counts.items()}


def test_the_snapshot_has_what_was_sent(loaded: Loaded) -> None:
    models = snapshot(loaded[0])["models"]
    assert {each["name"]: each["counters"]["success"] for each in models} == SUCCESS
    assert {each["name"]: each["counters"]["inferences"] for each in models} == INFERENCES
    assert {name: model_in({"models": models}, name)["nested"]["success"] for name in BY_OTHERS} == BY_OTHERS
    failures = {
        each["name"]: {why: count for why, count in each["counters"]["failures"].items() if count}
        for each in models
    }
    assert {name: counts for name, counts in failures.items() if counts} == FAILURES
    assert model_in({"models": models}, "work")["nested"]["failures"]["BACKEND"] == 1
    assert [each["nested"]["inflight"] + each["inflight"] for each in models] == [0] * len(models)
    for each in models:
        assert sum(each["request_us"]) == SUCCESS[each["name"]]
        assert sum(each["nested"]["request_us"]) == BY_OTHERS.get(each["name"], 0)
        assert each["counters"]["cache_hits"] == CACHE_HITS.get(each["name"], 0)


def test_metrics_have_what_was_sent(loaded: Loaded) -> None:
    server, _ = loaded
    assert sums("nv_inference_request_success", server, "model") == flat(SUCCESS)
    assert sums("nv_inference_count", server, "model") == flat(INFERENCES)
    assert sums("nv_inference_request_duration_histogram_us_count", server, "model") == flat(SUCCESS)
    assert sums("nv_cache_num_hits_per_model", server, "model") == flat(CACHE_HITS)
    assert sums("nv_inference_request_failure", server, "model", "reason") == {
        (name, why): count for name, reasons in FAILURES.items() for why, count in reasons.items()
    }
    over_http = {(status,): count for (protocol, status), count in STATUSES.items() if protocol == "HTTP"}
    routed = sums("halimede_http_requests_total", server, "route", "status")
    assert {(status,): count for (route, status), count in routed.items() if route == "infer"} == over_http
    over_grpc = {
        ("ModelInfer", status): count for (kind, status), count in STATUSES.items() if kind == "gRPC"
    }
    assert sums("halimede_grpc_requests_total", server, "method", "status") == over_grpc


def test_statistics_have_what_was_sent(loaded: Loaded) -> None:
    found = json.loads(loaded[0].get("/v2/models/stats")[1])["model_stats"]
    assert {each["name"]: each["inference_count"] for each in found} == INFERENCES
    parts = {each["name"]: each["inference_stats"] for each in found}
    assert {name: each["success"]["count"] for name, each in parts.items()} == SUCCESS
    failed = {name: each["fail"]["count"] for name, each in parts.items() if each["fail"]["count"]}
    assert failed == {name: sum(reasons.values()) for name, reasons in FAILURES.items()}
    assert {
        name: each["cache_hit"]["count"] for name, each in parts.items() if name in CACHE_HITS
    } == CACHE_HITS


def test_the_access_log_has_what_was_sent(loaded: Loaded, access_log: Path) -> None:
    def inferences() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in access_log.read_text().splitlines()]
        return [each for each in lines if each["path"].endswith(("/infer", "/ModelInfer"))]

    wait_until(lambda: len(inferences()) >= sum(STATUSES.values()), lambda: "all lines")
    assert Counter((each["protocol"], str(each["status"])) for each in inferences()) == STATUSES
    answered = [each for each in inferences() if str(each["status"]) in ("200", "OK")]
    of_clients = {name: count - BY_OTHERS.get(name, 0) for name, count in SUCCESS.items()}
    assert Counter(each["model"] for each in answered) == Counter(of_clients)


def test_top_has_what_was_sent(loaded: Loaded) -> None:
    server, before = loaded
    early, late = of_console(before), of_console(snapshot(server))
    seconds = late.time - early.time
    rows = {row.figures.key[1]: row for row in rates(early, late)}

    def counts(rate: str) -> dict[str, int]:
        found = {name: round(getattr(row, rate) * seconds) for name, row in rows.items()}
        return {name: count for name, count in found.items() if count}

    assert counts("requests") == SUCCESS
    assert counts("inferences") == INFERENCES
    assert counts("failures") == {"work": 2, "pipeline": 1}
    assert counts("cancelled") == {"work": 1}
    assert {name: hits_of(row) for name, row in rows.items() if row.hits} == CACHE_HITS
    grpc = {status: count for (protocol, status), count in late.statuses.items() if protocol == "grpc"}
    assert grpc == {status: count for (protocol, status), count in STATUSES.items() if protocol == "gRPC"}


def hits_of(row: ModelRates) -> int:
    """How many requests the cache answered."""
    return round((row.hits or 0) * row.figures.requests)


def test_the_page_counts_each_request_of_a_client_once(loaded: Loaded, browser: Browser) -> None:
    server, _ = loaded
    with opened(browser) as page:
        page.goto(f"http://{server.http}/console#/")
        tile = {
            name: page.locator(".tile").filter(has=page.get_by_role("heading", name=name, exact=True))
            for name in ("Requests/s", "Failed", "Client errors", "Queued")
        }
        expect(tile["Requests/s"]).to_contain_text(f"{OF_CLIENTS} answered in all")
        expect(tile["Failed"].locator(".figure")).to_have_text("2")
        expect(tile["Failed"]).to_contain_text("1 cancelled")
        expect(tile["Client errors"].locator(".figure")).to_have_text(str(CLIENT_ERRORS))
        expect(tile["Queued"]).to_contain_text("0 in flight")
        rows = page.get_by_role("region", name="Models").get_by_role("row")
        for name, failed in (("work", "2"), ("pipeline", "1"), ("caller", "0")):
            expect(rows.filter(has_text=name).get_by_role("cell").nth(6)).to_have_text(failed)
        answers = page.get_by_role("region", name="Answers").get_by_role("row")
        for status, count in (("404", 1), ("499", 1), ("INVALID_ARGUMENT", 1)):
            expect(answers.filter(has_text=status).get_by_role("cell").nth(1)).to_have_text(str(count))


def test_the_latency_of_an_ensemble_is_that_of_its_requests(loaded: Loaded, browser: Browser) -> None:
    """Steps and calls are no requests of clients: the figures of all models hold those of ensembles alone."""
    server, _ = loaded

    def send() -> None:
        with httpclient.InferenceServerClient(server.http) as client:
            client.infer("pipeline", [numbers([1])])

    with opened(browser) as page, meanwhile((send, 0.02)):
        page.goto(f"http://{server.http}/console#/")
        row = page.get_by_role("region", name="Models").get_by_role("row").filter(has_text="pipeline")
        head = page.locator(".tile").filter(has=page.get_by_role("heading", name="Latency p50", exact=True))
        expect(head.locator(".figure")).to_contain_text("s")
        same = """() => {
            const tile = (name) => [...document.querySelectorAll('.tile')]
                .find((each) => each.textContent.includes(name)).querySelector('.figure').textContent;
            const [, , rate, p50] = [...document.querySelectorAll('.models tr')]
                .find((each) => each.textContent.includes('pipeline')).children;
            return p50.textContent !== '–' && tile('Latency p50') === p50.textContent
                && tile('Requests/s') === rate.textContent;
        }"""
        expect(row).to_be_visible()
        page.wait_for_function(same)
