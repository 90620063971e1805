"""Measurements of a real server."""

import socket
from pathlib import Path

import numpy as np
import pytest

from halimede.bench.arrivals import Arrivals
from halimede.bench.clients.lane import now
from halimede.bench.data import Making
from halimede.bench.errors import BenchError
from halimede.bench.histogram import Histogram
from halimede.bench.load import END, started
from halimede.bench.measure import Measuring, Progress, measure
from halimede.bench.plan import Level, Sequences
from halimede.bench.results import LevelResult
from halimede.bench.windows import Window, need_success
from halimede.bench.workload import Kind, Workload, prepare
from tests.bench.conftest import Script, scripted
from tests.support.server import ServerProcess
from tests.support.waiting import let_pass

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def run(workload: Workload, *levels: Level, measuring: Measuring | None = None) -> list[LevelResult]:
    prepared = prepare(workload)
    measuring = measuring or Measuring(0.2, windows=3, tolerance=10, warm_up_s=0.1, rows=prepared.rows)
    return list(measure(prepared.plan, levels, measuring, prepared.ask, lambda _: None))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("model", ["numbers", "texts"])
def test_closed_loop(server: ServerProcess, protocol: str, model: str) -> None:
    url = server.http if protocol == "http" else server.grpc
    workload = Workload(url=url, grpc=protocol == "grpc", model=model, processes=1, making=Making(batch=2))
    one, four = run(workload, Level(1), Level(4))
    for result in (one, four):
        assert (result.errors, result.rows, result.open_loop) == ({}, 2, False)
        assert result.inferences == pytest.approx(2 * result.throughput)
        assert result.latency.count > 30
        assert result.service.to_json() == result.latency.to_json()
        [in_server] = result.server
        assert (in_server.model, in_server.failures) == (model, 0)
        assert in_server.inferences == 2 * in_server.requests
        assert 0 < in_server.request_us < result.latency.mean / 1000
    # by Little's law: so many requests were under way, rather than one or eight
    assert four.throughput * four.latency.mean / 1e9 == pytest.approx(4, rel=0.6)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("poisson", [False, True])
def test_open_loop_keeps_its_rate(server: ServerProcess, protocol: str, poisson: bool) -> None:
    url = server.http if protocol == "http" else server.grpc
    workload = Workload(url=url, grpc=protocol == "grpc", model="numbers", processes=1)
    measuring = Measuring(0.5, windows=3, tolerance=10, warm_up_s=0.2)
    [result] = run(workload, Level(arrivals=Arrivals(200, poisson)), measuring=measuring)
    assert result.throughput == pytest.approx(200, rel=0.35 if poisson else 0.15)
    assert result.errors == {}
    assert result.open_loop


def test_exactly_so_many_requests(server: ServerProcess) -> None:
    workload = Workload(url=server.http, model="numbers", processes=2)
    closed, opened = run(workload, Level(3, requests=101), Level(arrivals=Arrivals(500), requests=51))
    assert (closed.requests, opened.requests) == (101, 51)
    [in_server] = closed.server
    assert in_server.requests == 101


def test_windows_that_end_by_count(server: ServerProcess) -> None:
    measuring = Measuring(window_requests=40, windows=3, tolerance=10, warm_up_s=0)
    [result] = run(Workload(url=server.http, model="numbers"), Level(2), measuring=measuring)
    assert result.requests >= 3 * 40 - 20


def test_a_request_larger_than_the_window_of_http2(server: ServerProcess) -> None:
    making = Making(shapes={"INPUT0": (300_000,)})
    workload = Workload(url=server.grpc, grpc=True, model="varying", making=making)
    [result] = run(workload, Level(2, requests=8))
    assert (result.requests, result.errors) == (8, {})


