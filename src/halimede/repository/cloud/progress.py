"""How far a fetch is, in the log: in tenths for large models, and what it came to for all."""

import logging
import time

from halimede.repository.cloud.locations import Location

logger = logging.getLogger("halimede")

_LARGE_BYTES = 64 << 20


class Progress:
    """How far the fetch of a model is."""

    def __init__(self, name: str, location: Location, files: int, size: int) -> None:
        self._name = name
        self._location = location
        self._files = files
        self._size = size
        self._done = 0
        self._logged_tenths = 0
        self._began = time.monotonic()

    def add(self, count: int) -> None:
        """So many further bytes are there."""
        self._done += count
        tenths = 10 * self._done // self._size
        if self._size < _LARGE_BYTES or not self._logged_tenths < tenths < 10:
            return
        self._logged_tenths = tenths
        logger.info(
            "fetching '%s' from %s: %d of %d MB (%d%%)",
            self._name,
            self._location.url,
            self._done / 1e6,
            self._size / 1e6,
            10 * tenths,
        )

    def finish(self) -> None:
        """All of it is there."""
        seconds = time.monotonic() - self._began
        logger.info(
            "fetched '%s' from %s: %d file%s, %.1f MB in %.2f s",
            self._name,
            self._location.url,
            self._files,
            "s" * (self._files != 1),
            self._done / 1e6,
            seconds,
        )
