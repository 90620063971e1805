from collections.abc import Iterable
from math import inf, nan

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from halimede.core.errors import AlreadyExistsError, HalimedeError, InvalidArgumentError, UnsupportedError
from halimede.engine.calls.custom_metrics import CustomMetrics, HeldMetrics, Kind, Labels
from halimede_worker.messages import wire


def hold(metrics: CustomMetrics, instance: str = "m_0") -> HeldMetrics:
    return HeldMetrics(metrics, instance, lambda: None)


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def by_name(families: Iterable[Metric]) -> Samples:
    """Samples by name and labels, with bounds of buckets as one writes them."""
    found: Samples = {}
    for family in families:
        for sample in family.samples:
            labels = dict(sample.labels)
            if "le" in labels:
                labels["le"] = str(float(labels["le"]))
            found[sample.name, frozenset(labels.items())] = sample.value
    return found


def read(metrics: CustomMetrics) -> Samples:
    """What Prometheus reads of a scrape."""
    return by_name(text_string_to_metric_families("\n".join(metrics.lines()) + "\n"))


def told(registry: CollectorRegistry) -> Samples:
    """What Prometheus' own client tells; when metrics were made, tritonserver does not."""
    return {
        key: value for key, value in by_name(registry.collect()).items() if not key[0].endswith("_created")
    }


def test_lines_look_like_tritonservers() -> None:
    metrics = CustomMetrics()
    held = hold(metrics)
    counter = held.new_series(held.new_family("requests", "Requests of a model", "counter"), [], None)
    held.change(counter, "increment", 3)
    gauge = held.new_series(held.new_family("load", "Load", "gauge"), [("b", "2"), ("a", "x")], None)
    held.change(gauge, "set", 0.25)
    histogram = held.new_series(held.new_family("seconds", "Time", "histogram"), [("a", "1")], [0.1, 1, 2.5])
    for value in (0.1, 0.2, 1.5, 7):
        held.change(histogram, "observe", value)
    assert list(metrics.lines()) == [
        "# HELP requests Requests of a model",
        "# TYPE requests counter",
        "requests 3",
        "# HELP load Load",
        "# TYPE load gauge",
        'load{a="x",b="2"} 0.25',
        "# HELP seconds Time",
        "# TYPE seconds histogram",
        'seconds_count{a="1"} 4',
        'seconds_sum{a="1"} 8.8',
        'seconds_bucket{a="1",le="0.1"} 1',
        'seconds_bucket{a="1",le="1"} 2',
        'seconds_bucket{a="1",le="2.5"} 3',
        'seconds_bucket{a="1",le="+Inf"} 4',
    ]


def test_prometheus_reads_what_its_own_client_would_have_told() -> None:
    metrics, registry = CustomMetrics(), CollectorRegistry()
    held = hold(metrics)
    labels = [("q", 'a "b"\\\n{},='), ("u", "é")]
    counter = held.new_series(held.new_family("done_total", "Done", "counter"), labels, None)
    theirs = Counter("done_total", "Done", ["q", "u"], registry=registry).labels(**dict(labels))
    gauge = held.new_series(held.new_family("level", "two\nlines \\", "gauge"), [], None)
    their_gauge = Gauge("level", "two\nlines \\", registry=registry)
    histogram = held.new_series(held.new_family("size", "Size", "histogram"), labels, [0.001, 1, 1e20])
    their_histogram = Histogram("size", "Size", ["q", "u"], registry=registry, buckets=[0.001, 1, 1e20])
    for value in (0.5, 1e-7, 123456789.0, 2.0**60):
        held.change(counter, "increment", value)
        theirs.inc(value)
        held.change(histogram, "observe", value)
        their_histogram.labels(**dict(labels)).observe(value)
    for value in (-5.0, inf, 1 / 3):
        held.change(gauge, "set", value)
        their_gauge.set(value)
        assert read(metrics) == told(registry)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-5.0, "-5"), (1e15, "1000000000000000"), (1e17, "1e+17"), (0.1, "0.1"), (inf, "+Inf"), (-inf, "-Inf"),
     (nan, "NaN")],
)  # fmt: skip
def test_whole_numbers_have_no_fraction(value: float, text: str) -> None:
    metrics = CustomMetrics()
    held = hold(metrics)
    held.change(held.new_series(held.new_family("g", "", "gauge"), [], None), "set", value)
    assert list(metrics.lines())[-1] == f"g {text}"


