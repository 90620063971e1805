"""Files that are read again when they change, while the server runs."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

_Mark = tuple[int, ...]


class FileWatch:
    """Looks at files once a second, and tells when they have changed and then stayed the same for one look.

    Links are followed, so that a file counts as changed that was written in place, replaced by another, or whose
    directory has become another, as Kubernetes does with its secrets. Waiting for one more look lets several files be
    replaced one after the other.
    """

    def __init__(self, paths: Sequence[Path], changed: Callable[[], None], interval_s: float = 1.0) -> None:
        """A watch that does not look yet. What it finds then counts from now on.

        Args:
            paths: the files.
            changed: called on the event loop; reads the files.
            interval_s: seconds between two looks.
        """
        self._paths = paths
        self._changed = changed
        self._interval_s = interval_s
        self._known = self._latest = self._marks()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on, if it does not do so yet."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        self.start()
        marks = self._marks()
        settled, self._latest = marks == self._latest, marks
        if settled and marks != self._known:
            self._known = marks
            self._changed()

    def _marks(self) -> list[_Mark]:
        return [_mark(path) for path in self._paths]


def _mark(path: Path) -> _Mark:
    """What differs between two versions of a file; () if there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
