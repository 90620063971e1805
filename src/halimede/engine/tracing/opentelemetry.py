"""Traces for a collector of OpenTelemetry (mode `opentelemetry`).

Another process makes spans of them and sends those (`otlp_process.py`): that takes longer than to serve a small
request, and a collector may be slow.
"""

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from time import monotonic
from typing import Final

from halimede.core.clock import Clock
from halimede.core.errors import UnavailableError
from halimede.core.traces import Trace
from halimede.engine.tracing.otlp_settings import otlp_settings
from halimede.engine.tracing.sent_traces import sent_trace
from halimede.engine.tracing.settings import TraceSettings
from halimede.engine.tracing.trace_batches import MOST_WAITING, TraceBatches
from halimede.workers.batch_process import BatchProcess

logger = logging.getLogger("halimede")

_PROCESS: Final = "halimede.engine.tracing.otlp_process"
_LOG_INTERVAL_S: Final = 60.0
"""At most so often the log says that traces were dropped."""


class OpenTelemetryExporter:
    """Sends traces to a collector. Lives on the event loop.

    Args:
        options: of `--trace-config opentelemetry,NAME=VALUE`, each with all its values.
        clock: the time of events.

    Raises:
        InvalidArgumentError: an option cannot be used.
        UnavailableError: the packages for it are not installed.

    Attributes:
        options: those that clients may read, with their values: the options, and defaults of others.
    """

    spans = True

    def __init__(self, options: Mapping[str, tuple[str, ...]], clock: Clock) -> None:
        settings = otlp_settings(options)
        try:
            installed = find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
        except ModuleNotFoundError:
            installed = False
        if not installed:
            msg = "trace mode opentelemetry needs packages of OpenTelemetry: pip install 'halimede[otel]'"
            raise UnavailableError(msg)
        self.options = [
            *((name, value) for name, values in options.items() for value in values),
            *((name, value) for name, value in settings.numbers().items() if name not in options),
        ]
        self._drops = DropLog()
        self._process = BatchProcess(
            _PROCESS,
            [json.dumps(asdict(settings))],
            name="tracing",
            records="traces",
            most_waiting=MOST_WAITING,
            on_dropped=self._dropped,
            on_line=self._read_line,
        )
        self._batches = TraceBatches(self._process, clock)

    @property
    def dropped(self) -> int:
        """Traces that could not be handed to the collector."""
        return self._drops.count

    def export(self, traces: list[Trace], settings: TraceSettings) -> None:
        """Send a client's request and all that it has caused, within a tenth of a second to the other process."""
        self._batches.add([sent_trace(trace) for trace in traces])

    def flush(self, settings: TraceSettings) -> None:
        """Do nothing: traces are sent soon, whatever the settings."""

    def close(self, timeout_s: float) -> None:
        """Send what is left, if that takes no longer than `timeout_s`. Blocks."""
        self._batches.flush()
        if not self._process.close(timeout_s):
            self._process.kill()
            logger.warning(
                "tracing: sending did not end within %g seconds; traces that were not sent are lost",
                timeout_s,
            )
        self._drops.log()

    def _dropped(self, traces: int) -> None:
        self._drops.add(traces, "they were more than could be encoded")

    def _read_line(self, line: bytes) -> None:
        self._drops.add(*json.loads(line))


class DropLog:
    """Counts traces that were dropped, and tells the log from time to time. Its methods are called on any thread.

    Attributes:
        count: how many there were.
    """

    def __init__(self) -> None:
        self.count = 0
        self._logged = 0
        self._reason = ""
        self._next = 0.0
        self._changed = threading.Lock()

    def add(self, traces: int, reason: str) -> None:
        """So many were dropped."""
        with self._changed:
            self.count += traces
            self._reason = reason
            if monotonic() < self._next:
                return
            self._next = monotonic() + _LOG_INTERVAL_S
        self.log()

    def log(self) -> None:
        """Log how many were dropped that the log does not know of."""
        with self._changed:
            new, self._logged = self.count - self._logged, self.count
        if new:
            logger.warning(
                "tracing: %d traces were dropped, %d in all; the latest reason: %s",
                new,
                self.count,
                self._reason,
            )
