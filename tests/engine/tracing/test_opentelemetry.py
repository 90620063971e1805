import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halimede.core.clock import VirtualClock
from halimede.core.errors import InvalidArgumentError, UnavailableError
from halimede.core.trace_context import parse_context
from halimede.core.traces import SpanContext, Trace
from halimede.engine.tracing import opentelemetry
from halimede.engine.tracing.opentelemetry import DropLog, OpenTelemetryExporter
from halimede.engine.tracing.otlp_settings import otlp_settings
from halimede.engine.tracing.sampler import span_below
from halimede.engine.tracing.settings import TIMESTAMPS, TraceSettings
from tests.support.otlp_receiver import otlp_receiver
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

SETTINGS = TraceSettings(levels=(TIMESTAMPS,))
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Recorder:
    """Traces by an exporter, each of which has what makes a span of it."""

    def __init__(self, exporter: OpenTelemetryExporter) -> None:
        self._exporter = exporter
        self.made = 0

    def child(self, parent: Trace, model_name: str, model_version: int) -> Trace:
        self.made += 1
        context = span_below(parent.context)
        return Trace(self, self.made, model_name, model_version, parent=parent, context=context)

    def ended(self, traces: list[Trace]) -> None:
        self._exporter.export(traces, SETTINGS)

    def request(self, model_name: str = "m", remote: SpanContext | None = None) -> Trace:
        self.made += 1
        context = span_below(remote)
        trace = Trace(self, self.made, model_name, 1, context=context, remote=remote)
        trace.events += ("HTTP_RECV_START", 1, "REQUEST_START", 2, "REQUEST_END", 3)
        return trace


@contextmanager
def exporting(url: str, **options: str) -> Iterator[tuple[OpenTelemetryExporter, Recorder, VirtualClock]]:
    """An exporter with these options, closed in the end."""
    clock = VirtualClock()
    told = {
        "url": (url,),
        "bsp_schedule_delay": ("50",),
        **{name: (value,) for name, value in options.items()},
    }
    exporter = OpenTelemetryExporter(told, clock)
    try:
        yield exporter, Recorder(exporter), clock
    finally:
        exporter.close(30)
        exporter._process._process.wait(60)  # noqa: SLF001 - whether its process has ended


def test_collector_gets_a_request_and_what_it_caused() -> None:
    with otlp_receiver() as collector:
        with exporting(collector.url, resource="team=vision") as (_, recorder, _):
            client = parse_context(TRACEPARENT, "a=b")
            trace = recorder.request("ensemble", client)
            step = trace.child("step", 2)
            assert step is not None
            step.events += ("REQUEST_START", 2)
            step.end()
            trace.end()
        by_name = {span.name: span for span in collector.wait_for_spans(3)}
        request, model, inner = (by_name[name] for name in ("InferRequest", "ensemble", "step"))
        assert request.parent == "00f067aa0ba902b7"
        assert model.parent == request.span_id
        assert inner.parent == model.span_id
        assert {span.trace_id for span in by_name.values()} == {"4bf92f3577b34da6a3ce929d0e0e4736"}
        assert {span.state for span in by_name.values()} == {"a=b"}
        assert inner.attributes["triton.trace_parent_id"] == model.attributes["triton.trace_id"]
        assert request.resource["service.name"] == "triton-inference-server"
        assert request.resource["team"] == "vision"


def test_traces_are_sent_while_the_server_runs() -> None:
    with otlp_receiver() as collector, exporting(collector.url) as (_, recorder, clock):
        recorder.request().end()
        clock.advance(200_000_000)
        assert len(collector.wait_for_spans(2)) == 2


def test_environment_names_collector_headers_service_and_compression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with otlp_receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.removesuffix("/v1/traces"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "digits")
        with exporting("") as (_, recorder, _):
            recorder.request().end()
        resource = collector.wait_for_spans(2)[0].resource
        assert resource["service.name"] == "digits"
        assert resource["deployment.environment"] == "test"
        assert collector.requests[0]["api-key"] == "secret"
        assert collector.requests[0]["content-encoding"] == "gzip"


def test_collector_that_refuses_costs_its_traces_and_they_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with otlp_receiver() as collector, exporting(collector.url) as (exporter, recorder, clock):
        collector.status, collector.answer = 400, b"\xff\x00 what?"
        with caplog.at_level(logging.WARNING, "halimede"):
            recorder.request().end()
            clock.advance(200_000_000)
            wait_until(lambda: exporter.dropped == 1)
            wait_until(
                lambda: (
                    "tracing: 1 traces were dropped, 1 in all; the latest reason: Bad Request" in caplog.text
                )
            )
        collector.status = 200
        recorder.request().end()
        clock.advance(200_000_000)
        collector.wait_for_spans(2)
        assert exporter.dropped == 1


