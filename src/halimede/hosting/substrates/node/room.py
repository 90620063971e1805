"""Room for models on the disk of a node: what nobody uses goes, the least recently used first."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from halimede.core.clock import WALL_CLOCK
from halimede.hosting.errors import ApiError
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.node.cancellation import Cancellation
from halimede.hosting.substrates.node.layout import About, Layout
from halimede.repository.disk_use import disk_bytes
from halimede.repository.locks import is_locked, lock
from halimede.repository.model_archives import MODEL

_LOOK_S = 0.05
_WAIT_S = 0.2
_ABANDONED_S = 3600.0
"""A download that nobody has resumed for so long is removed."""


@dataclass(slots=True)
class _Count:
    """What is on disk beside the model that is being made.

    Attributes:
        used: bytes that count against the limit: what is there, and what is reserved by fetches that go on.
        reserved: those of them that are reserved by fetches.
        unwritten: those of them that are not on disk yet.
        removable: what may go unless somebody uses it: the time of its last use, its bytes and its directory.
    """

    used: int = 0
    reserved: int = 0
    unwritten: int = 0
    removable: list[tuple[int, int, Path]] = field(default_factory=list)


class Room:
    """Counts what models take, and makes room.

    Args:
        layout: where they are.
        limit_bytes: what they may take together; 0 for what the disk has.
        now: seconds since the epoch.
    """

    def __init__(self, layout: Layout, limit_bytes: int, now: Callable[[], float] = WALL_CLOCK.now) -> None:
        self._layout = layout
        self._limit = limit_bytes
        self._now = now

    def used_bytes(self) -> int:
        """What all models take on disk, those that are being fetched too."""
        models = sum(_size(path) for path in self._layout.all("model"))
        return models + sum(disk_bytes(path) for path in self._layout.all("fetch"))

    def reserve(self, fetch: Path, offer: Offer, cancellation: Cancellation) -> None:
        """Make room for a model, and keep it as long as the lock of its directory is held.

        Room that others take only while they fetch is waited for.

        Args:
            fetch: the directory in which the model is made.
            offer: its archive.
            cancellation: until when to wait.

        Raises:
            ApiError: there is no room, and models that are in use take it (507 ``InsufficientStorage``).
        """
        # what is in an archive of weights is hardly more than the archive
        needed = 2 * offer.size
        with self._counting(cancellation):
            About.forget(fetch)
        while True:
            with self._counting(cancellation):
                self._tidy()
                if self._make(fetch, offer, needed, needed - disk_bytes(fetch) + MODEL.reserve):
                    About(offer.name, needed).write(fetch)
                    return
            cancellation.pause(_WAIT_S)

    def publish(
        self, fetch: Path, offer: Offer, size: int, cancellation: Cancellation, rename: Callable[[], None]
    ) -> None:
        """Let others see a model that has been made, and count it as what it takes.

        Args:
            fetch: the directory in which it was made.
            offer: its archive.
            size: what it takes on disk, in bytes.
            cancellation: until when to wait.
            rename: called when there is room for it.

        Raises:
            ApiError: it is more than was expected, and there is no room for that.
        """
        while True:
            with self._counting(cancellation):
                if self._make(fetch, offer, size, 0):
                    rename()
                    About.forget(fetch)
                    return
                About.forget(fetch)  # so that no two wait for each other
            cancellation.pause(_WAIT_S)

    def evict_one(self, cancellation: Cancellation) -> bool:
        """Remove the model that nobody uses for the longest time; False if all are in use."""
        with self._counting(cancellation):
            return any(self._remove(path) for _, _, path in self._count(None).removable)

    def tidy(self, cancellation: Cancellation) -> None:
        """Remove what dead processes have left: half removals, and downloads that nobody resumes."""
        with self._counting(cancellation):
            self._tidy()

    def _tidy(self) -> None:
        for path in self._layout.all("trash"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self._layout.all("fetch"):
            if self._layout.is_made(path) or self._now() - _last_use(path) / 1e9 > _ABANDONED_S:
                self._remove(path)

    @contextmanager
    def _counting(self, cancellation: Cancellation) -> Iterator[None]:
        """No other process counts or makes room in the block."""
        while (descriptor := lock(self._layout.lock)) is None:
            cancellation.pause(_LOOK_S)
        try:
            yield
        finally:
            os.close(descriptor)

    def _make(self, fetch: Path, offer: Offer, needed: int, unwritten: int) -> bool:
        """Remove what nobody uses until there is room; False if there will be when others have made their models.

        Raises:
            ApiError: there is none.
        """
        count = self._count(fetch)
        free = shutil.disk_usage(self._layout.directory).free
        over = count.used + needed - self._limit if self._limit else 0
        lacking = max(over, unwritten + count.unwritten - free if unwritten else 0)
        with ExitStack() as locks:
            going = []
            held = count.used
            for _, size, path in count.removable:
                if lacking <= 0:
                    break
                if self._is_free(path, locks):
                    going.append(path)
                    held -= size
                    lacking -= size
                    over -= size
            if lacking <= 0:
                for path in going:
                    self._layout.remove(path)
                return True
        if lacking <= count.reserved:
            return False
        raise self._no_room(offer, needed, held) if over > 0 else self._no_disk(offer, unwritten, free)

    def _is_free(self, path: Path, locks: ExitStack) -> bool:
        """Whether nobody uses a directory, and nobody will until its lock is released."""
        try:
            descriptor = lock(path)
        except FileNotFoundError:
            return True
        if descriptor is None:
            return False
        locks.callback(os.close, descriptor)
        return True

    def _count(self, but: Path | None) -> _Count:
        count = _Count()
        models = [(_last_use(path), _size(path), path) for path in self._layout.all("model")]
        abandoned = []
        for path in self._layout.all("fetch"):
            if path == but:
                continue
            there = disk_bytes(path)
            if is_locked(path):
                about = About.read(path)
                reserved = max(there, about.disk_bytes) if about is not None else 0
                count.used += max(there, reserved)
                count.reserved += reserved
                count.unwritten += max(0, reserved - there)
            else:
                abandoned.append((_last_use(path), there, path))
        count.removable = sorted(abandoned) + sorted(models)
        count.used += sum(size for _, size, _ in count.removable)
        return count

    def _remove(self, path: Path) -> bool:
        """Remove a directory unless it is in use."""
        with ExitStack() as locks:
            if self._is_free(path, locks):
                self._layout.remove(path)
                return True
        return False

    def _no_room(self, offer: Offer, needed: int, held: int) -> ApiError:
        msg = (
            f"{offer.name} needs {needed:,} bytes of disk, for its archive and what is in it; the models of a node may "
            f"take {self._limit:,} bytes together, and models in use take {held:,} of them. Raise the limit, or use "
            "fewer or smaller models"
        )
        return ApiError("InsufficientStorage", msg, 507)

    def _no_disk(self, offer: Offer, unwritten: int, free: int) -> ApiError:
        msg = (
            f"{offer.name} needs {unwritten:,} bytes of disk, for its archive, what is in it, and {MODEL.reserve:,} "
            f"that must stay free; {free:,} are free on the disk of {self._layout.directory}, and removing the models "
            "that nobody uses would not be enough. Free some of it, or use a smaller model"
        )
        return ApiError("InsufficientStorage", msg, 507)


def _size(model: Path) -> int:
    """What a model takes on disk."""
    about = About.read(model)
    return disk_bytes(model) if about is None else about.disk_bytes


def _last_use(path: Path) -> int:
    """When a model was last taken, or some of an archive was last fetched; in nanoseconds since the epoch."""
    for each in (path / "stamp", path / "archive", path):
        with suppress(OSError):
            return each.stat().st_mtime_ns
    return 0
