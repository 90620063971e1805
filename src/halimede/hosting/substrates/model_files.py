"""The extracted archives of multi-model instances of this machine."""

import asyncio
import shutil
from pathlib import Path

from halimede.hosting.store.source import ModelSource
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.usage.footprint import memory_of


class LocalModelFiles:
    """The files of an instance of this machine (`ModelFiles`): one directory a model, ``models/NAME/model``."""

    def __init__(self, instance: RunningInstance) -> None:
        """The files of an instance."""
        self._instance = instance

    @property
    def node(self) -> str:
        """There is one machine only."""
        return ""

    def _directory(self, name: str) -> Path:
        return self._instance.models / name

    async def fetch(self, name: str, url: str, source: ModelSource, timeout_s: float) -> int:
        """Have the files of an archive: the bytes that they take on disk."""
        directory = self._directory(name)
        directory.mkdir(parents=True)
        return await source.fetch_model(url, directory / "model", timeout_s, _ignore)

    async def remove(self, name: str) -> None:
        """Remove what there is of a model."""
        await asyncio.to_thread(shutil.rmtree, self._directory(name), ignore_errors=True)

    async def memory(self) -> int:
        """Bytes of memory that the instance's processes have for themselves."""
        return await asyncio.to_thread(memory_of, self._instance.pid)


def _ignore(_: int, __: int) -> None:
    """Nobody watches the progress of one model of many."""