def test_collector_that_does_not_answer_costs_traces_beyond_the_queue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = threading.Event()
    with otlp_receiver() as collector:
        collector.before_answer = lambda: assert_true(answer.wait(60))
        options = {"bsp_max_queue_size": "20", "bsp_max_export_batch_size": "10"}
        with exporting(collector.url, **options) as (exporter, recorder, clock):
            for _ in range(100):
                recorder.request().end()
            clock.advance(200_000_000)
            wait_until(lambda: exporter.dropped >= 80)
            answer.set()
        assert len(collector.spans) + 2 * exporter.dropped == 200
        assert len(collector.spans) <= 40


def test_collector_that_is_away_delays_nothing_but_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"  # it takes connections, and no more
        exporter = OpenTelemetryExporter({"url": (address,)}, VirtualClock())
        recorder = Recorder(exporter)
        for _ in range(100):
            recorder.request().end()
        exporter.close(0.2)
    assert exporter._process._process.wait(60) is not None  # noqa: SLF001 - whether its process has ended
    assert (
        "tracing: sending did not end within 0.2 seconds; traces that were not sent are lost" in caplog.text
    )


def test_answer_that_is_no_http_costs_only_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as junk:

        def answer() -> None:
            while True:
                try:
                    client, _ = junk.accept()
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with exporting(f"http://127.0.0.1:{junk.getsockname()[1]}/") as (exporter, recorder, clock):
            recorder.request().end()
            clock.advance(200_000_000)
            wait_until(lambda: exporter.dropped == 1)
        junk.shutdown(socket.SHUT_RDWR)
        junk.close()
        thread.join()


def test_log_is_told_of_drops_from_time_to_time(caplog: pytest.LogCaptureFixture) -> None:
    drops = DropLog()
    with caplog.at_level(logging.WARNING, "halimede"):
        for _ in range(1000):
            drops.add(2, "the queue was full")
        drops.log()
        drops.log()
    assert drops.count == 2000
    assert [record.message for record in caplog.records] == [
        "tracing: 2 traces were dropped, 2 in all; the latest reason: the queue was full",
        "tracing: 1998 traces were dropped, 2000 in all; the latest reason: the queue was full",
    ]


def test_trace_that_cannot_be_encoded_does_not_keep_others_from_being_sent() -> None:
    with otlp_receiver() as collector, exporting(collector.url) as (exporter, recorder, clock):
        broken = recorder.request()
        broken.error = "\udc80"
        broken.end()
        recorder.request().end()
        clock.advance(200_000_000)
        collector.wait_for_spans(2)
        wait_until(lambda: exporter.dropped == 1)


def test_missing_packages_are_named_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opentelemetry, "find_spec", lambda _name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'halimede\[otel\]'"):
        OpenTelemetryExporter({}, VirtualClock())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "url",
            "localhost:4318",
            "opentelemetry,url is 'localhost:4318'; it must be like http://localhost:4318/v1/traces",
        ),
        ("url", "http://[", "it must be like http://"),
        ("url", "http://:80/", "it must be like http://"),
        ("url", "http://a:99999/", "it must be like http://"),
        ("resource", "name", "opentelemetry,resource is 'name'; it must be like service.name=my-service"),
        ("resource", "=name", "it must be like service.name"),
        ("bsp_max_queue_size", "many", "bsp_max_queue_size is 'many'; it must be a whole number from 1 to"),
        ("bsp_schedule_delay", "-1", "bsp_schedule_delay is '-1'; it must be a whole number from 1 to"),
        ("bsp_schedule_delay", "2147483648", "it must be a whole number from 1 to 2147483647"),
        ("bsp_schedule_delay", "9" * 5000, "it must be a whole number from 1 to"),
        ("bsp_max_export_batch_size", "", "it must be a whole number from 1 to"),
    ],
)
def test_unusable_option_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        otlp_settings({name: (value,)})
    assert message in str(raised.value)


def test_settings_come_from_options_then_environment_then_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    settings = otlp_settings({"bsp_schedule_delay": ("7", "9"), "resource": ("a=b=c", "d=")})
    assert settings.schedule_delay_ms == 9
    assert settings.max_queue_size == 10
    assert settings.max_export_batch_size == 10
    assert settings.resource == {"a": "b=c", "d": ""}
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "x")
    with pytest.raises(InvalidArgumentError, match="OTEL_BSP_MAX_QUEUE_SIZE is 'x'"):
        otlp_settings({})


def test_unknown_option_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    otlp_settings({"urll": ("x",)})
    assert "the option 'urll' of mode opentelemetry is not known" in caplog.text


def assert_true(value: bool) -> None:
    assert value


def test_process_ends_when_the_server_does(tmp_path: Path) -> None:
    exporter = OpenTelemetryExporter({}, VirtualClock())
    exporter.close(30)
    assert exporter._process._process.wait(60) == 0  # noqa: SLF001 - whether its process has ended
