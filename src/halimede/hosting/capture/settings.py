"""What data capture may take, and how long it keeps what it has."""

from dataclasses import dataclass, replace
from pathlib import Path

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Limits of data capture. Bytes and seconds.

    Attributes:
        record_bytes: request and response of one invocation together; a larger one is left out.
        memory_bytes: all that a process has in memory of invocations until it is on disk; what exceeds it is left out.
        flush_s: how long an invocation that has been answered stays in memory.
        flush_bytes: with so many in memory they are written at once.
        file_bytes: a file with so many is complete.
        file_s: a file is complete so long after its first record.
        spool_bytes: with so many waiting on disk to be uploaded nothing more is captured.
        free_bytes: with less room on the disk nothing more is captured.
        sweep_s: how often complete files are looked for.
        retry_s: how long after a failure to upload it is tried again; twice as long each time.
        longest_retry_s: but not longer than this.
    """

    record_bytes: int = 32 * _MIB
    memory_bytes: int = 128 * _MIB
    flush_s: float = 0.05
    flush_bytes: int = 4 * _MIB
    file_bytes: int = 10 * _MIB
    file_s: float = 60.0
    spool_bytes: int = 1024 * _MIB
    free_bytes: int = 512 * _MIB
    sweep_s: float = 1.0
    retry_s: float = 1.0
    longest_retry_s: float = 60.0

    def shared(self, processes: int) -> "CaptureSettings":
        """The settings of one of so many processes, which share the memory."""
        return replace(self, memory_bytes=max(self.memory_bytes // processes, self.record_bytes))


def capture_directory(directory: Path) -> Path:
    """Where spool files are, in the directory of a host."""
    return directory / "capture"
