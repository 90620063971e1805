"""`halimede top` beside real servers, and what it makes of snapshots."""

import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from halimede.top.rates import percentile_ms, rates
from halimede.top.snapshot import Snapshot, of_console, of_statistics
from halimede.top.view import view
from tests.bench.conftest import MODELS, Script, scripted
from tests.support.commands import call_text_command
from tests.support.server import ServerProcess, run_command, start_server
from tests.support.terminal import on_terminal

BODY = b'{"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'


def document(**changes: Any) -> dict[str, Any]:
    """A document of the console's route, with a model of these counts."""
    counters = {
        "success": 0, "success_ns": 0, "queue_ns": 0, "compute_input_ns": 0, "compute_infer_ns": 0,
        "compute_output_ns": 0, "inferences": 0, "executions": 0, "cache_hits": 0, "cache_misses": 0,
        "failures": {"REJECTED": 0, "CANCELED": 0, "OTHER": 0},
    }  # fmt: skip
    model = {
        "name": "digits", "version": "1", "namespace": "", "state": "READY", "reason": "", "memory_bytes": 3 << 20,
        "pending": 4, "inflight": 6, "instances": [{"state": "running"}, {"state": "idle"}],
        "counters": counters | changes.get("counters", {}), "request_us": changes.get("request_us", [0, 0, 0]),
    }  # fmt: skip
    failed = {
        "name": "broken", "version": "2", "namespace": "", "state": "UNAVAILABLE", "reason": "no such file",
        "memory_bytes": 0,
    }  # fmt: skip
    return {
        "time": changes.get("time", 100.0), "started": changes.get("started", 40.0),
        "server": {"name": "triton", "version": "9", "ready": True},
        "process": {"cpu_s": changes.get("cpu_s", 1.0), "resident_bytes": 200 << 20},
        "memory": {"budget_bytes": 10 << 20},
        "traffic": [{"protocol": "http", "connections": 7, "statuses": changes.get("statuses", {})}],
        "bounds": {"duration_us": [1000, 2000]},
        "models": [failed, model],
    }  # fmt: skip


LATER = document(
    time=102.0,
    cpu_s=2.0,
    statuses={"200": 200, "404": 10},
    counters={
        "success": 200,
        "success_ns": 300_000_000,
        "queue_ns": 100_000_000,
        "compute_infer_ns": 200_000_000,
        "inferences": 800,
        "executions": 100,
        "cache_hits": 50,
        "failures": {"REJECTED": 4, "CANCELED": 3},
    },
    request_us=[100, 100, 0],
)


def drawn(before: Snapshot, after: Snapshot, width: int = 150, **options: Any) -> str:
    """What a terminal shows."""
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(view("here:8000", before, after, complete=True, **options))
    return console.export_text()


def test_rates_are_differences_of_snapshots() -> None:
    busy, failed = rates(of_console(document()), of_console(LATER))
    assert (failed.figures.key[1], failed.requests) == ("broken", 0)
    assert (busy.requests, busy.failures, busy.inferences, busy.batch) == (100, 2, 400, 8)
    assert (busy.mean_ms, busy.queue_ms, busy.compute_ms, busy.hits) == (1.5, 0.5, 1.0, 0.25)
    assert [busy.p50_ms, busy.p99_ms] == pytest.approx([1.0, 1.98])


def test_counts_that_began_anew_are_not_negative() -> None:
    restarted = document(time=103.0, started=101.0, counters={"success": 10, "executions": 10})
    [row, _] = rates(of_console(LATER), of_console(restarted))
    assert row.requests == 10
    reloaded = document(time=103.0, counters={"success": 10, "executions": 10})
    [row, _] = rates(of_console(LATER), of_console(reloaded))
    assert row.requests == 10


def test_percentiles_beyond_the_last_bound() -> None:
    assert percentile_ms([0, 0, 5], [1000, 2000], 99) == 2
    assert percentile_ms([0, 0], [1000], 50) is None


