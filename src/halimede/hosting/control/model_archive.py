"""The archives of a variant's containers, which all instances of a fleet are started with."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from halimede.hosting.control.settings import Dependencies
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.specs import Container, Variant
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.base import ONLY


def archives_of(
    dependencies: Dependencies, endpoint: EndpointId, variant: Variant, directory: Path
) -> "Mapping[str, VariantArchive]":
    """The archives of a variant's containers, by container; that of the only one is called "".

    Args:
        dependencies: what they need of the host.
        endpoint: whose they are.
        variant: the variant.
        directory: where their files are to be: in ``model``, or, of several, in ``CONTAINER/model``.
    """
    archives = {}
    for container in variant.containers:
        name = container.hostname if variant.further else ONLY
        if container.model_data_url and not container.multi_model:
            archives[name] = VariantArchive(dependencies, endpoint, variant, container, directory / name)
    return archives


class VariantArchive:
    """The archive of a container (`ModelArchive`). Lives on the event loop."""

    def __init__(
        self,
        dependencies: Dependencies,
        endpoint: EndpointId,
        variant: Variant,
        container: Container,
        directory: Path,
    ) -> None:
        """An archive that has not been fetched.

        Args:
            dependencies: what it needs of the host.
            endpoint: whose it is.
            variant: the variant.
            container: its container that the archive is of.
            directory: where its files are to be, in ``model``.
        """
        self._url = container.model_data_url
        self._container = container.hostname if variant.further else ""
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
                try:
                    await self._source.fetch_model(self._url, model, self.timeout_s, self.progress())
                except ApiError as error:
                    raise self._named(error) from None
        return model

    def _named(self, error: ApiError) -> ApiError:
        """An error that says whose archive it is of, if there are several."""
        return error.of_container(self._container) if self._container else error

    async def offer(self) -> Offer:
        """Where another machine fetches it from."""
        try:
            return await self._source.offer(self._url)
        except ApiError as error:
            raise self._named(error) from None

    def progress(self) -> Callable[[int, int], None]:
        """Begin to tell how far a fetch has come."""
        return self._begin_fetch()
