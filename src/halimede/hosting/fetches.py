"""How far the models of endpoints have been fetched: told in the host's log, and in one beside those of the instances.

That one is ``ACCOUNT/REGION/ENDPOINT/VARIANT/data-log.log``, and so a stream of CloudWatch Logs, ``VARIANT/data-log``.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from halimede.hosting.identity import EndpointId
from halimede.hosting.store.source import ModelSource, ObjectInfo, Offer, OnProgress

logger = logging.getLogger("halimede")

STREAM = "data-log"

_INTERVAL_S = 1.0
_MB = 1e6


class Fetches:
    """Tells of fetches. Lives on the event loop; files are written on another thread."""

    def __init__(self, logs: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Logs go below a directory; `clock` gives seconds."""
        self._logs = logs
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "halimede-fetches")

    def begin(self, endpoint: EndpointId, variant: str, url: str) -> OnProgress:
        """What is to be told how far the fetch of a model has come; once a second of that is passed on."""
        last = self._clock()

        def tell(text: str) -> None:
            logger.info("%s: %s", endpoint.variant_words(variant), text)
            self.note(endpoint, variant, text)

        def progress(done: int, total: int) -> None:
            nonlocal last
            now = self._clock()
            if done >= total or now - last >= _INTERVAL_S:
                last = now
                tell(f"fetched {done / _MB:.1f} of {total / _MB:.1f} MB of {url}")

        tell(f"fetching {url}")
        return progress

    def note(self, endpoint: EndpointId, variant: str, text: str) -> None:
        """Write a line into the same log."""
        self._thread.submit(_append, self._log_of(endpoint, variant), text)

    def _log_of(self, endpoint: EndpointId, variant: str) -> Path:
        return endpoint.scope.directory(self._logs) / endpoint.name / variant / f"{STREAM}.log"

    def close(self) -> None:
        """Write what has been told, and end."""
        self._thread.shutdown()


class ObservedSource:
    """A source of models whose fetches are told of as those of one variant (`ModelSource`)."""

    def __init__(self, source: ModelSource, fetches: Fetches, endpoint: EndpointId, variant: str) -> None:
        self._source = source
        self._fetches = fetches
        self._endpoint = endpoint
        self._variant = variant

    async def describe(self, url: str) -> ObjectInfo:
        """What is known of the object at a URL."""
        return await self._source.describe(url)

    async def offer(self, url: str) -> Offer:
        """An offer of the object at a URL."""
        return await self._source.offer(url)

    async def fetch_model(self, url: str, directory: Path, timeout_s: float, on_progress: OnProgress) -> int:
        """Fetch and extract a model, and tell of it."""
        told = self._fetches.begin(self._endpoint, self._variant, url)

        def both(done: int, total: int) -> None:
            told(done, total)
            on_progress(done, total)

        return await self._source.fetch_model(url, directory, timeout_s, both)


def _append(log: Path, text: str) -> None:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write(f"{text}\n")
    except OSError as error:  # a log is not what anybody waits for
        logger.warning("cannot write %s: %s", log, error.strerror)
