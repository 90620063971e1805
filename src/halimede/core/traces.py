"""What is recorded of single requests while they are served, for those who look for where the time goes."""

from typing import Protocol

AttributeValue = bool | int | float | str


class SpanContext:
    """Where a span stands among those of other programs (W3C Trace Context).

    Attributes:
        trace_id: 16 bytes as an integer, not 0: what all spans of a request share.
        span_id: 8 bytes as an integer, not 0: this span.
        sampled: whether whoever began the trace records it.
        state: the header `tracestate`, to be handed on as it is; "" for none.
    """

    __slots__ = ("sampled", "span_id", "state", "trace_id")

    def __init__(self, trace_id: int, span_id: int, sampled: bool = True, state: str = "") -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.sampled = sampled
        self.state = state


class TraceRecorder(Protocol):
    """What takes traces when they have ended."""

    def child(self, parent: "Trace", model_name: str, model_version: int) -> "Trace":
        """A new trace of a request that `parent`'s request causes: a step of an ensemble, or a model's call."""

    def ended(self, trace: "Trace") -> None:
        """The trace is complete. Called once for each, on the event loop; children may end after their parents."""


class Trace:
    """One request that is traced: a client's, a step of an ensemble, or a call of a model. Lives on the event loop.

    A front end asks for it before it makes the request (most requests have none), and whoever has the request records
    what happens to it. Times are in nanoseconds on the engine's clock.

    Attributes:
        number: identifies it within this server; 1 or more.
        parent: the trace of the request that caused this one, None for a client's.
        model_name: the model that is asked.
        model_version: its version.
        request_id: the client's identifier of the request, "" for none.
        timestamps: whether times are wanted (level TIMESTAMPS).
        tensors: whether the contents of tensors are wanted (level TENSORS).
        events: names and times of what happened, in the order in which it was recorded; names are Triton's.
        attributes: what else is known of the request, by names with dots.
        context: its place among the spans of other programs; None where those are not traced.
        remote: the span of the client that sent the request; None if the client did not tell.
        error: why the request failed; "" if it did not, or has not yet.
    """

    __slots__ = (
        "_recorder",
        "attributes",
        "context",
        "error",
        "events",
        "model_name",
        "model_version",
        "number",
        "parent",
        "remote",
        "request_id",
        "tensors",
        "timestamps",
    )

    def __init__(
        self,
        recorder: TraceRecorder,
        number: int,
        model_name: str,
        model_version: int,
        *,
        parent: "Trace | None" = None,
        timestamps: bool = True,
        tensors: bool = False,
        context: SpanContext | None = None,
        remote: SpanContext | None = None,
    ) -> None:
        self._recorder: TraceRecorder | None = recorder
        self.number = number
        self.model_name = model_name
        self.model_version = model_version
        self.parent = parent
        self.request_id = ""
        self.timestamps = timestamps
        self.tensors = tensors
        self.events: list[tuple[str, int]] = []
        self.attributes: dict[str, AttributeValue] = {}
        self.context = context
        self.remote = remote
        self.error = ""

    def record(self, name: str, ns: int) -> None:
        """Something happened at this time."""
        self.events.append((name, ns))

    def child(self, model_name: str, model_version: int) -> "Trace | None":
        """A trace for a request that this one's request causes; None if this one has ended."""
        recorder = self._recorder
        return None if recorder is None else recorder.child(self, model_name, model_version)

    def end(self) -> None:
        """Nothing more happens to the request. Further calls do nothing."""
        recorder = self._recorder
        if recorder is not None:
            self._recorder = None
            recorder.ended(self)
