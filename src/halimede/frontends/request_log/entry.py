"""What the log of requests knows of one request, and the line that it becomes."""

import json
from functools import lru_cache
from time import gmtime, monotonic_ns, strftime
from typing import Any, Final

from halimede.core.clock import MILLISECOND, SECOND
from halimede.core.requests import InferRequest
from halimede.core.trace_context import parse_context

_LONGEST_TEXT: Final = 1024


class Entry:
    """One request. Times of stages are in nanoseconds, -1 for what is not known.

    Attributes:
        protocol: HTTP, gRPC, SageMaker or Vertex AI.
        client: the client's address.
        method: the HTTP method, or the name of the RPC; "" if the request could not be read.
        path: the path, without the query; "" if the request could not be read.
        traceparent: the header of W3C's trace context, None for none.
        bytes_in: the body, or the message, as it was received.
        bytes_out: the body or the messages of the response.
        began_ns: when the request was complete, on the steady clock.
        ended_ns: when the response was handed to the socket.
        status: the HTTP status, or the name of the gRPC status.
        model: the model; "" for none.
        version: its version; 0 for none.
        id: the identifier that the client gave.
        batch_size: rows of the request; 0 where no model is asked.
        queue_ns: from entering the model's queue to the beginning of the execution.
        input_ns: gathering inputs.
        infer_ns: running the model.
        output_ns: handing out outputs.
    """

    __slots__ = (
        "_request",
        "batch_size",
        "began_ns",
        "bytes_in",
        "bytes_out",
        "client",
        "ended_ns",
        "id",
        "infer_ns",
        "input_ns",
        "method",
        "model",
        "output_ns",
        "path",
        "protocol",
        "queue_ns",
        "status",
        "traceparent",
        "version",
    )

    def __init__(
        self, protocol: str, client: str, method: str, path: str, traceparent: object, bytes_in: int
    ) -> None:
        self.protocol = protocol
        self.client = client
        self.method = method
        self.path = (
            path if len(path) <= _LONGEST_TEXT else path[: _LONGEST_TEXT + 1]
        )  # which shows that it is cut
        self.traceparent = traceparent
        self.bytes_in = bytes_in
        self.bytes_out = 0
        self.began_ns = monotonic_ns()
        self.ended_ns = 0
        self.status: int | str = 0
        self.model = ""
        self.version = 0
        self.id = ""
        self.batch_size = 0
        self.queue_ns = self.input_ns = self.infer_ns = self.output_ns = -1
        self._request: InferRequest | None = None

    def begin(self, request: InferRequest, version: int) -> None:
        """This version of the request's model is about to run it."""
        self._request = request
        self.version = version
        request.on_compute = self._computed

    def _computed(self, input_ns: int, infer_ns: int, output_ns: int) -> None:
        self.input_ns = input_ns
        self.infer_ns = infer_ns
        self.output_ns = output_ns

    def end(self, status: int | str) -> None:
        """The response has been handed to the socket."""
        self.ended_ns = monotonic_ns()
        self.status = status
        request = self._request
        if request is not None:
            self._request = None  # which has the tensors
            self.model = request.model_name
            self.id = request.id
            self.batch_size = request.batch_size
            if request.started_ns:
                self.queue_ns = request.started_ns - request.queued_ns

    def values(self) -> tuple[object, ...]:
        """All that is known, for `restored`; much quicker to make than a line."""
        return (
            self.protocol,
            self.client,
            self.method,
            self.path,
            self.traceparent,
            self.bytes_in,
            self.bytes_out,
            self.began_ns,
            self.ended_ns,
            self.status,
            self.model,
            self.version,
            self.id,
            self.batch_size,
            self.queue_ns,
            self.input_ns,
            self.infer_ns,
            self.output_ns,
        )

    @classmethod
    def restored(cls, values: tuple[Any, ...]) -> "Entry":
        """The entry that had these `values`."""
        entry = cls(*values[:6])
        entry.bytes_out, entry.began_ns, entry.ended_ns, entry.status = values[6:10]
        entry.model, entry.version, entry.id, entry.batch_size = values[10:14]
        entry.queue_ns, entry.input_ns, entry.infer_ns, entry.output_ns = values[14:]
        return entry

    @property
    def total_ns(self) -> int:
        """From the complete request to the response."""
        return self.ended_ns - self.began_ns

    @property
    def compute_ns(self) -> int:
        """What the execution took; -1 if that is not known."""
        return -1 if self.infer_ns < 0 else self.input_ns + self.infer_ns + self.output_ns


