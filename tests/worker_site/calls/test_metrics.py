"""Metrics of models, from a model's calls to the lines that are scraped."""

import gc
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import nan
from typing import Any

import numpy as np
import pytest

from halimede.core.errors import HalimedeError
from halimede.engine.calls.custom_metrics import CustomMetrics, HeldMetrics
from halimede_worker.calls.metrics import Metric, MetricFamily, MetricKind
from halimede_worker.errors import TritonModelException
from halimede_worker.messages.memory import Memory
from halimede_worker.messages.wire import Channel
from halimede_worker.runtime import runtime

P = "Failed to process the request for model 'm_0', message: "
FAMILY_GONE = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted AFTER its corresponding 'Metric' objects have been deleted."
)


class Server:
    """The server's end: a real control socket, and calls that are answered at once.

    Attributes:
        calls: how many there were.
    """

    def __init__(self, channel: Channel) -> None:
        self.custom = CustomMetrics()
        self.calls = 0
        self._channel = channel
        self._held = HeldMetrics(self.custom, "m_0", self.catch_up)

    def catch_up(self) -> None:
        """Handle what is in the control socket."""
        while select.select([self._channel.socket], [], [], 0)[0]:
            message = self._channel.receive()
            self._held.control_handlers()[message[0]](message)

    def call(self, message: tuple[Any, ...]) -> Any:
        """In the place of `halimede_worker.calls.calls.call`."""
        self.calls += 1
        try:
            return self._held.call_handlers()[message[0]](message)
        except HalimedeError as error:
            raise TritonModelException(str(error)) from None

    def lines(self) -> list[str]:
        """What is scraped, without comments."""
        gc.collect()
        self.catch_up()
        return [line for line in self.custom.lines() if line[0] != "#"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """This process is the worker of an instance m_0."""
    gc.collect()  # what earlier tests left must not speak to this one's server
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        server = Server(Channel(theirs, Memory()))
        monkeypatch.setattr(runtime, "control", Channel(ours, Memory()))
        monkeypatch.setattr(runtime, "instance_name", "m_0")
        monkeypatch.setattr(runtime, "call", server.call)
        yield server


def a_metric(kind: MetricKind) -> tuple[MetricFamily, Metric]:
    family = MetricFamily(name="n", description="d", kind=kind)
    return family, family.Metric(buckets=[1, 2] if kind is MetricKind.HISTOGRAM else None)


def refusal(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    with pytest.raises(TritonModelException) as caught:
        call(*arguments, **named)
    return str(caught.value)


def test_changes_are_scraped_and_read(server: Server) -> None:
    counters = MetricFamily(name="requests", description="Requests", kind=MetricFamily.COUNTER)
    gauges = MetricFamily("level", "Level", MetricFamily.GAUGE)
    histograms = MetricFamily(name=b"size", description=b"Size", kind=MetricFamily.HISTOGRAM)  # type: ignore[arg-type]
    counter = counters.Metric(labels={"b": "2", "a": "x"})
    gauge = gauges.Metric()
    histogram = histograms.Metric({}, [0.5, 2])
    counter.increment(1)
    counter.increment(np.float32(0.5))
    gauge.set(np.int64(7))
    gauge.increment(-8)
    for value in (True, 0.25, 3):
        histogram.observe(value)
    assert (counter.value(), gauge.value()) == (1.5, -1.0)
    assert server.lines() == [
        'requests{a="x",b="2"} 1.5',
        "level -1",
        "size_count 3",
        "size_sum 4.25",
        'size_bucket{le="0.5"} 1',
        'size_bucket{le="2"} 2',
        'size_bucket{le="+Inf"} 3',
    ]


def test_changes_wait_for_nothing(server: Server) -> None:
    _family, metric = a_metric(MetricFamily.COUNTER)
    before = server.calls
    for _ in range(100):
        metric.increment(1.0)
    assert server.calls == before
    assert metric.value() == 100
    assert server.calls == before + 1


def test_changes_of_all_threads_are_read(server: Server) -> None:
    _family, metric = a_metric(MetricFamily.GAUGE)

    def work() -> None:
        for _ in range(20):
            metric.increment(1.0)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metric.value() == 100


def test_the_same_name_and_labels_are_the_same_metric(server: Server) -> None:
    family, other = (MetricFamily("n", text, MetricFamily.GAUGE) for text in ("one", "two"))
    first, second = family.Metric(labels={"a": "1"}), other.Metric(labels={"a": "1"})
    first.set(4)
    assert second.value() == 4
    del first
    assert second.value() == 4
    del second
    assert server.lines() == []
    assert family.Metric(labels={"a": "1"}).value() == 0
    assert "# HELP n one" in server.custom.lines()


def test_a_family_that_is_deleted_is_no_longer_scraped(server: Server) -> None:
    family, metric = a_metric(MetricFamily.GAUGE)
    del metric
    del family
    assert server.lines() == []
    assert list(server.custom.lines()) == []


@pytest.mark.parametrize("kind", list(MetricKind))
def test_a_metric_does_not_outlive_its_family(server: Server, kind: MetricKind) -> None:
    family, metric = a_metric(kind)
    del family
    assert refusal(metric.increment, 1) == f"Failed to increment metric value: {FAMILY_GONE}"
    assert refusal(metric.set, 1) == f"Failed to set metric value: {FAMILY_GONE}"
    assert refusal(metric.observe, 1) == f"Failed to observe metric value: {FAMILY_GONE}"
    assert refusal(metric.value) == f"Failed to get metric value: {FAMILY_GONE}"
    assert server.lines() == []


def test_a_counter_only_rises(server: Server) -> None:
    _family, metric = a_metric(MetricFamily.COUNTER)
    assert refusal(metric.increment, -1) == (
        f"Failed to increment metric value: {P}TRITONSERVER_METRIC_KIND_COUNTER can only be incremented "
        "monotonically by non-negative values."
    )
    metric.increment(-0.0)
    assert metric.value() == 0


@pytest.mark.parametrize(
    ("kind", "operation", "verb", "words"),
    [
        (MetricFamily.COUNTER, "set", "set", "COUNTER does not support Set"),
        (MetricFamily.COUNTER, "observe", "observe", "COUNTER does not support Observe"),
        (MetricFamily.GAUGE, "observe", "observe", "GAUGE does not support Observe"),
        (MetricFamily.HISTOGRAM, "increment", "increment", "HISTOGRAM does not support Increment"),
        (MetricFamily.HISTOGRAM, "set", "set", "HISTOGRAM does not support Set"),
        (MetricFamily.HISTOGRAM, "value", "get", "HISTOGRAM does not support Value"),
    ],
)
def test_a_kind_supports_only_its_operations(
    server: Server, kind: MetricKind, operation: str, verb: str, words: str
) -> None:
    _family, metric = a_metric(kind)
    arguments = () if operation == "value" else (1,)
    text = refusal(getattr(metric, operation), *arguments)
    assert text == f"Failed to {verb} metric value: {P}TRITONSERVER_METRIC_KIND_{words}"


@pytest.mark.parametrize("value", [None, "1", b"1", [1], 10**400])
@pytest.mark.parametrize(
    ("kind", "operation"),
    [(MetricFamily.COUNTER, "increment"), (MetricFamily.GAUGE, "set"), (MetricFamily.HISTOGRAM, "observe")],
)
def test_a_value_that_is_no_number_is_a_type_error(
    server: Server, kind: MetricKind, operation: str, value: object
) -> None:
    _family, metric = a_metric(kind)
    with pytest.raises(TypeError, match=rf"^{operation}\(\): incompatible function arguments"):
        getattr(metric, operation)(value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": 1, "description": "d", "kind": MetricFamily.GAUGE},
        {"name": "n", "description": None, "kind": MetricFamily.GAUGE},
        {"name": "n", "description": "d", "kind": 0},
        {"name": "n", "description": "d", "kind": None},
        {"name": "n"},
    ],
)
def test_a_family_with_wrong_types_is_a_type_error(server: Server, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        MetricFamily(**arguments)
    assert server.calls == 0
    assert list(server.custom.lines()) == []


def test_the_server_may_refuse_a_family(server: Server) -> None:
    family = MetricFamily("n", "d", MetricFamily.GAUGE)
    assert refusal(MetricFamily, "n", "d", MetricFamily.COUNTER) == (
        f"Error when creating MetricFamily: {P}Family name already exists with different type"
    )
    assert refusal(MetricFamily, "-", "d", MetricFamily.COUNTER) == (
        f"Error when creating MetricFamily: {P}Invalid metric name"
    )
    assert refusal(family.Metric, labels={"-": "x"}) == f"Error when creating Metric: {P}Invalid label name"


@pytest.mark.parametrize("labels", [[("a", "b")], "abc", 5])
def test_labels_are_a_dictionary(server: Server, labels: Any) -> None:
    family = MetricFamily("n", "d", MetricFamily.GAUGE)
    assert refusal(family.Metric, labels=labels) == "Failed to create metric. Labels must be a dictionary."


@pytest.mark.parametrize("labels", [{"a": 1}, {"a": None}, {"a": b"x"}, {"a": True}])
def test_labels_are_texts(server: Server, labels: Any) -> None:
    family = MetricFamily("n", "d", MetricFamily.GAUGE)
    assert refusal(family.Metric, labels=labels).startswith(
        f"Error when creating Metric: {P}attempt to access JSON non-string as string"
    )


def test_the_name_of_a_label_is_taken_as_text(server: Server) -> None:
    family = MetricFamily("n", "d", MetricFamily.GAUGE)
    assert refusal(family.Metric, labels={1: "a"}) == f"Error when creating Metric: {P}Invalid label name"


@pytest.mark.parametrize(
    ("kind", "buckets", "text"),
    [
        (MetricFamily.HISTOGRAM, None, "Failed to create metric. Missing required buckets."),
        (MetricFamily.HISTOGRAM, (1, 2), "Failed to create metric. Buckets must be a list."),
        (MetricFamily.HISTOGRAM, {}, "Failed to create metric. Buckets must be a list."),
        (MetricFamily.HISTOGRAM, [2, 1], f"Error when creating Metric: {P}Bucket Boundaries must be strictly sorted"),
        (MetricFamily.HISTOGRAM, [nan], f"Error when creating Metric: {P}Bucket Boundaries must be strictly sorted"),
        (MetricFamily.GAUGE, [1], "Failed to create metric. Unexpected buckets found."),
        (MetricFamily.COUNTER, [], "Failed to create metric. Unexpected buckets found."),
        (MetricFamily.GAUGE, (1,), "Failed to create metric. Buckets must be a list."),
    ],
)  # fmt: skip
def test_wrong_buckets_are_refused(server: Server, kind: MetricKind, buckets: Any, text: str) -> None:
    family = MetricFamily("n", "d", kind)
    assert refusal(family.Metric, buckets=buckets) == text


@pytest.mark.parametrize("bound", ["a", "1", None])
def test_a_bound_that_is_no_number_cannot_be_cast(server: Server, bound: Any) -> None:
    family = MetricFamily("n", "d", MetricFamily.HISTOGRAM)
    with pytest.raises(RuntimeError, match=r"^Unable to cast Python instance to C\+\+ type: "):
        family.Metric(buckets=[1, bound])


def test_a_metric_comes_from_its_family_only() -> None:
    with pytest.raises(TypeError, match="No constructor defined!"):
        Metric()


def test_metrics_take_no_attributes(server: Server) -> None:
    family, metric = a_metric(MetricFamily.GAUGE)
    for each in (family, metric):
        with pytest.raises(AttributeError):
            each.extra = 1  # type: ignore[union-attr]


def test_without_a_server_there_are_no_metrics() -> None:
    assert refusal(MetricFamily, "n", "d", MetricFamily.GAUGE) == (
        "Error when creating MetricFamily: metrics are for models that run in a server"
    )


def test_when_the_server_is_gone_changes_fail_and_deletion_does_not(server: Server) -> None:
    family, metric = a_metric(MetricFamily.GAUGE)
    assert runtime.control is not None
    runtime.control.close()
    assert refusal(metric.set, 1) == "Failed to set metric value: the server is gone"
    del metric
    del family


def test_the_end_of_a_forked_child_lets_go_of_nothing(server: Server) -> None:
    family, metric = a_metric(MetricFamily.GAUGE)
    child = os.fork()
    if not child:
        with suppress(BaseException):
            metric.increment(2)
            del metric
            del family
            gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert metric.value() == 2
    assert server.lines() == ["n 2"]
