"""Room on disk for the models of buckets: bounded, by removing what is not loaded and was loaded longest ago.

    DIRECTORY/
      NAME/                 a repository's mirror; whoever uses it holds a lock on this directory
        url                 what it mirrors, for people
        models/MODEL/…      what the engine sees
        partial/MODEL/…     what is being fetched, or was when a server ended

Servers share a directory: each has a mirror of its own, which the next one of the same repository takes over.
"""

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path

from halimede.core.errors import InvalidArgumentError, OutOfMemoryError
from halimede.repository.cloud.listing import RECORDS
from halimede.repository.cloud.locations import Location
from halimede.repository.disk_use import disk_bytes
from halimede.repository.locks import is_locked, lock

InUse = Callable[[Path], bool]
"""Whether a model's directory is used: a version of it serves, or is being loaded."""

_RESERVE_BYTES = 64 << 20
"""So much of the disk stays free."""

_LONGEST_NAME = 60


class Cache:
    """A directory with mirrors. Any thread may use it; all methods block."""

    def __init__(self, directory: Path, limit: int | float) -> None:
        """A cache, which need not be there yet.

        Args:
            directory: where it is.
            limit: bytes that models may take in it, or the share of the disk.

        Raises:
            InvalidArgumentError: the directory cannot be made.
        """
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._limit = limit if isinstance(limit, int) else int(limit * shutil.disk_usage(directory).total)
        except OSError as error:
            raise _unusable(directory, error) from error
        self._own: set[Path] = set()
        self._locks: dict[Path, threading.Lock] = {}
        self._fetching: dict[Path, int] = {}
        self._mutex = threading.Lock()
        self._used = self._count(None)

    def open_place(self, location: Location) -> tuple[Path, int]:
        """A directory for the mirror of a repository: one that an earlier server has left, if there is any.

        Returns:
            The directory, and a descriptor that holds its lock.

        Raises:
            InvalidArgumentError: it cannot be made.
        """
        digest = sha256(location.url.encode()).hexdigest()[:12]
        readable = re.sub(r"[^A-Za-z0-9.-]+", "-", location.url)[:_LONGEST_NAME].strip("-")
        try:
            descriptor = None
            numbers = count(1)
            while descriptor is None:
                number = next(numbers)
                place = self.directory / f"{readable}-{digest}{'' if number == 1 else f'.{number}'}"
                place.mkdir(exist_ok=True)
                descriptor = lock(place)
            for name in ("models", "partial"):
                (place / name).mkdir(exist_ok=True)
            (place / "url").write_text(f"{location.url}\n")
        except OSError as error:
            raise _unusable(self.directory, error) from error
        self._own.add(place)
        return place, descriptor

    def model_lock(self, model: Path) -> threading.Lock:
        """Held by whoever changes the directory of a model."""
        with self._mutex:
            return self._locks.setdefault(model, threading.Lock())

    @contextmanager
    def reserved(self, model: Path, needed: int, in_use: InUse) -> Iterator[None]:
        """Keep room for what is fetched in the block, after it has been made.

        Args:
            model: the directory of the model.
            needed: bytes that are fetched.
            in_use: what may not go.

        Raises:
            OutOfMemoryError: there is no room, and what is in use takes it.
        """
        with self._mutex:
            self._make_room(model, needed, in_use)
            self._used += needed
            self._fetching[model] = needed
        try:
            yield
        finally:
            with self._mutex:
                del self._fetching[model]

    def _make_room(self, model: Path, needed: int, in_use: InUse) -> None:
        free = shutil.disk_usage(self.directory).free - _RESERVE_BYTES - sum(self._fetching.values())
        shared = any(place not in self._own for place in self.directory.iterdir())
        if not shared and self._used + needed <= self._limit and needed <= free:
            return
        self._used = self._count(model)
        candidates = sorted(self._candidates(model, in_use))
        possible = sum(size for _, size, _ in candidates)
        if self._used - possible + needed > self._limit:
            raise OutOfMemoryError(
                f"'{model.name}' needs {needed:,} bytes of disk; models of buckets may take {self._limit:,} in "
                f"{self.directory}, and those in use take {self._used - possible:,} of them. Raise --cloud-cache-size, "
                "or unload some"
            )
        if needed > free + possible:
            raise OutOfMemoryError(
                f"'{model.name}' needs {needed:,} bytes of disk; {max(0, free):,} are free for it in {self.directory}, "
                "and removing the models that are not in use would not be enough. Free some of the disk, or name "
                "another directory with --cloud-cache-directory"
            )
        for _, size, path in candidates:
            if self._used + needed <= self._limit and needed <= free:
                break
            if self._evict(path):
                self._used -= size
                free += size

    def _count(self, fetched: Path | None) -> int:
        """Bytes of what is there, and of what is yet to be written by others than the model that is fetched now."""
        fetching = {_partial(model) for model in (*self._fetching, *filter(None, [fetched]))}
        there = sum(disk_bytes(path) for path in self._entries() if path not in fetching)
        return there + sum(self._fetching.values())

    def _entries(self) -> Iterator[Path]:
        """Models, and what there is of unfinished ones."""
        with suppress(FileNotFoundError):
            for place in self.directory.iterdir():
                for kind in ("models", "partial"):
                    with suppress(FileNotFoundError, NotADirectoryError):
                        yield from (place / kind).iterdir()

    def _candidates(self, fetched: Path, in_use: InUse) -> Iterator[tuple[float, int, Path]]:
        """What may go: when it was last used, its bytes and its directory."""
        fetching = {fetched, *self._fetching}
        fetching |= {_partial(model) for model in fetching}
        for path in self._entries():
            if path not in fetching and _has_files(path) and not self._is_used(path, in_use):
                yield _last_use(path), disk_bytes(path), path

    def _is_used(self, path: Path, in_use: InUse) -> bool:
        place = path.parent.parent
        if place not in self._own:
            return is_locked(place)
        return path.parent.name == "models" and in_use(path)

    def _evict(self, path: Path) -> bool:
        """Remove a model's files, or what there is of an unfinished one; False if somebody uses it."""
        place = path.parent.parent
        if place not in self._own:
            with suppress(FileNotFoundError):
                descriptor = lock(place)
                if descriptor is None:
                    return False
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)
            return True
        model_lock = self._locks.setdefault(place / "models" / path.name, threading.Lock())
        if not model_lock.acquire(blocking=False):
            return False
        try:
            _remove_files(path)
        finally:
            model_lock.release()
        return True


def _remove_files(model: Path) -> None:
    """Remove what has been fetched of a model, though not what is known of it."""
    (model / RECORDS[1]).unlink(missing_ok=True)
    for entry in model.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != RECORDS[0]:
            entry.unlink(missing_ok=True)


def _has_files(path: Path) -> bool:
    """Whether anything has been fetched of a model."""
    with suppress(FileNotFoundError):
        return any(entry.name != RECORDS[0] for entry in path.iterdir())
    return False


def _partial(model: Path) -> Path:
    return model.parent.parent / "partial" / model.name


def _last_use(path: Path) -> float:
    for each in (path / RECORDS[1], path):
        with suppress(OSError):
            return each.stat().st_mtime
    return 0.0


def _unusable(directory: Path, error: OSError) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"models of buckets cannot be kept in {directory} ({error.strerror}); name another directory with "
        "--cloud-cache-directory"
    )
