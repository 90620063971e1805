"""Where captured invocations of an endpoint are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from halimede.hosting.errors import invalid
from halimede.hosting.identity import EndpointId

_FILE_S = 300.0
"""A file may hold records so long after the hour that its key says."""


class EndpointConfigs(Protocol):
    """Endpoint configurations of endpoints. The control plane implements it, or a model of it does."""

    def config_of(self, endpoint: EndpointId) -> Mapping[str, Any] | None:
        """What an endpoint serves by; None if there is no such endpoint, or it has never served."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Where captured invocations are.

    Attributes:
        destination: the URL below which they are.
        endpoint: whose they are.
        variants: the variants' names.
    """

    destination: str
    endpoint: str
    variants: Sequence[str]

    def prefixes(self, begin: float, end: float) -> list[str]:
        """Below which URLs the files are that may hold records of a window, in seconds since 1970."""
        hour = datetime.fromtimestamp(begin - _FILE_S, UTC).replace(minute=0, second=0, microsecond=0)
        last = datetime.fromtimestamp(end, UTC)
        hours = []
        while hour <= last:
            hours.append(f"{hour:%Y/%m/%d/%H}")
            hour += timedelta(hours=1)
        root = f"{self.destination.rstrip('/')}/{self.endpoint}"
        return [f"{root}/{variant}/{each}/" for variant in self.variants for each in hours]


def capture_of(configs: EndpointConfigs, endpoint: EndpointId) -> Capture:
    """Where captured invocations of an endpoint are.

    Raises:
        ApiError: there is no such endpoint, or nothing is captured of it.
    """
    config = configs.config_of(endpoint)
    if config is None:
        raise invalid(f'Could not find endpoint "{endpoint.scope.arn("endpoint", endpoint.name)}".')
    capture = config.get("DataCaptureConfig") or {}
    if not capture.get("EnableCapture", bool(capture)):
        raise invalid(
            f'Endpoint "{endpoint.name}" captures no data, which monitoring needs: set DataCaptureConfig, with '
            f"EnableCapture, in its endpoint configuration"
        )
    variants = [variant["VariantName"] for variant in config["ProductionVariants"]]
    return Capture(capture["DestinationS3Uri"], endpoint.name, variants)
