"""Finds the processes that wait for the ends of actors."""

import os
from pathlib import Path


def waiting_keepers(directory: Path) -> list[Path]:
    """Where /proc has the processes that wait for a directory's actor."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if os.fsencode(directory) in words:
            found.append(entry)
    return found