def test_not_a_number_counts_as_an_observation_above_all_bounds() -> None:
    metrics = CustomMetrics()
    held = hold(metrics)
    held.change(held.new_series(held.new_family("h", "", "histogram"), [], [1]), "observe", nan)
    assert list(metrics.lines())[2:] == [
        "h_count 1",
        "h_sum NaN",
        'h_bucket{le="1"} 0',
        'h_bucket{le="+Inf"} 1',
    ]


@pytest.mark.parametrize("buckets", [[], [inf]])
def test_a_histogram_needs_no_bounds(buckets: list[float]) -> None:
    metrics = CustomMetrics()
    held = hold(metrics)
    held.change(held.new_series(held.new_family("h", "", "histogram"), [], buckets), "observe", 3)
    assert list(metrics.lines())[2:] == ["h_count 1", "h_sum 3", 'h_bucket{le="+Inf"} 1']


def test_models_that_name_the_same_series_share_it() -> None:
    metrics = CustomMetrics()
    one, other = hold(metrics, "a_0"), hold(metrics, "b_0")
    first = one.new_series(
        one.new_family("n", "the first description", "counter"), [("x", "1"), ("y", "2")], None
    )
    second = other.new_series(other.new_family("n", "another", "counter"), [("y", "2"), ("x", "1")], None)
    one.change(first, "increment", 1)
    other.change(second, "increment", 2)
    assert one.value(first) == other.value(second) == 3
    assert list(metrics.lines()) == [
        "# HELP n the first description",
        "# TYPE n counter",
        'n{x="1",y="2"} 3',
    ]


def test_a_shared_histogram_keeps_its_first_buckets() -> None:
    metrics = CustomMetrics()
    held = hold(metrics)
    family = held.new_family("h", "", "histogram")
    held.new_series(family, [], [1, 2])
    held.new_series(family, [], [5])
    assert [line for line in metrics.lines() if "bucket" in line] == [
        'h_bucket{le="1"} 0',
        'h_bucket{le="2"} 0',
        'h_bucket{le="+Inf"} 0',
    ]


def test_a_series_is_gone_with_its_last_object_and_begins_anew() -> None:
    metrics = CustomMetrics()
    one, other = hold(metrics), hold(metrics)
    family, other_family = one.new_family("g", "", "gauge"), other.new_family("g", "", "gauge")
    first, second = one.new_series(family, [], None), other.new_series(other_family, [], None)
    one.change(first, "set", 4)
    one.drop_series(first)
    assert other.value(second) == 4
    other.drop_series(second)
    assert list(metrics.lines()) == ["# HELP g ", "# TYPE g gauge"]
    assert one.value(one.new_series(family, [], None)) == 0


def test_a_family_is_gone_with_its_last_object_and_takes_its_series_along() -> None:
    metrics = CustomMetrics()
    one, other = hold(metrics), hold(metrics)
    family, other_family = one.new_family("g", "", "gauge"), other.new_family("g", "", "gauge")
    one.new_series(family, [("a", "mine")], None)
    other.new_series(other_family, [("a", "theirs")], None)
    one.drop_family(family)
    assert list(metrics.lines())[2:] == ['g{a="theirs"} 0']
    other.drop_family(other_family)
    assert list(metrics.lines()) == []
    other.new_family("g", "", "counter")


def test_what_a_dead_worker_held_is_gone() -> None:
    metrics = CustomMetrics()
    dead, alive = hold(metrics), hold(metrics)
    for held in (dead, alive):
        held.new_series(held.new_family("shared", "", "counter"), [], None)
    dead.new_series(dead.new_family("own", "", "gauge"), [], None)
    dead.close()
    assert list(metrics.lines()) == ["# HELP shared ", "# TYPE shared counter", "shared 0"]
    alive.close()
    assert list(metrics.lines()) == []


