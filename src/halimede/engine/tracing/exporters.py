"""Which exporter there is, by the mode of tracing."""

from halimede.core.clock import Clock
from halimede.core.errors import UnsupportedError
from halimede.engine.tracing.exporter import Exporter
from halimede.engine.tracing.settings import TraceConfig, TraceMode
from halimede.engine.tracing.triton_file import TraceFileExporter


def open_exporter(config: TraceConfig, clock: Clock) -> Exporter | None:
    """Where traces go; None for nowhere, as no file is named.

    Raises:
        InvalidArgumentError: the file cannot be written.
        UnsupportedError: the mode is opentelemetry.
    """
    if config.mode is TraceMode.OPENTELEMETRY:
        raise UnsupportedError("tracing: this version has no mode opentelemetry")
    return TraceFileExporter(config.file, clock) if config.file else None
