"""An exporter that keeps what it is given."""

from collections.abc import Mapping, Sequence

from halimede.core.traces import SpanContext, Trace
from halimede.engine.tracing.settings import TraceSettings


class KeepingExporter:
    """Keeps traces; requests with a header `traceparent` are continued from a client's span.

    Attributes:
        exported: the client's requests, each with what it has caused, and the settings that it was sampled by.
        flushed: settings that no more requests are sampled by.
    """

    options: Sequence[tuple[str, str]] = ()
    dropped = 0

    def __init__(self) -> None:
        self.exported: list[tuple[list[Trace], TraceSettings]] = []
        self.flushed: list[TraceSettings] = []
        self.closed = False

    def remote(self, headers: Mapping[str, object]) -> SpanContext | None:
        return SpanContext(1, 2) if "traceparent" in headers else None

    def context(self, parent: SpanContext | None) -> SpanContext | None:
        return None if parent is None else SpanContext(parent.trace_id, parent.span_id + 1)

    def export(self, traces: list[Trace], settings: TraceSettings) -> None:
        self.exported.append((traces, settings))

    def flush(self, settings: TraceSettings) -> None:
        self.flushed.append(settings)

    def close(self, timeout_s: float) -> None:
        self.closed = True
