from collections.abc import Mapping
from typing import Any

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.core.traces import Trace
from halimede.engine.tracing.settings import TENSORS, TIMESTAMPS, TraceConfig, TraceSettings
from halimede.engine.tracing.tracing import Tracing
from tests.engine.tracing.exporters import KeepingExporter

NO_HEADERS: Mapping[str, object] = {}
CLIENT_TRACES: Mapping[str, object] = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "a=b",
}


def tracing(*, spans: bool = False, **settings: Any) -> tuple[Tracing, KeepingExporter]:
    exporter = KeepingExporter(spans=spans)
    made = TraceSettings(**{"levels": (TIMESTAMPS,), "rate": 1, **settings})
    return Tracing(TraceConfig(settings=made), exporter), exporter


def sampled(traced: Tracing, *models: str) -> list[bool]:
    """Which of the requests to these models, one after the other, are traced."""
    return [traced.begin(model, 1, NO_HEADERS) is not None for model in models]


@pytest.mark.parametrize("settings", [{"levels": ()}, {"count": 0}])
def test_without_level_or_count_nothing_is_traced(settings: dict[str, Any]) -> None:
    traced, _ = tracing(**settings)
    assert not traced.active
    assert traced.begin("m", 1, CLIENT_TRACES) is None


def test_with_rate_0_only_requests_of_clients_that_trace_are_traced() -> None:
    traced, _ = tracing(spans=True, rate=0)
    assert sampled(traced, *"mmm") == [False, False, False]
    assert traced.begin("m", 1, CLIENT_TRACES) is not None


def test_without_an_exporter_nothing_is_traced() -> None:
    traced = Tracing(TraceConfig(settings=TraceSettings((TIMESTAMPS,), rate=1)), None)
    assert not traced.active
    assert traced.begin("m", 1, NO_HEADERS) is None
    with pytest.raises(InvalidArgumentError) as caught:
        traced.change({"rate": 2})
    assert caught.value.message == "Attempting to set invalid trace setting :trace file name is not given"
    traced.change({"levels": (), "rate": 2})
    traced.close(1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rate": 0}, "sample rate must be non-zero"),
        ({"count": 0, "rate": 5}, "trace count must be non-zero"),
    ],
)
@pytest.mark.parametrize("model", ["", "m"])
def test_settings_by_which_nothing_would_be_traced_change_nothing(
    changes: dict[str, Any], why: str, model: str
) -> None:
    traced, _ = tracing(rate=2)
    with pytest.raises(InvalidArgumentError) as caught:
        traced.change(changes, model)
    assert caught.value.message == f"Attempting to set invalid trace setting :{why}"
    assert (traced.settings(model).settings.rate, traced.settings(model).settings.count) == (2, -1)
    traced.change({**changes, "levels": ()}, model)
    assert traced.settings(model).settings.levels == ()


def test_one_of_so_many_requests_is_traced_the_last_of_each_group() -> None:
    traced, _ = tracing(rate=3)
    assert sampled(traced, *"mmmmmmm") == [False, False, True, False, False, True, False]


def test_models_without_settings_of_their_own_are_counted_together() -> None:
    traced, _ = tracing(rate=2)
    assert sampled(traced, "a", "b", "b", "b") == [False, True, False, True]


def test_a_model_with_settings_of_its_own_is_counted_by_itself() -> None:
    traced, _ = tracing(rate=2)
    traced.change({"rate": 1}, "a")
    assert sampled(traced, "a", "b", "a", "b") == [True, False, True, True]


def test_no_more_requests_are_traced_than_wanted() -> None:
    traced, exporter = tracing(count=2)
    settings = traced.settings().settings
    assert traced.settings().left == 2
    assert sampled(traced, "m", "m", "m") == [True, True, False]
    assert not traced.active
    assert traced.settings().left == 0
    assert exporter.flushed == [settings]


def test_a_changed_count_begins_anew() -> None:
    traced, _ = tracing(count=1)
    assert sampled(traced, "m", "m") == [True, False]
    traced.change({"count": 2})
    assert traced.active
    assert sampled(traced, "m", "m", "m") == [True, True, False]


def test_any_change_begins_counting_anew() -> None:
    traced, _ = tracing(rate=2, count=5)
    assert sampled(traced, "m", "m", "m") == [False, True, False]
    traced.change({"log_frequency": 3})
    assert traced.settings().left == 5
    assert sampled(traced, "m", "m") == [False, True]


def test_a_model_has_what_it_does_not_set_from_the_settings_of_all() -> None:
    traced, _ = tracing(rate=10, count=5)
    traced.change({"levels": (TENSORS,)}, "m")
    traced.change({"rate": 7})
    own, all_models = traced.settings("m").settings, traced.settings().settings
    assert (own.levels, own.rate, own.count) == ((TENSORS,), 7, 5)
    assert (all_models.levels, all_models.rate, all_models.count) == ((TIMESTAMPS,), 7, 5)
    assert traced.settings("other").settings is all_models


def test_a_setting_of_a_model_can_be_taken_back() -> None:
    traced, _ = tracing(rate=10)
    traced.change({"rate": 1, "levels": ()}, "m")
    traced.change({"levels": None}, "m")
    own = traced.settings("m").settings
    assert (own.levels, own.rate) == ((TIMESTAMPS,), 1)
    traced.change({"rate": None}, "m")
    assert traced.settings("m").settings is traced.settings().settings


