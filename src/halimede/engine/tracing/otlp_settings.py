"""How traces are sent to a collector of OpenTelemetry: the options of `--trace-config opentelemetry,…`."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from os import environ
from typing import Final
from urllib.parse import urlsplit

from halimede.core.errors import InvalidArgumentError

logger = logging.getLogger("halimede")

_NUMBERS: Final = {
    "bsp_max_queue_size": 2048,
    "bsp_schedule_delay": 5000,
    "bsp_max_export_batch_size": 512,
}
"""Options that are numbers, and their defaults. `OTEL_` and their name in capitals is a variable that says it, too."""

_LARGEST: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """How traces are sent.

    Attributes:
        url: the collector's; "" for what the environment says (OTEL_EXPORTER_OTLP_…), or else
            http://localhost:4318/v1/traces.
        resource: attributes of the server.
        max_queue_size: spans that may wait to be sent; more are dropped.
        schedule_delay_ms: longest time that spans wait for others.
        max_export_batch_size: spans that are sent at once, unless a single request has more.
    """

    url: str
    resource: dict[str, str]
    max_queue_size: int
    schedule_delay_ms: int
    max_export_batch_size: int

    def numbers(self) -> dict[str, str]:
        """The options that are numbers, as they are."""
        values = (self.max_queue_size, self.schedule_delay_ms, self.max_export_batch_size)
        return dict(zip(_NUMBERS, map(str, values), strict=True))


def otlp_settings(options: Mapping[str, tuple[str, ...]]) -> OtlpSettings:
    """What the options say, each with the values that it was given: the last one counts, but for resources.

    Raises:
        InvalidArgumentError: a value cannot be used.
    """
    for name in options:
        if name not in {"url", "resource", *_NUMBERS}:
            logger.warning("--trace-config: the option '%s' of mode opentelemetry is not known", name)
    queue, delay, batch = (_number(name, options) for name in _NUMBERS)
    return OtlpSettings(_url(options), _resource(options), queue, delay, min(batch, queue))


def _url(options: Mapping[str, tuple[str, ...]]) -> str:
    url = options.get("url", ("",))[-1]
    if url:
        try:
            parts = urlsplit(url)
            known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known:
            msg = f"--trace-config: opentelemetry,url is '{url}'; it must be like http://localhost:4318/v1/traces"
            raise InvalidArgumentError(msg)
    return url


def _resource(options: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    pairs = [text.partition("=") for text in options.get("resource", ())]
    for key, separator, _ in pairs:
        if not (key and separator):
            msg = (
                f"--trace-config: opentelemetry,resource is '{key}'; it must be like service.name=my-service"
            )
            raise InvalidArgumentError(msg)
    return {key: value for key, _, value in pairs}


def _number(name: str, options: Mapping[str, tuple[str, ...]]) -> int:
    variable = f"OTEL_{name.upper()}"
    if name in options:
        text, place = options[name][-1], f"--trace-config: opentelemetry,{name}"
    elif environ.get(variable, ""):
        text, place = environ[variable], variable
    else:
        return _NUMBERS[name]
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST)) else 0
    if not 0 < number <= _LARGEST:
        raise InvalidArgumentError(f"{place} is '{text}'; it must be a whole number from 1 to {_LARGEST}")
    return number