@pytest.mark.parametrize("way", ["http", "grpc", "stream"])
def test_sequences_begin_and_end(server: ServerProcess, way: str) -> None:
    workload = Workload(
        url=server.http if way == "http" else server.grpc,
        grpc=way != "http",
        streaming=way == "stream",
        model="sequence",
        sequences=Sequences(5, first=1000),
        connections=3,
        processes=1,
    )
    result, opened = run(workload, Level(3), Level(arrivals=Arrivals(200)))
    assert (result.errors, opened.errors) == ({}, {})
    assert result.requests > 20
    assert opened.requests > 20


def repeat_data(path: Path, responses: int) -> Path:
    numbers = ", ".join("1" for _ in range(responses))
    delays = ", ".join("2" for _ in range(responses))
    path.write_text(
        f'{{"data": [{{"IN": {{"content": [{numbers}], "shape": [{responses}]}}, "WAIT": [0],'
        f' "DELAY": {{"content": [{delays}], "shape": [{responses}]}}}}]}}'
    )
    return path


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_streams_of_responses(server: ServerProcess, tmp_path: Path, protocol: str) -> None:
    workload = Workload(
        url=server.http if protocol == "http" else server.grpc,
        grpc=protocol == "grpc",
        streaming=True,
        model="repeat",
        input_data=repeat_data(tmp_path / "data.json", 4),
    )
    [result] = run(workload, Level(2))
    assert result.errors == {}
    assert result.responses == 4 * result.requests
    assert result.gaps.percentile(50) > 1e6  # the model waits 2 ms before each
    assert result.first.percentile(50) < result.latency.percentile(50) - 3e6


def test_decoupled_models_need_a_stream(server: ServerProcess) -> None:
    with pytest.raises(BenchError, match="it needs --streaming"):
        prepare(Workload(url=server.http, model="repeat"))


