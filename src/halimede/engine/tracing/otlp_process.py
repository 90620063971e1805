"""The process that sends traces to a collector of OpenTelemetry, so that the server neither encodes them nor waits.

It takes no processor that anybody else wants: if the processors do not suffice for all, traces are lost.

    python -m halimede.engine.tracing.otlp_process SETTINGS

SETTINGS are JSON: the fields of `OtlpSettings`. It reads pickled batches from standard input until that ends: for each
client's request a list of traces (`SentTrace`). When requests' traces were dropped, it writes a line of JSON: of how
many requests, and why.
"""

import json
import logging
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic, monotonic_ns, time_ns
from typing import BinaryIO, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from halimede.core.cpus import yield_processors
from halimede.engine.tracing.otlp_encoding import Value
from halimede.engine.tracing.otlp_settings import OtlpSettings
from halimede.engine.tracing.otlp_spans import encode_request, encode_trace

_SERVICE: Final = "triton-inference-server"
_UNKNOWN: Final = "unknown_service"
_FULL_TIMEOUT_S: Final = 1.0
"""So long a full queue may wait for the collector to take something."""


class Sender(OTLPSpanExporter):
    """The exporter of OpenTelemetry's SDK, for spans that are encoded: the SDK takes ten times as long for that."""

    def send(self, message: bytes) -> str:
        """Send an ExportTraceServiceRequest, again and again for as long as its time-out; why it failed, or ""."""
        result = self._client.export(message)
        if result.success:
            return ""
        return str(result.reason or result.error or "it took too long")


class SpanQueue:
    """Encoded traces that wait to be sent, from one thread to another.

    Args:
        settings: how many spans may wait, and how long for others.
    """

    def __init__(self, settings: OtlpSettings) -> None:
        self._settings = settings
        self._traces: deque[tuple[bytes, int]] = deque()
        self._spans = 0
        self._since = 0.0  # when the first that waits came
        self._full_until = 0.0  # while it is full; 0 if it is not, or nobody knows
        self._ended = False
        self._changed = threading.Condition()

    def put(self, encoded: bytes, spans: int) -> bool:
        """Let a traced request of so many spans wait; whether there was room for it.

        While there is none, this waits for the collector, but if that takes nothing, not longer than a second in all.
        """
        with self._changed:
            while self._spans >= self._settings.max_queue_size:
                if not self._full_until:
                    self._full_until = monotonic() + _FULL_TIMEOUT_S
                left = self._full_until - monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            if not self._traces:
                self._since = monotonic()
            self._traces.append((encoded, spans))
            self._spans += spans
            if len(self._traces) == 1 or self._spans >= self._settings.max_export_batch_size:
                self._changed.notify()
            return True

    def end(self) -> None:
        """There will be no more: do not wait for others."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self) -> list[bytes]:
        """Traces to be sent together, when there are enough or the delay is over; none if the queue has ended."""
        settings = self._settings
        with self._changed:
            while not self._ended and self._spans < settings.max_export_batch_size:
                left = self._since + settings.schedule_delay_ms / 1000 - monotonic() if self._traces else None
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            taken: list[bytes] = []
            total = 0
            while self._traces and total < settings.max_export_batch_size:
                encoded, spans = self._traces.popleft()
                taken.append(encoded)
                total += spans
            self._spans -= total
            self._since = monotonic()
            self._full_until = 0.0
            self._changed.notify()
            return taken


def run(batches: BinaryIO, settings: OtlpSettings, dropped: Callable[[int, str], None]) -> None:
    """Send the traces of all batches, until there are no more and all are sent.

    Args:
        batches: where they are read.
        settings: how they are sent.
        dropped: told how many traced requests were dropped, and why.
    """
    queue = SpanQueue(settings)
    sender = threading.Thread(target=_send_all, args=(queue, settings, dropped))
    sender.start()
    try:
        while True:
            requests = pickle.load(batches)  # noqa: S301 - only the server writes to this pipe
            refused = 0
            wall_ns = time_ns() - monotonic_ns()
            for traces in requests:
                try:
                    encoded = [encode_trace(trace, wall_ns) for trace in traces]
                except Exception as error:  # of a text that is no Unicode, perhaps; others are sent
                    dropped(1, repr(error))
                    continue
                spans = sum(count for _, count in encoded)
                refused += not queue.put(b"".join([each for each, _ in encoded]), spans)
            if refused:
                dropped(refused, "the queue was full")
    except EOFError:
        queue.end()
    sender.join()


def _send_all(queue: SpanQueue, settings: OtlpSettings, dropped: Callable[[int, str], None]) -> None:
    sender = Sender(endpoint=settings.url or None)
    resource = _resource(settings.resource)
    while True:
        traces = queue.take()
        if not traces:
            return
        try:
            failure = sender.send(encode_request(traces, resource))
        except Exception as error:  # of these traces; those that come later are sent
            failure = repr(error)
        if failure:
            dropped(len(traces), failure)


def _resource(attributes: dict[str, str]) -> dict[str, Value]:
    """What the server is: these attributes, those of the environment (OTEL_RESOURCE_ATTRIBUTES), and the SDK's."""
    resource = Resource.create(dict(attributes))
    known = {
        key: value
        for key, value in resource.attributes.items()
        if isinstance(value, bool | int | float | str)
    }
    if str(known.get(SERVICE_NAME, _UNKNOWN)).startswith(_UNKNOWN):
        known[SERVICE_NAME] = _SERVICE
    return known


def main() -> None:
    """Run until the server closes the pipe; signals are for the server, whose last requests come after them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    yield_processors()
    logging.disable()  # what fails is told to the server

    def dropped(traces: int, reason: str) -> None:
        sys.stdout.write(json.dumps([traces, reason]) + "\n")
        sys.stdout.flush()

    run(sys.stdin.buffer, OtlpSettings(**json.loads(sys.argv[1])), dropped)


if __name__ == "__main__":
    main()
