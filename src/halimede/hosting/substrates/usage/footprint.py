"""What an instance's processes take of the memory."""

from contextlib import suppress
from pathlib import Path

from halimede.hosting.substrates.processes import descendants

_KIB = 1024


def memory_of(pid: int) -> int:
    """Bytes of memory that a process and all that came from it have for themselves; 0 if that cannot be known."""
    if not pid:
        return 0
    total = 0
    for each in descendants(pid):
        with suppress(OSError):
            for line in Path(f"/proc/{each}/status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * _KIB
    return total
