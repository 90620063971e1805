"""What is recorded of single requests while they are served, for those who look for where the time goes."""

from typing import NamedTuple, Protocol

AttributeValue = int | str


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


class TracedTensor(NamedTuple):
    """The contents of a tensor, as they were at some point of a request's way.

    Attributes:
        activity: where that was; Triton's name.
        name: the tensor.
        datatype: the protocol's name of its datatype.
        shape: its shape.
        content: its elements as the protocol sends them in binary.
    """

    activity: str
    name: str
    datatype: str
    shape: tuple[int, ...]
    content: bytes


class TraceRecorder(Protocol):
    """Who makes the traces of what a client's request causes, and takes them when all have ended."""

    def child(self, parent: "Trace", model_name: str, model_version: int) -> "Trace":
        """A new trace of a request that `parent`'s request causes: a step of an ensemble, or a model's call."""

    def ended(self, traces: "list[Trace]") -> None:
        """A client's request has ended, and all that it has caused. Called once for each, on the event loop."""


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
        events: what happened, in the order in which it was recorded: a name, its time, a name, its time …; names are
            Triton's. One flat list, as all of it is made for each traced request.
        contents: the contents of tensors that were recorded.
        attributes: what else is known of the request, by names with dots.
        context: its place among the spans of other programs; None where those are not traced.
        remote: the span of the client that sent the request; None if the client did not tell.
        error: why the request failed; "" if it did not, or has not yet.
    """

    __slots__ = (
        "__weakref__",
        "_holds",
        "_recorder",
        "_tree",
        "attributes",
        "contents",
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
        self._recorder = recorder
        self._holds = 1
        self._tree: _Tree | None = None  # of a request that has caused none, and comes of none
        if parent is not None:
            tree = parent._tree  # noqa: SLF001 - of the same class
            if tree is None:
                tree = parent._tree = _Tree()  # noqa: SLF001
            tree.open += 1
            self._tree = tree
        self.number = number
        self.model_name = model_name
        self.model_version = model_version
        self.parent = parent
        self.request_id = ""
        self.timestamps = timestamps
        self.tensors = tensors
        self.events: list[str | int] = []
        self.contents: list[TracedTensor] = []
        self.attributes: dict[str, AttributeValue] = {}
        self.context = context
        self.remote = remote
        self.error = ""

    def child(self, model_name: str, model_version: int) -> "Trace | None":
        """A trace for a request that this one's request causes; None if this one has ended."""
        if not self._holds:
            return None
        return self._recorder.child(self, model_name, model_version)

    def hold(self) -> None:
        """There will be something to record when the request has its final response: `end` is called once more."""
        self._holds += 1

    def end(self) -> None:
        """The request has its final response, or what `hold` was called for is recorded."""
        self._holds -= 1
        if self._holds:
            return
        tree = self._tree
        if tree is None:
            self._recorder.ended([self])
            return
        tree.open -= 1
        tree.ended.append(self)
        if not tree.open:
            ended, tree.ended = tree.ended, []  # which hold the tree
            self._recorder.ended(ended)


class _Tree:
    """A client's request and all that it causes.

    Attributes:
        open: how many of these have not ended.
        ended: those that have.
    """

    __slots__ = ("ended", "open")

    def __init__(self) -> None:
        self.open = 1
        self.ended: list[Trace] = []