def test_a_setting_of_all_models_taken_back_is_as_at_the_start() -> None:
    traced, _ = tracing(rate=10)
    traced.change({"rate": 3, "count": 4})
    traced.change({"rate": None})
    settings = traced.settings().settings
    assert (settings.rate, settings.count) == (10, 4)


def test_a_model_may_be_traced_while_others_are_not() -> None:
    traced, _ = tracing(levels=())
    assert sampled(traced, "m") == [False]
    traced.change({"levels": (TIMESTAMPS,)}, "m")
    assert traced.active
    assert sampled(traced, "m", "other") == [True, False]
    traced.change({"levels": None}, "m")
    assert not traced.active


def test_no_change_changes_nothing() -> None:
    traced, exporter = tracing(rate=2)
    assert sampled(traced, "m") == [False]
    traced.change({})
    traced.change({}, "m")
    assert sampled(traced, "m") == [True]
    assert exporter.flushed == []


def test_settings_that_are_replaced_are_flushed() -> None:
    traced, exporter = tracing()
    former = traced.settings().settings
    traced.change({"rate": 2})
    assert exporter.flushed == [former]


def test_a_request_of_a_client_that_traces_is_always_traced() -> None:
    traced, _ = tracing(spans=True, rate=1000)
    assert traced.begin("m", 1, NO_HEADERS) is None
    trace = traced.begin("m", 1, CLIENT_TRACES)
    assert trace is not None
    assert trace.remote is not None
    assert trace.context is not None
    assert trace.context.trace_id == 0x4BF92F3577B34DA6A3CE929D0E0E4736
    assert trace.context.span_id != trace.remote.span_id == 0x00F067AA0BA902B7
    assert trace.context.state == "a=b"


def test_requests_of_clients_that_trace_do_not_count_for_the_rate() -> None:
    traced, _ = tracing(spans=True, rate=2)
    found = [traced.begin("m", 1, headers) is not None for headers in (NO_HEADERS, CLIENT_TRACES, NO_HEADERS)]
    assert found == [False, True, True]


def test_without_spans_clients_traces_are_not_continued() -> None:
    traced, _ = tracing(rate=2)
    assert traced.begin("m", 1, CLIENT_TRACES) is None
    trace = traced.begin("m", 1, CLIENT_TRACES)
    assert trace is not None
    assert (trace.remote, trace.context) == (None, None)


@pytest.mark.parametrize(
    "headers", [{}, {"traceparent": "junk"}, {"traceparent": b"\x00"}, {"tracestate": "a=b"}]
)
def test_each_request_without_a_valid_traceparent_begins_a_trace(headers: dict[str, object]) -> None:
    traced, _ = tracing(spans=True)
    first, second = traced.begin("m", 1, headers), traced.begin("m", 1, headers)
    assert first is not None
    assert second is not None
    assert first.remote is None
    assert first.context is not None
    assert second.context is not None
    assert first.context.trace_id != second.context.trace_id


def test_spans_have_times_and_no_tensors_whatever_the_level() -> None:
    traced, _ = tracing(spans=True, levels=(TENSORS,))
    trace = begun(traced)
    assert (trace.timestamps, trace.tensors) == (True, False)


def begun(traced: Tracing) -> Trace:
    trace = traced.begin("m", 1, NO_HEADERS)
    assert trace is not None
    return trace


def test_levels_say_what_is_recorded() -> None:
    traced, _ = tracing(levels=(TENSORS,))
    trace = begun(traced)
    assert (trace.timestamps, trace.tensors) == (False, True)
    child = trace.child("n", 2)
    assert child is not None
    assert (child.timestamps, child.tensors) == (False, True)


def test_traces_have_numbers_and_children_their_parents() -> None:
    traced, _ = tracing()
    first, second = begun(traced), begun(traced)
    child = first.child("n", 2)
    assert child is not None
    assert [first.number, second.number, child.number] == [1, 2, 3]
    assert child.parent is first
    assert (child.model_name, child.model_version) == ("n", 2)


def test_a_request_is_exported_when_it_and_all_that_it_caused_have_ended() -> None:
    traced, exporter = tracing()
    trace = begun(traced)
    child = trace.child("n", 2)
    assert child is not None
    grandchild = child.child("o", 1)
    assert grandchild is not None
    child.end()
    trace.end()
    assert exporter.exported == []
    grandchild.end()
    assert exporter.exported == [([child, trace, grandchild], traced.settings().settings)]


def test_a_trace_that_is_held_has_not_ended() -> None:
    traced, exporter = tracing()
    trace = begun(traced)
    trace.hold()
    trace.end()
    assert exporter.exported == []
    trace.events += ("LATE", 1)
    trace.end()
    assert len(exporter.exported) == 1


def test_a_trace_that_has_ended_has_no_further_children() -> None:
    traced, exporter = tracing()
    trace = begun(traced)
    trace.end()
    assert trace.child("n", 1) is None
    assert len(exporter.exported) == 1


def test_what_is_under_way_is_exported_by_the_settings_that_it_was_sampled_by() -> None:
    traced, exporter = tracing()
    former = traced.settings().settings
    trace = begun(traced)
    traced.change({"levels": ()})
    trace.end()
    assert exporter.exported == [([trace], former)]


def test_closing_ends_the_tracing() -> None:
    traced, exporter = tracing()
    traced.close(1)
    assert not traced.active
    assert exporter.closed
