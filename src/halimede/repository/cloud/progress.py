"""How far a fetch is, in the log: in tenths for large models, and what it came to for all."""

import logging
import time

from halimede.core.steps import Step
from halimede.repository.cloud.locations import Location

logger = logging.getLogger("halimede")

_LARGE_BYTES = 64 << 20


class Progress:
    """How far the fetch of a model is."""

    def __init__(self, name: str, location: Location, files: int, step: Step) -> None:
        """Nothing is there yet.

        Args:
            name: the model.
            location: where it is.
            files: how many are fetched.
            step: of bytes; it advances as they come.
        """
        self._name = name
        self._location = location
        self._files = files
        self._size = step.total or 0
        self._step = step
        self._logged_tenths = 0
        self._began = time.monotonic()

    def add(self, count: int) -> None:
        """So many further bytes are there."""
        step = self._step
        step.advance(count)
        tenths = 10 * step.done // self._size
        if self._size < _LARGE_BYTES or not self._logged_tenths < tenths < 10:
            return
        self._logged_tenths = tenths
        logger.info(
            "fetching '%s' from %s: %d of %d MB (%d%%)",
            self._name,
            self._location.url,
            step.done / 1e6,
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
            self._step.done / 1e6,
            seconds,
        )
