"""Data capture of the host's own process: what it captures itself, and the uploads of all its processes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from halimede.hosting.capture.captured import CaptureMeter
from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.capture.uploader import Absorb, Uploader
from halimede.hosting.capture.writer import SpoolWriter
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.taps import Observer
from halimede.hosting.specs import Variant
from halimede.hosting.store.objects import Objects

_CONTENT_TYPE = "application/jsonlines"

_LAST_UPLOADS_S = 10.0
"""So long the host waits for the last records to be uploaded when it stops."""


class Capture:
    """Data capture. Lives on the event loop."""

    def __init__(
        self,
        directory: Path,
        settings: CaptureSettings,
        objects_of: Callable[[str], Objects],
        meter: Callable[[EndpointId, str], CaptureMeter],
        absorb: Absorb,
    ) -> None:
        """Nothing is uploaded before `start`.

        Args:
            directory: where spool files are.
            settings: limits.
            objects_of: what an account may write.
            meter: counts the invocations of an endpoint's variant.
            absorb: counts what has become of records of one that may be gone.
        """

        async def write(account: str, url: str, path: Path) -> None:
            await objects_of(account).write(url, path, _CONTENT_TYPE)

        self._meter = meter
        self._uploader = Uploader(directory, settings, write, absorb)
        self._writer = SpoolWriter(directory, settings)

    def observers(self, endpoint: EndpointId, variant: Variant) -> Sequence[Observer]:
        """What captures the invocations of a variant; nothing if that is not wanted."""
        return self._writer.observers(endpoint, variant, self._meter(endpoint, variant.name))

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is captured, as there is no room on the disk."""
        return self._uploader.room.is_full

    async def start(self) -> None:
        """Go on with what was captured before."""
        await self._uploader.start()

    async def stop(self) -> None:
        """Write what was captured, and upload it; what cannot be is kept for the next start."""
        await self._writer.close()
        await self._uploader.stop(_LAST_UPLOADS_S)
