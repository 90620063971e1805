"""How much memory versions of models take: expected from their files, learned from every load and unload."""

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from halimede.backends.base import ModelSource
from halimede.backends.isolation import runs_in_process
from halimede.backends.reserved_cache import cache_bytes
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError
from halimede.repository.basis import Basis

FILES_FACTOR = 1.25
"""A model that was never loaded is expected to take so many times the bytes of its files."""

WORKER_BYTES = 8 << 20
"""And each worker process so many more."""

_MAX_MEMOIZED = 4096

Key = tuple[str, int, Basis]


class Footprints:
    """What versions took when they were loaded before. Equal names with other files or settings are other models."""

    def __init__(self) -> None:
        self._learned: OrderedDict[Key, int] = OrderedDict()

    def expected(self, name: str, version: int, basis: Basis | None) -> int | None:
        """Bytes that the version took before; None if that is not known."""
        return None if basis is None else self._learned.get((name, version, basis))

    def took(self, name: str, version: int, basis: Basis | None, size: int) -> None:
        """The version was measured to take so many bytes; what is known of it may only grow by that."""
        if basis is not None:
            self._learn((name, version, basis), max(size, self._learned.get((name, version, basis), 0)))

    def gave_back(self, name: str, version: int, basis: Basis | None, size: int) -> None:
        """So many bytes were free after it was closed.

        That says more than what it took, which may have been the first of something that stays. But memory is given
        back in pages, and what lies on them beside it keeps them: so what is known shrinks by half the difference.
        """
        if basis is None:
            return
        key = (name, version, basis)
        known = self._learned.get(key, 0)
        self._learn(key, size if size > known else (known + max(size, 0)) // 2)

    def _learn(self, key: Key, size: int) -> None:
        self._learned[key] = size
        self._learned.move_to_end(key)
        if len(self._learned) > _MAX_MEMOIZED:
            self._learned.popitem(last=False)


def estimate(directory: Path, version: int, config: ModelConfig) -> int:
    """Bytes that a version takes which was never loaded, as its files and its configuration suggest. Blocks."""
    size = sum(_file_sizes(directory / str(version)))
    workers = reserved = 0
    with suppress(InvalidArgumentError):  # which the load will tell
        if runs_in_process(ModelSource(config.name, version, directory, config)):
            workers = (
                sum(max(1, group.count) * max(1, len(group.gpus)) for group in config.instance_group) or 1
            )
            reserved = cache_bytes(config)
    return int(size * FILES_FACTOR) + workers * (WORKER_BYTES + reserved)


def _file_sizes(directory: Path) -> Iterator[int]:
    """Bytes of each file below; those that vanish meanwhile, or cannot be looked at, count nothing."""
    for place, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if name != "__pycache__"]
        for name in files:
            try:
                yield (Path(place) / name).stat().st_size
            except OSError:
                continue
