import json
from pathlib import Path
from typing import Any

import pytest

from halimede.core.clock import MILLISECOND, VirtualClock
from halimede.core.errors import InvalidArgumentError
from halimede.core.traces import Trace
from halimede.engine.tracing.settings import TENSORS, TIMESTAMPS, TraceConfig, TraceSettings
from halimede.engine.tracing.tracing import Tracing
from halimede.engine.tracing.triton_file import TraceFileExporter
from tests.support.traces import await_traces
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


class Traced:
    """Tracing into files of a directory."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.clock = VirtualClock()
        config = TraceConfig(settings=TraceSettings(**{"levels": (TIMESTAMPS,), "rate": 1, **settings}))
        self.tracing = Tracing(config, TraceFileExporter(str(path), self.clock))

    def request(self, model: str = "m") -> Trace:
        trace = self.tracing.begin(model, 1, {})
        assert trace is not None
        trace.events += ("REQUEST_START", self.clock.now())
        return trace

    def requests(self, count: int, model: str = "m") -> None:
        """So many requests, one after the other."""
        for _ in range(count):
            self.request(model).end()

    def close(self) -> dict[str, list[int]]:
        """End it: the files, and whose traces are in them."""
        self.tracing.close(60)
        files = sorted(self.path.parent.iterdir())
        return {file.name: identities(file) for file in files}


def identities(path: Path) -> list[int]:
    return [each["id"] for each in json.loads(path.read_bytes()) if "model_name" in each]


def test_all_traces_are_in_one_file(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json")
    traced.requests(200)
    assert traced.close() == {"t.json": list(range(1, 201))}


def test_the_file_is_begun_by_the_first_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("of the server before")
    Traced(path).tracing.close(60)
    assert path.read_text() == "of the server before"
    traced = Traced(path)
    traced.requests(1)
    assert traced.close() == {"t.json": [1]}


def test_without_traces_there_is_no_file(tmp_path: Path) -> None:
    assert Traced(tmp_path / "t.json").close() == {}


def test_a_trace_is_written_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json")
    traced.requests(3)
    traced.clock.advance(100 * MILLISECOND)
    found = await_traces(traced.path, lambda traces: len(traces) == 3)
    assert [each.number for each in found] == [1, 2, 3]
    assert traced.close() == {"t.json": [1, 2, 3]}


def test_a_log_frequency_makes_files_of_so_many_requests(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json", log_frequency=2)
    traced.requests(5)
    assert traced.close() == {"t.json.0": [1, 2], "t.json.1": [3, 4], "t.json.2": [5]}


def test_a_request_counts_once_whatever_it_has_caused(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json", log_frequency=2)
    for _ in range(2):
        trace = traced.request()
        child = trace.child("n", 1)
        assert child is not None
        child.end()
        trace.end()
    assert traced.close() == {"t.json.0": [1, 2, 3, 4]}


def test_models_with_settings_of_their_own_have_files_of_their_own(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json", log_frequency=2)
    traced.tracing.change({"log_frequency": 3}, "own")
    traced.requests(1)
    traced.requests(3, "own")
    traced.requests(1)
    assert traced.close() == {"t.json.0": [1, 5], "t.json.1": [2, 3, 4]}


def test_changed_settings_begin_another_file(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json", log_frequency=3)
    traced.requests(1)
    traced.tracing.change({"rate": 1})
    traced.requests(1)
    assert traced.close() == {"t.json.0": [1], "t.json.1": [2]}


def test_numbered_files_and_the_plain_one_can_take_turns(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json")
    traced.requests(1)
    traced.tracing.change({"log_frequency": 2})
    traced.requests(1)
    traced.tracing.change({"log_frequency": 0})
    traced.requests(1)
    assert traced.close() == {"t.json": [1, 3], "t.json.0": [2]}


def test_a_trace_that_ends_after_its_settings_is_written(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json", log_frequency=2)
    trace = traced.request()
    traced.tracing.change({"levels": ()})
    trace.end()
    assert traced.close() == {"t.json.0": [1]}


def test_without_times_only_tensors_are_written(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json", levels=(TENSORS,))
    traced.requests(2)
    assert traced.close() == {"t.json": []}


def test_traces_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    directory = tmp_path / "below"
    directory.mkdir()
    path = directory / "t.json"
    clock = VirtualClock()
    exporter = TraceFileExporter(str(path), clock)
    tracing = Tracing(TraceConfig(settings=TraceSettings((TIMESTAMPS,), rate=1)), exporter)
    directory.rmdir()
    for count in (1, 2):
        trace = tracing.begin("m", 1, {})
        assert trace is not None
        trace.end()
        clock.advance(100 * MILLISECOND)
        wait_until(lambda: exporter.dropped >= count, "the trace to be dropped")  # noqa: B023
    tracing.close(60)
    assert exporter.dropped == 2


@pytest.mark.parametrize("place", ["missing/t.json", ""])
def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path, place: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^cannot write traces to {tmp_path}"):
        TraceFileExporter(str(tmp_path / place), VirtualClock())
    assert list(tmp_path.iterdir()) == []
