"""Which models the repositories hold, for the index and for control modes that load all of them."""

import logging
from asyncio import AbstractEventLoop
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from halimede.engine.lifecycle.model_table import ModelTable
from halimede.repository.layout import find_models

logger = logging.getLogger("halimede")


class Catalog:
    """The models on disk, mirrors of buckets among them. Lives on the event loop."""

    def __init__(
        self, repositories: Sequence[Path], table: ModelTable, loop: AbstractEventLoop, disk: Executor
    ) -> None:
        """Nothing has been looked at; `disk` looks, and `table` is told."""
        self._repositories = repositories
        self._table = table
        self._loop = loop
        self._disk = disk

    async def update(self) -> None:
        """Learn which models there are; where that fails, it is as it was, and the log says why."""
        look = partial(find_models, self._repositories, namespaced=self._table.namespaced)
        try:
            found = await self._loop.run_in_executor(self._disk, look)
        except OSError as error:
            logger.error("cannot look for models: %s", error)
            return
        self._table.set_catalog({name: len(directories) > 1 for name, directories in found.items()})