def text_line(entry: Entry, wall_ns: int) -> str:
    """The entry as a line of text; `wall_ns` is to be added to the steady clock for the time of day."""
    began, queue, compute = entry.began_ns + wall_ns, entry.queue_ns, entry.compute_ns
    model = trace = ""
    if entry.model:
        model = (
            f" model={_quoted(entry.model)} version={entry.version} batch={entry.batch_size}"
            f" queue={f'{queue / 1e6:.3f}' if queue >= 0 else '-'}"
            f" compute={f'{compute / 1e6:.3f}' if compute >= 0 else '-'}"
        )
    if entry.traceparent is not None and (trace := trace_id(entry.traceparent)):
        trace = f" trace={trace}"
    return (
        f"{_second(began // SECOND)}.{began // 1000 % 1_000_000:06d}Z {entry.client} {entry.protocol} "
        f"{_call(entry.method, entry.path)} {entry.status}{model} total={(entry.ended_ns - entry.began_ns) / 1e6:.3f}"
        f" in={entry.bytes_in} out={entry.bytes_out}{f' id={quoted(entry.id)}' if entry.id else ''}{trace}\n"
    )


def json_line(entry: Entry, wall_ns: int) -> str:
    """The entry as a JSON object on a line; `wall_ns` as of `text_line`."""
    began, queue, compute = entry.began_ns + wall_ns, entry.queue_ns, entry.compute_ns
    model = '"model":null,"version":null,"batch_size":null'
    if entry.model:
        model = f'"model":{_quoted(entry.model)},"version":{entry.version},"batch_size":{entry.batch_size}'
    trace = trace_id(entry.traceparent) if entry.traceparent is not None else ""
    status = entry.status if isinstance(entry.status, int) else f'"{entry.status}"'
    return (
        f'{{"time":"{_second(began // SECOND)}.{began // 1000 % 1_000_000:06d}Z","client":"{entry.client}",'
        f'"protocol":"{entry.protocol}","method":{_quoted(entry.method)},"path":{_quoted(entry.path)},'
        f'{model},"status":{status},"queue_ms":{f"{queue / 1e6:.3f}" if queue >= 0 else "null"},'
        f'"compute_ms":{f"{compute / 1e6:.3f}" if compute >= 0 else "null"},'
        f'"total_ms":{(entry.ended_ns - entry.began_ns) / 1e6:.3f},"bytes_in":{entry.bytes_in},'
        f'"bytes_out":{entry.bytes_out},"request_id":{quoted(entry.id) if entry.id else "null"},'
        f'"trace_id":{quoted(trace) if trace else "null"}}}\n'
    )


def slow_text(entry: Entry) -> str:
    """The entry as the log of slow requests tells it, with its stages."""
    model = (
        f" (model '{entry.model}' version {entry.version}, batch {entry.batch_size})" if entry.model else ""
    )
    told = [ns for ns in (entry.queue_ns, entry.input_ns, entry.infer_ns, entry.output_ns) if ns >= 0]
    stages = (
        ("queue", entry.queue_ns),
        ("input", entry.input_ns),
        ("infer", entry.infer_ns),
        ("output", entry.output_ns),
        ("other", entry.total_ns - sum(told)),
    )
    listed = ", ".join(f"{name} {_ms(ns)} ms" for name, ns in stages if ns >= 0)
    identifier = f", id {entry.id[:_LONGEST_TEXT]}" if entry.id else ""
    return (
        f"Slow request: {entry.protocol} {entry.method} {entry.path}{model} took "
        f"{_ms(entry.total_ns)} ms: {listed}; status {entry.status}, from {entry.client}{identifier}"
    )


def quoted(text: str) -> str:
    """The text as a JSON string in ASCII, so that nothing in it can break a line or imitate one; cut if it is long."""
    if len(text) > _LONGEST_TEXT:
        text = text[:_LONGEST_TEXT] + "…"
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return json.dumps(text)


def trace_id(traceparent: object) -> str:
    """The trace id in a `traceparent` header (W3C Trace Context), "" if there is none."""
    context = parse_context(traceparent)
    return "" if context is None else f"{context.trace_id:032x}"


def _ms(ns: int) -> str:
    return f"{ns / MILLISECOND:.3f}"


@lru_cache(64)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))


@lru_cache(1024)
def _quoted(text: str) -> str:
    """`quoted` of what requests repeat."""
    return quoted(text)


@lru_cache(1024)
def _call(method: str, path: str) -> str:
    return quoted(f"{method or '-'} {path or '-'}")
