"""Write the example model repository: `python -m examples.build [DIRECTORY]`, build/examples by default.

The models go to DIRECTORY/models; a real picture of a digit, ready for curl, goes beside them.
"""

import shutil
import sys
from pathlib import Path

from examples.digits.build import build as build_digits
from examples.simple.build import build as build_simple


def build(directory: Path) -> Path:
    """The model repository, made anew in the directory."""
    repository = directory / "models"
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    print(build_digits(repository))
    build_simple(repository)
    return repository


if __name__ == "__main__":
    written = build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples"))
    print(f"{written}: {', '.join(sorted(path.name for path in written.iterdir()))}")
