"""Runs modules of the example one after another, each as `python -m` does, so that TensorFlow is imported once.

Each line of the standard input has a module and its arguments, as JSON; each line of the standard output the exit
status of the module and what it wrote. Runs of one module share the network that the first of them has made.
"""

import io
import json
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from examples.inception_ensemble import network

_make = network.inception
_made: dict[str, Any] = {}


def _inception(pictures: Any) -> Any:
    """In place of the example's: the network that this module has made before."""
    if sys.argv[0] not in _made:
        _made[sys.argv[0]] = _make(pictures)
    return _made[sys.argv[0]]


def run(module: str, *arguments: str) -> tuple[int, str, str]:
    """The exit status of a module, what it printed, and its errors."""
    sys.argv = [module, *arguments]
    status: Any = 0
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as errors:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code or 0
    if isinstance(status, str):  # as Python ends then
        errors.write(f"{status}\n")
        status = 1
    return status, printed.getvalue(), errors.getvalue()


def main() -> None:
    """Run what the lines say."""
    network.inception = _inception
    for line in sys.stdin:
        answer = json.dumps(run(*json.loads(line)))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