def test_sagemaker_route(server: ServerProcess, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(
        '{"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'
    )
    workload = Workload(
        Kind.SAGEMAKER, server.http, endpoint="/v2/models/numbers/infer", input_data=body, processes=1
    )
    [result] = run(workload, Level(2))
    assert (result.errors, result.server) == ({}, ())
    assert result.requests > 20


def test_sagemaker_endpoint_of_a_host(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"1,2,3")
    script = Script(OK)
    with scripted(script) as url:
        run(
            Workload(
                Kind.SAGEMAKER, url, endpoint="iris", content_type="text/csv", input_data=body, processes=1
            ),
            Level(1, requests=3),
        )
    assert len(script.requests) == 3
    head, _, sent = script.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /endpoints/iris/invocations HTTP/1.1\r\n")
    assert b"Content-Type: text/csv" in head
    assert sent == b"1,2,3"


def test_openai_stream() -> None:
    events = (
        b"".join(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n' for _ in range(3)) + b"data: [DONE]\n\n"
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in (events[:30], events[30:])]
    script = Script(head + chunks[0], chunks[1], b"0\r\n\r\n")
    with scripted(script) as url:
        workload = Workload(
            Kind.OPENAI, url, model="llama", streaming=True, processes=1, making=Making(string="Hi")
        )
        [result] = run(workload, Level(1, requests=5))
    assert (result.requests, result.responses) == (5, 15)
    head, _, body = script.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions ")
    assert body == b'{"model":"llama","stream":true,"messages":[{"role":"user","content":"Hi"}]}'


def test_a_stall_counts_for_all_requests_that_were_due() -> None:
    """Coordinated omission: a closed loop sees one slow request, an open one all that it delayed."""
    with scripted(Script(OK, stall_at=50, stall_s=1.0)) as url:
        [closed] = run(plain(url), Level(1, requests=200))
    script = Script(OK, stall_at=50, stall_s=1.0)
    with scripted(script) as url:
        [opened] = run(plain(url), Level(arrivals=Arrivals(200), requests=200))
    slow = closed.latency.counts[closed.latency.buckets >= bucket_of(0.5)].sum()
    assert slow == 1
    delayed = opened.latency.counts[opened.latency.buckets >= bucket_of(0.5)].sum()
    assert delayed >= 70  # 200 a second for half a second
    assert opened.latency.maximum >= 0.9e9


def bucket_of(seconds: float) -> int:
    return int(Histogram.of(np.array([int(seconds * 1e9)])).buckets[0])


def plain(url: str) -> Workload:
    return Workload(Kind.OPENAI, url, model="m", processes=1, connections=1)


def test_errors_are_counted_with_their_reasons(server: ServerProcess, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_text("{}")
    with pytest.raises(BenchError, match=r"^All 4 requests failed: 400: .*inputs"):
        run(
            Workload(
                Kind.SAGEMAKER, server.http, endpoint="/v2/models/numbers/infer", input_data=body, processes=1
            ),
            Level(2, requests=4),
        )


def test_different_reasons_are_counted_each_for_itself() -> None:
    empty = Histogram.of(np.zeros(0, np.int64))
    window = Window((), empty, empty, empty, empty, {"a": 2, "b": 3, "c": 1, "d": 4, "e": 5})
    reasons = "5 of them: e; 4 of them: d; 3 of them: b; 3 of them: other reasons"
    with pytest.raises(BenchError, match=f"^All 15 requests failed. {reasons}$"):
        need_success(window)


def test_a_server_that_refuses_some() -> None:
    script = Script(OK)
    with scripted(script) as url:
        seen: list[Progress] = []

        def fail_once(progress: Progress) -> None:
            seen.append(progress)
            refused = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
            script.answer = (refused,) if len(seen) % 2 else (OK,)

        prepared = prepare(plain(url))
        measuring = Measuring(1.5, windows=1, warm_up_s=0)
        [result] = measure(prepared.plan, [Level(1)], measuring, prepared.ask, fail_once)
    assert set(result.errors) == {"503: busy"}
    assert result.requests
    assert seen


def test_closed_connections_are_opened_again() -> None:
    script = Script(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    with scripted(script) as url:
        [result] = run(plain(url), Level(1, requests=20))
    assert (result.requests, result.errors) == (20, {})


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(BenchError, match=f"No answer over HTTP from {url}"):
        prepare(Workload(url=url, model="m"))
    with pytest.raises(BenchError, match=f"No answer over gRPC from {url}"):
        prepare(Workload(url=url, grpc=True, model="m"))
    with pytest.raises(
        BenchError, match=f"^(All .* requests|The only request) failed.*no connection to {url}"
    ):
        run(plain(url), Level(1))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_that_is_not_there(server: ServerProcess, protocol: str) -> None:
    url = server.http if protocol == "http" else server.grpc
    with pytest.raises(BenchError, match=r"unknown model.*'nothing'|nothing"):
        prepare(Workload(url=url, grpc=protocol == "grpc", model="nothing"))


def test_no_answer_in_time() -> None:
    with scripted(Script()) as url:
        workload = Workload(Kind.OPENAI, url, model="m", processes=1, timeout_s=0.2)
        with pytest.raises(BenchError, match=r"no answer within 0.2 s"):
            run(workload, Level(1, requests=1))


def test_a_server_that_cannot_keep_up(server: ServerProcess) -> None:
    workload = Workload(url=server.http, model="slow", processes=1, connections=1)
    [result] = run(workload, Level(arrivals=Arrivals(100)))
    assert result.throughput < 50
    assert result.backlog > 10
    assert result.latency.percentile(99) > 2 * result.service.percentile(99)


def test_load_goes_on_while_nobody_looks(server: ServerProcess) -> None:
    """Reports never stop the processes that send, however long the measuring process is busy."""
    prepared = prepare(Workload(url=server.http, model="numbers", processes=1))
    with started(prepared.plan) as load:
        load.set(Level(8))
        load.receive(0.3)
        began = now()
        let_pass(1.2, "the load goes on, whoever measures it")
        load.receive_until(now())
        ends = load.take().requests[:, END]
        halves = [
            ((ends >= began + part * 6e8) & (ends < began + (part + 1) * 6e8)).sum() for part in range(2)
        ]
        assert min(halves) > 0