def test_the_table_has_what_the_server_says() -> None:
    text = drawn(of_console(document()), of_console(LATER))
    told = " ".join(text.split())
    for part in (
        "triton 9 at here:8000", "ready", "up 0:01:02", "CPU 50%", "memory 200 MiB", "models 3 of 10 MiB",
        "http: 7 connections", "http 2xx 100/s", "http 4xx 5/s",
    ):  # fmt: skip
        assert part in told
    [row] = [line for line in text.splitlines() if line.strip().startswith("digits 1")]
    assert row.split()[2:] == [
        "READY",
        "100",
        "1.5",
        "1",
        "1.98",
        "0.5",
        "1",
        "8",
        "4",
        "6",
        "1/2",
        "3",
        "25%",
        "2",
        "1.5",
    ]
    assert "broken 2: no such file" in text
    assert "1 more models" in drawn(of_console(document()), of_console(LATER), most=1)


def test_narrow_terminals_leave_out_what_matters_least() -> None:
    lines = [
        " ".join(line.split()) for line in drawn(of_console(document()), of_console(LATER), 80).splitlines()
    ]
    assert "model state req/s p50 ms p99 ms waiting in flight busy fail/s" in lines
    assert "digits 1 READY 100 1 1.98 4 6 1/2 2" in lines


def test_a_server_without_models() -> None:
    empty = of_console({**document(), "models": []})
    assert "There are no models." in drawn(empty, empty)


def test_statistics_of_other_servers_have_the_same_form() -> None:
    index = [
        {"name": "a", "version": "1", "state": "READY"},
        {"name": "b", "state": "UNAVAILABLE", "reason": "x"},
    ]
    statistics = {"name": "a", "version": "1", "inference_count": "8", "execution_count": "4"}
    parts = {name: {"count": "8", "ns": "8000000"} for name in ("success", "queue", "compute_infer")}
    first = of_statistics(1.0, "s", index, [])
    [a, b] = rates(first, of_statistics(3.0, "s", index, [{**statistics, "inference_stats": parts}]))
    assert (a.requests, a.mean_ms, a.batch, a.p50_ms) == (4, 1, 2, None)
    assert (b.figures.state, b.figures.reason) == ("UNAVAILABLE", "x")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("models")
    (repository / "numbers" / "1").mkdir(parents=True)
    (repository / "numbers" / "config.pbtxt").write_text(MODELS["numbers"])
    with start_server(repository) as running:
        yield running


def test_a_running_server_is_shown(server: ServerProcess) -> None:
    done = run_command("top", "-u", server.http, "-n", "2", "-d", "50ms")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(f"at {server.http}  ready") == 2
    assert done.stdout.count("numbers 1") == 2


def test_a_terminal_is_drawn_anew_until_interrupted(server: ServerProcess) -> None:
    with on_terminal(["-m", "halimede", "top", "-u", server.http, "-d", "50ms"]) as terminal:
        terminal.wait_for("numbers 1", times=3)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == 0
    assert (
        terminal.shown.count("\x1b[?1049h") == terminal.shown.count("\x1b[?1049l") == 1
    )  # the screen is given back


def test_the_route_of_the_console_is_preferred(tmp_path: Path) -> None:
    body = json.dumps(LATER).encode()
    script = Script(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    with scripted(script) as url:
        done = call_text_command("top", "-u", url, "-n", "1", "-d", "10ms", "-H", "Authorization: Bearer x")
    assert "digits 1" in done.stdout
    assert script.requests[0].startswith(b"GET /v2/console/snapshot ")
    assert b"Authorization: Bearer x\r\n" in script.requests[0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            b"HTTP/1.1 401 No\r\nContent-Length: 4\r\n\r\nnope",
            "answers GET /v2/console/snapshot with 401: nope",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "does not answer as a server of KServe v2"),
    ],
)
def test_servers_that_cannot_be_shown(answer: bytes, reason: str) -> None:
    with scripted(Script(answer)) as url:
        done = call_text_command("top", "-u", url, "-n", "1")
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