def test_changes_after_the_end_of_a_series_change_nothing() -> None:
    metrics = CustomMetrics()
    held = hold(metrics)
    family = held.new_family("g", "", "gauge")
    series = held.new_series(family, [], None)
    held.drop_family(family)
    handlers = held.control_handlers()
    handlers[wire.METRIC]((wire.METRIC, series, "set", 5.0))
    handlers[wire.DROP_SERIES]((wire.DROP_SERIES, series))
    handlers[wire.DROP_FAMILY]((wire.DROP_FAMILY, family))
    assert list(metrics.lines()) == []


@pytest.mark.parametrize("name", ["", "1a", "a-b", "é", "__a", "a b", "a\n"])
def test_a_name_that_prometheus_does_not_allow_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^Invalid metric name$"):
        hold(CustomMetrics()).new_family(name, "", "counter")


@pytest.mark.parametrize(
    ("kind", "label"),
    [("gauge", label) for label in ("", "1a", "a-b", "a:b", "é", "__a", "a\n")] + [("histogram", "le")],
)
def test_a_label_that_prometheus_does_not_allow_is_refused(kind: Kind, label: str) -> None:
    held = hold(CustomMetrics())
    with pytest.raises(InvalidArgumentError, match=r"^Invalid label name$"):
        held.new_series(held.new_family("m", "", kind), [(label, "x")], None)


@pytest.mark.parametrize("buckets", [[2, 1], [1, 1], [nan], [1, nan, 3], [inf, inf]])
def test_buckets_that_do_not_rise_are_refused(buckets: list[float]) -> None:
    held = hold(CustomMetrics())
    with pytest.raises(InvalidArgumentError, match=r"^Bucket Boundaries must be strictly sorted$"):
        held.new_series(held.new_family("h", "", "histogram"), [], buckets)


def test_a_name_has_one_kind() -> None:
    metrics = CustomMetrics()
    hold(metrics).new_family("n", "", "gauge")
    with pytest.raises(AlreadyExistsError, match=r"^Family name already exists with different type$"):
        hold(metrics).new_family("n", "", "counter")


def test_a_refused_series_leaves_nothing() -> None:
    metrics = CustomMetrics()
    held = hold(metrics)
    family = held.new_family("g", "", "gauge")
    labels: Labels = [("-", "x")]
    with pytest.raises(InvalidArgumentError):
        held.new_series(family, labels, None)
    assert len(list(metrics.lines())) == 2


def test_a_histogram_has_no_value() -> None:
    held = hold(CustomMetrics())
    series = held.new_series(held.new_family("h", "", "histogram"), [], [])
    with pytest.raises(
        UnsupportedError, match=r"^TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value$"
    ):
        held.value(series)


def test_a_worker_cannot_use_numbers_that_it_does_not_have() -> None:
    metrics = CustomMetrics()
    held, other = hold(metrics), hold(metrics)
    other.new_series(other.new_family("g", "", "gauge"), [], None)
    with pytest.raises(InvalidArgumentError, match="the metric is gone"):
        held.value(2)
    with pytest.raises(InvalidArgumentError, match="the metric family is gone"):
        held.new_series(1, [], None)


def test_calls_come_after_the_changes_before_them() -> None:
    metrics = CustomMetrics()
    unread: list[tuple[object, ...]] = []

    def catch_up() -> None:
        for message in unread:
            held.control_handlers()[wire.METRIC](message)
        unread.clear()

    held = HeldMetrics(metrics, "m_0", catch_up)
    calls = held.call_handlers()
    family = calls[wire.NEW_FAMILY]((wire.NEW_FAMILY, "n", "", "counter"))
    series = calls[wire.NEW_SERIES]((wire.NEW_SERIES, family, [("a", "b")], None))
    unread.append((wire.METRIC, series, "increment", 2.0))
    assert calls[wire.METRIC_VALUE]((wire.METRIC_VALUE, series)) == 2.0


def test_errors_of_calls_name_the_instance() -> None:
    calls = hold(CustomMetrics(), "m_0_1").call_handlers()
    with pytest.raises(HalimedeError) as caught:
        calls[wire.NEW_FAMILY]((wire.NEW_FAMILY, "-", "", "counter"))
    assert (
        str(caught.value) == "Failed to process the request for model 'm_0_1', message: Invalid metric name"
    )
