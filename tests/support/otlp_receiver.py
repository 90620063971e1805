"""A collector of OpenTelemetry: an HTTP server that takes spans as OTLP's protobuf messages and keeps them."""

import gzip
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

Value = bool | int | float | str


@dataclass(frozen=True)
class ReceivedSpan:
    """One span, with its ids in hexadecimal; `parent` is "" for the first of a trace."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Value]
    events: list[tuple[str, int]]
    resource: dict[str, Value]
    state: str
    status: tuple[int, str]
    scope: str


@dataclass
class Collector:
    """What a collector was sent, and how it answers.

    Attributes:
        url: where it takes spans.
        spans: all that it was sent, in their order.
        requests: headers of each request, by names in lower case.
        status: the HTTP status of its answers.
        answer: the body of its answers.
        before_answer: called before each answer.
    """

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    answer: bytes = b""
    before_answer: Callable[[], None] = field(default=lambda: None)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, found: Callable[["Collector"], bool], timeout_s: float = 60.0) -> None:
        """Return when `found(collector)` holds; fails if that takes too long."""
        with self.changed:
            assert self.changed.wait_for(lambda: found(self), timeout_s), [span.name for span in self.spans]

    def wait_for_spans(self, count: int) -> list[ReceivedSpan]:
        """The spans, once there are so many."""
        self.wait_for(lambda collector: len(collector.spans) >= count)
        return list(self.spans)


@contextmanager
def otlp_receiver(port: int = 0) -> Iterator[Collector]:
    """A collector at a port of this machine, any free one unless one is given."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with collector.changed:
                collector.requests.append({name.lower(): value for name, value in self.headers.items()})
                if collector.status == 200:
                    collector.spans += _spans(body)
                collector.changed.notify_all()
            collector.before_answer()
            try:
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(collector.answer)))
                self.end_headers()
                self.wfile.write(collector.answer)
            except OSError:
                self.close_connection = True  # the sender has not waited

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _spans(body: bytes) -> Iterator[ReceivedSpan]:
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _span(span, resource, scope_spans.scope.name)


def _span(span: SpanMessage, resource: dict[str, Value], scope: str) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        [(event.name, event.time_unix_nano) for event in span.events],
        resource,
        span.trace_state,
        (span.status.code, span.status.message),
        scope,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}
