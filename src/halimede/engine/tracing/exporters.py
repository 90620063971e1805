"""Which exporter there is, by the mode of tracing."""

import logging

from halimede.core.clock import Clock
from halimede.engine.tracing.exporter import Exporter
from halimede.engine.tracing.opentelemetry import OpenTelemetryExporter
from halimede.engine.tracing.settings import TraceConfig, TraceMode
from halimede.engine.tracing.triton_file import TraceFileExporter

logger = logging.getLogger("halimede")


def open_exporter(config: TraceConfig, clock: Clock) -> Exporter | None:
    """Where traces go; None for nowhere, as no file is named.

    Raises:
        InvalidArgumentError: the file cannot be written, or an option of the mode cannot be used.
        UnavailableError: the mode needs packages that are not installed.
    """
    if config.mode is TraceMode.OPENTELEMETRY:
        return OpenTelemetryExporter(config.options, clock)
    if config.file:
        return TraceFileExporter(config.file, clock)
    if config.settings.levels:
        logger.warning(
            "no file is named for traces; nothing is traced without --trace-config triton,file=FILE"
        )
    return None
