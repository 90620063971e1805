"""Decides which requests are traced."""

from collections.abc import Callable, Mapping
from random import getrandbits

from halimede.core.trace_context import TRACEPARENT, TRACESTATE, parse_context
from halimede.core.traces import SpanContext, Trace
from halimede.engine.tracing.exporter import Exporter
from halimede.engine.tracing.settings import TENSORS, TIMESTAMPS, TraceSettings


class Sampler:
    """Samples requests by settings that do not change, and hands on what was recorded of them.

    Args:
        settings: which requests are traced.
        exporter: where traces go; None for nowhere, so that there are none.
        number: gives each trace its number.
        exhausted: called when as many requests as wanted were traced.

    Attributes:
        settings: as above.
        active: requests may be traced.
        left: so many are yet to be traced; -1 for any number.
    """

    def __init__(
        self,
        settings: TraceSettings,
        exporter: Exporter | None,
        number: Callable[[], int],
        exhausted: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.left = settings.count
        self.active = exporter is not None and settings.levels != () and settings.count != 0
        self._exporter = exporter
        self._number = number
        self._exhausted = exhausted
        spans = exporter is not None and exporter.spans
        self._spans = spans
        self._timestamps = spans or TIMESTAMPS in settings.levels
        self._tensors = not spans and TENSORS in settings.levels
        self._continues = spans and self.active  # clients' traces
        self._until = (
            settings.rate if self.active else 0
        )  # so many requests to the next that is traced; never from 0

    def begin(self, model_name: str, model_version: int, headers: Mapping[str, object]) -> Trace | None:
        """As `Tracing.begin`."""
        remote: SpanContext | None = None
        if self._continues and TRACEPARENT in headers:
            remote = parse_context(headers[TRACEPARENT], headers.get(TRACESTATE))
        if remote is None:
            self._until -= 1
            if self._until:
                return None
            self._until = self.settings.rate
        if self.left > 0:
            self.left -= 1
            if not self.left:
                self.close()
                self._exhausted()
        return self._trace(model_name, model_version, remote=remote)

    def child(self, parent: Trace, model_name: str, model_version: int) -> Trace:
        """A new trace of a request that `parent`'s request causes."""
        return self._trace(model_name, model_version, parent=parent)

    def _trace(
        self,
        model_name: str,
        model_version: int,
        *,
        parent: Trace | None = None,
        remote: SpanContext | None = None,
    ) -> Trace:
        context: SpanContext | None = None
        if self._spans:
            context = span_below(remote if parent is None else parent.context)
        return Trace(
            self,
            self._number(),
            model_name,
            model_version,
            parent=parent,
            timestamps=self._timestamps,
            tensors=self._tensors,
            context=context,
            remote=remote,
        )

    def ended(self, traces: list[Trace]) -> None:
        """A client's request has ended, and all that it has caused."""
        if self._exporter is not None:
            self._exporter.export(traces, self.settings)

    def close(self) -> None:
        """Trace no further requests."""
        self.active = self._continues = False
        self._until = 0
        if self._exporter is not None:
            self._exporter.flush(self.settings)


def span_below(parent: SpanContext | None) -> SpanContext:
    """A new span below another one; the first of a new trace if there is none."""
    span_id = getrandbits(64) or 1
    if parent is None:
        return SpanContext(getrandbits(128) or 1, span_id)
    return SpanContext(parent.trace_id, span_id, True, parent.state)
