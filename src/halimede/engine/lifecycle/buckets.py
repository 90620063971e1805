"""Repositories in buckets, looked at and fetched from beside the event loop."""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halimede.engine.lifecycle.model_table import ModelTable
from halimede.repository.overrides import Override

if TYPE_CHECKING:  # it needs an extra
    from halimede.repository.cloud.repositories import CloudRepositories

logger = logging.getLogger("halimede")

_PATIENCE_S = 3.0
"""So long the repository index waits for a bucket; then it tells what was there before."""


class Buckets:
    """The repositories in buckets; all of this does nothing where there are none. Lives on the event loop."""

    def __init__(
        self,
        cloud: "CloudRepositories | None",
        repositories: Sequence[Path],
        config_name: str,
        table: ModelTable,
        loop: AbstractEventLoop,
    ) -> None:
        """Nothing has been looked at.

        Args:
            cloud: the repositories in buckets; None for none.
            repositories: all repositories, the mirrors of these among them.
            config_name: the configuration to use, as `--model-config-name` says.
            table: the models, which tells what is in use.
            loop: the event loop.
        """
        self._cloud = cloud
        self._repositories = repositories
        self._config_name = config_name
        self._table = table
        self._loop = loop
        self._naming: asyncio.Future[None] | None = None

    async def check(self) -> None:
        """Learn which models there are, and refuse what cannot be read.

        Raises:
            HalimedeError: a bucket cannot be listed, or holds no repository there.
        """
        if self._cloud is not None:
            await self._loop.run_in_executor(self._cloud.lookers, self._cloud.check)

    async def update_names(self) -> None:
        """Learn which models there are, as far as the buckets tell soon."""
        if self._cloud is None:
            return
        if self._naming is None or self._naming.done():
            self._naming = self._loop.run_in_executor(self._cloud.lookers, self._cloud.update_names)
        await asyncio.wait([self._naming], timeout=_PATIENCE_S)

    async def update_all(self) -> None:
        """Learn what there is of every model, as far as the buckets tell."""
        if self._cloud is not None:
            await self._loop.run_in_executor(self._cloud.lookers, self._cloud.update_all)

    async def update(self, name: str) -> None:
        """Learn what there is of a model.

        Raises:
            BucketError: a bucket cannot be listed that may have it.
        """
        cloud = self._cloud
        if cloud is not None:
            await self._loop.run_in_executor(cloud.lookers, cloud.update, name, self._repositories)

    async def fetch(self, directories: Sequence[Path], override: Override) -> None:
        """Fetch what is to be loaded of a model with these directories, unless that is there.

        Raises:
            HalimedeError: the bucket does not give it, or there is no room for it on the disk.
        """
        cloud = self._cloud
        if cloud is not None and len(directories) == 1 and not override.files:
            await self._loop.run_in_executor(
                cloud.fetchers, cloud.fetch, directories[0], self._config_name, override.config, self._in_use
            )

    def used(self, directories: Sequence[Path]) -> None:
        """Note that a model with these directories has been in use until now."""
        if self._cloud is not None:
            for directory in directories:
                self._cloud.used(directory)

    def stop(self) -> None:
        """Have what is fetched end soon, with an error."""
        if self._cloud is not None:
            self._cloud.stop()

    async def close(self) -> None:
        """Let other servers use what has been fetched; when no load is under way any more."""
        if self._cloud is not None:
            await self._loop.run_in_executor(None, self._cloud.close)

    def _in_use(self, directory: Path) -> bool:
        """Whether a model serves or is being loaded; called on other threads."""
        return any(
            record.operations or any(each.serving or each.draining for each in list(record.versions.values()))
            for record in list(self._table.records.values())
            if self._table.own_name(record.name) == directory.name
        )
