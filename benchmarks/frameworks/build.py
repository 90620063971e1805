"""`python -m benchmarks.frameworks.build FRAMEWORK SIZE DIRECTORY`: write a model's files."""

import importlib
import sys
from pathlib import Path

from benchmarks.frameworks.framework import FRAMEWORKS, Maker, Size


def maker(module: str) -> Maker:
    """The module that builds and runs a framework's models; imports the framework."""
    found: Maker = importlib.import_module(f"benchmarks.frameworks.{module}")
    return found


def main() -> None:
    framework, size, directory = FRAMEWORKS[sys.argv[1]], Size(sys.argv[2]), Path(sys.argv[3])
    maker(framework.module).build(framework.kind, size, directory)


if __name__ == "__main__":
    main()
