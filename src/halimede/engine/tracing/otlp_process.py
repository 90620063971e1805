"""The process that sends traces to a collector of OpenTelemetry, so that the server neither encodes them nor waits.

It takes no processor that anybody else wants: if the processors do not suffice for all, traces are lost.

    python -m halimede.engine.tracing.otlp_process SETTINGS

SETTINGS are JSON: the fields of `OtlpSettings`. It reads pickled batches from standard input until that ends: (what to
add to the server's clock for the time of day, traces). When traces were dropped, it writes a line of JSON: how many,
and why.
"""

import json
import logging
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import BinaryIO, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from halimede.core.cpus import yield_processors
from halimede.engine.tracing.otlp_settings import OtlpSettings
from halimede.engine.tracing.otlp_spans import Attributes, SentTrace, encode_request, encode_trace

_SERVICE: Final = "triton-inference-server"
_UNKNOWN: Final = "unknown_service"


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
        self._ended = False
        self._changed = threading.Condition()

    @property
    def is_full(self) -> bool:
        """Whether there is no room."""
        return self._spans >= self._settings.max_queue_size

    def put(self, encoded: bytes, spans: int) -> None:
        """Let a trace of so many spans wait."""
        with self._changed:
            if not self._traces:
                self._since = monotonic()
            self._traces.append((encoded, spans))
            self._spans += spans
            self._changed.notify()

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
            return taken


def run(batches: BinaryIO, settings: OtlpSettings, dropped: Callable[[int, str], None]) -> None:
    """Send the traces of all batches, until there are no more and all are sent.

    Args:
        batches: where they are read.
        settings: how they are sent.
        dropped: told how many traces were dropped, and why.
    """
    queue = SpanQueue(settings)
    sender = threading.Thread(target=_send_all, args=(queue, settings, dropped))
    sender.start()
    try:
        while True:
            wall_ns, traces = pickle.load(batches)  # noqa: S301 - only the server writes to this pipe
            refused = 0
            for trace in traces:
                if queue.is_full:
                    refused += 1
                    continue
                try:
                    queue.put(*encode_trace(SentTrace(*trace), wall_ns))
                except Exception as error:  # of a text that is no Unicode, perhaps; others are sent
                    dropped(1, repr(error))
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
        failure = sender.send(encode_request(traces, resource))
        if failure:
            dropped(len(traces), failure)


def _resource(attributes: dict[str, str]) -> Attributes:
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
