"""Files that programs of this directory write."""

import sys
from collections.abc import Mapping
from pathlib import Path


def write(files: Mapping[Path, str], command: str) -> int:
    """Write the files that are not as they should be or, with ``--check`` on the command line, only name them.

    Args:
        files: path → what is to be in it.
        command: what writes them, for whoever reads that one is stale.

    Returns:
        An exit status: 1 if a file is stale and was not written, else 0.
    """
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            sys.stderr.write(f"{path} is stale; run `{command}`\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[path])
    return 0
