"""When the lines of a log were written: instances write them to files themselves, without times to rely on.

Beside each log lies a list of how long it was at which time, looked up once a second while it grows.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_ENTRY = struct.Struct("<QQ")
"""Size of the log in bytes, and when, in milliseconds since 1970."""

_SUFFIX = ".times"


def times_file(log: Path) -> Path:
    """The list of a log."""
    return log.with_name(log.name + _SUFFIX)


class LogTimes:
    """Notes when logs grow. Blocks for a moment."""

    def __init__(self) -> None:
        self._sizes: dict[Path, int] = {}

    def note(self, logs: Iterable[Path], now: float) -> None:
        """Note the sizes of logs that have grown.

        Args:
            logs: those of instances that run; those that were named the time before are looked at once more.
            now: seconds since 1970.
        """
        running = set(logs)
        for log in running | self._sizes.keys():
            with suppress(OSError):  # a log that is not there, or a full disk: the next time may do better
                size = log.stat().st_size
                if log not in self._sizes:
                    self._sizes[log] = _last_size(log)
                if size > self._sizes[log]:
                    with times_file(log).open("ab") as file:
                        file.truncate(file.tell() // _ENTRY.size * _ENTRY.size)  # where a disk was full
                        file.write(_ENTRY.pack(size, int(now * 1000)))
                    self._sizes[log] = size
        self._sizes = {log: size for log, size in self._sizes.items() if log in running}


def forget_times(log: Path, begin: int) -> None:
    """Forget when the lines before a position were written.

    Raises:
        OSError: the list cannot be written; it stays as it was.
    """
    kept = [entry for entry in _entries(log) if entry[0] > begin]
    beside = times_file(log).with_name(f"{log.name}.new")
    try:
        beside.write_bytes(b"".join(_ENTRY.pack(*entry) for entry in kept))
        beside.rename(times_file(log))
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _last_size(log: Path) -> int:
    """How long a log was when it was looked at last."""
    entries = _entries(log)
    return entries[-1][0] if entries else 0


def _entries(log: Path) -> list[tuple[int, int]]:
    try:
        data = times_file(log).read_bytes()
    except OSError:
        return []
    whole = len(data) // _ENTRY.size * _ENTRY.size
    return [(size, when) for size, when in _ENTRY.iter_unpack(data[:whole])]


class LineTimes:
    """When the bytes of one log were written."""

    def __init__(self, log: Path) -> None:
        """Times as they are known."""
        entries = _entries(log)
        self._sizes = [size for size, _ in entries]
        self._times = [when for _, when in entries]
        self._last = 0
        with suppress(OSError):
            self._last = log.stat().st_mtime_ns // 1_000_000

    def at(self, position: int) -> int:
        """When the byte before that position was written, in milliseconds since 1970.

        What has not been noted is of when the log was written to last.
        """
        index = bisect_left(self._sizes, position)
        return self._times[index] if index < len(self._times) else self._last
