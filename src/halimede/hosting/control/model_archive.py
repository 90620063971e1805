"""The archive of a variant of one model, which all instances of a fleet are started with."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from halimede.hosting.control.settings import Dependencies
from halimede.hosting.identity import EndpointId
from halimede.hosting.specs import Variant
from halimede.hosting.store.source import Offer


class VariantArchive:
    """The archive of a variant (`ModelArchive`). Lives on the event loop."""

    def __init__(
        self, dependencies: Dependencies, endpoint: EndpointId, variant: Variant, directory: Path
    ) -> None:
        """An archive that has not been fetched.

        Args:
            dependencies: what it needs of the host.
            endpoint: whose it is.
            variant: the variant.
            directory: where its files are to be, in ``model``.
        """
        self._url = variant.container.model_data_url
        self._source = dependencies.source_of(endpoint.account)
        self._begin_fetch = partial(dependencies.begin_fetch, endpoint, variant.name, self._url)
        self._directory = directory
        self._fetching = asyncio.Lock()
        self.timeout_s = float(variant.download_timeout_s)

    async def extracted(self) -> Path:
        """Its files on this machine, fetched and extracted unless they are there."""
        model = self._directory / "model"
        async with self._fetching:
            if not model.is_dir():
                self._directory.mkdir(parents=True, exist_ok=True)
                await self._source.fetch_model(self._url, model, self.timeout_s, self.progress())
        return model

    async def offer(self) -> Offer:
        """Where another machine fetches it from."""
        return await self._source.offer(self._url)

    def progress(self) -> Callable[[int, int], None]:
        """Begin to tell how far a fetch has come."""
        return self._begin_fetch()
