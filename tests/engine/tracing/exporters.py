"""An exporter that keeps what it is given."""

from collections.abc import Sequence

from halimede.core.traces import Trace
from halimede.engine.tracing.settings import TraceSettings


class KeepingExporter:
    """Keeps traces, which are spans if that is said.

    Attributes:
        exported: the client's requests, each with what it has caused, and the settings that it was sampled by.
        flushed: settings that no more requests are sampled by.
    """

    options: Sequence[tuple[str, str]] = ()
    dropped = 0

    def __init__(self, *, spans: bool = False) -> None:
        self.spans = spans
        self.exported: list[tuple[list[Trace], TraceSettings]] = []
        self.flushed: list[TraceSettings] = []
        self.closed = False

    def export(self, traces: list[Trace], settings: TraceSettings) -> None:
        self.exported.append((traces, settings))

    def flush(self, settings: TraceSettings) -> None:
        self.flushed.append(settings)

    def close(self, timeout_s: float) -> None:
        self.closed = True
