"""What directories take on disk."""

import os
from contextlib import suppress
from pathlib import Path


def disk_bytes(directory: Path) -> int:
    """What the files of a directory take on disk, as far as others do not remove them meanwhile; blocks."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - speed
    return total
