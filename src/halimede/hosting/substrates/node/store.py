"""Models on the disk of a node, shared by all its processes, each of which may be killed at any moment."""

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from halimede.core.clock import WALL_CLOCK
from halimede.hosting.errors import ApiError
from halimede.hosting.store.places import location_of, too_slow
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.node.cancellation import Cancellation, ExpiredError, StoppedError
from halimede.hosting.substrates.node.download import Progress, disk_failed
from halimede.hosting.substrates.node.fetch import Fetch, fetched_bytes
from halimede.hosting.substrates.node.layout import About, Layout, key_of
from halimede.hosting.substrates.node.room import Room
from halimede.repository.locks import lock

_LOOK_S = 0.1
"""How often a process looks how far another has come."""

_BUSY_S = 0.02
_TIDY_S = 60.0


@dataclass(slots=True)
class HeldModel:
    """A model that stays on disk until it is released, or until this process ends.

    Attributes:
        directory: the extracted model.
        disk_bytes: what its files take on disk.
    """

    directory: Path
    disk_bytes: int
    _lock: int | None = field(repr=False)

    def release(self) -> None:
        """Let the model be evicted when its room is needed; it may be called again."""
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)


class NodeStore:
    """The models of a node. Any thread may use it; all methods block.

    Args:
        directory: where they are kept, on a disk of the node itself; it is made. Other processes may use it too.
        limit_bytes: what they may take on disk together; 0 for no limit but the disk.
        now: seconds since the epoch.

    Raises:
        ApiError: the directory cannot be made.
    """

    def __init__(self, directory: Path, limit_bytes: int, now: Callable[[], float] = WALL_CLOCK.now) -> None:
        try:
            self._layout = Layout(directory)
        except OSError as error:
            raise disk_failed(directory, error) from error
        self._room = Room(self._layout, limit_bytes, now)
        self._now = now

    def take(self, offer: Offer, timeout_s: float, on_progress: Progress, stop: threading.Event) -> HeldModel:
        """A model, which is fetched if it is not there; by one process if several want it.

        What nobody uses is evicted for it, the least recently used first.

        Args:
            offer: its archive.
            timeout_s: how long it may take. What has been fetched until then is kept for the next attempt.
            on_progress: called on this thread, often, with how many bytes of the archive there are, and of how
                many; whoever fetches them.
            stop: set by another thread when nobody wants it any more.

        Raises:
            ApiError: it is not there any more, was replaced, is no archive that may be served, does not fit on the
                disk (507 ``InsufficientStorage``), took too long, or nobody wants it any more
                (409 ``OperationAborted``).
        """
        location = location_of(offer.name, "")
        reached = 0

        def progress(done: int, total: int) -> None:
            nonlocal reached
            reached = done
            on_progress(done, total)

        try:
            return self._take(offer, Cancellation(stop, timeout_s), progress)
        except ExpiredError as error:
            state = f"{reached:,} of {offer.size:,} bytes had been downloaded"
            raise too_slow(location, timeout_s, f"{state} (last: {error})" if str(error) else state) from None
        except StoppedError:
            raise ApiError(
                "OperationAborted", f"fetching {offer.name} was stopped, as nobody needs it any more", 409
            ) from None
        except OSError as error:
            raise disk_failed(self._layout.directory, error) from error

    def _take(self, offer: Offer, cancellation: Cancellation, progress: Progress) -> HeldModel:
        key = key_of(offer)
        while True:
            held = self._hold(self._layout.model(key), cancellation)
            if held is not None:
                progress(offer.size, offer.size)
                return held
            cancellation.check()
            fetch = Fetch.begin(self._layout, self._room, offer, self._now)
            if fetch is None:
                progress(fetched_bytes(self._layout.fetch(key)), offer.size)
                cancellation.pause(_LOOK_S)
                continue
            try:
                # another may have made it just before this one began
                held = self._hold(self._layout.model(key), cancellation)
                if held is not None:
                    return held
                return self._held(self._layout.model(key), fetch.run(cancellation, progress))
            finally:
                fetch.end()

    def _hold(self, path: Path, cancellation: Cancellation) -> HeldModel | None:
        """A model if it is there."""
        while True:
            try:
                descriptor = lock(path, shared=True)
            except FileNotFoundError:
                return None
            if descriptor is not None:
                break
            cancellation.pause(_BUSY_S)  # somebody decides whether it is to go
        try:
            return self._held(path, descriptor)
        except OSError:  # somebody else has removed a part of it
            self._layout.remove(path)
            os.close(descriptor)
            return None

    def _held(self, path: Path, descriptor: int) -> HeldModel:
        """A model whose lock is held.

        Raises:
            OSError: it is not complete.
        """
        now = self._now()
        os.utime(path / "stamp", (now, now))
        (path / "model").stat()
        about = About.read(path)
        if about is None:
            raise FileNotFoundError(errno.ENOENT, "a model says nothing of itself")
        return HeldModel(path / "model", about.disk_bytes, descriptor)

    def used_bytes(self) -> int:
        """What all models take on disk, those that are being fetched too."""
        return self._room.used_bytes()

    def tidy(self) -> None:
        """Remove what dead processes have left: half removals, and downloads that nobody resumes.

        Each fetch does so, too.
        """
        self._room.tidy(Cancellation(threading.Event(), _TIDY_S))
