"""Run scripts in which no sleep takes longer than a second: `impatient.py SDK SCRIPT [ARGUMENT ...] [-- SCRIPT …]`.

The SageMaker SDK sleeps half a minute before it looks at an endpoint for the first time, and the host needs a second.
It takes seconds to import, too: it is imported once, and each script runs in a fork of this process. The last argument
of a script is where its result goes; beside that file, with the suffixes ``.log`` and ``.status``, go its output and
its exit status.
"""

import importlib
import os
import runpy
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

_sleep = time.sleep


def main(sdk: str, *arguments: str) -> None:
    """Run the scripts, all at once."""
    importlib.import_module(sdk)
    time.sleep = lambda seconds: _sleep(min(float(seconds), 1.0))
    running = {}
    for command in _commands(arguments):
        child = os.fork()
        if not child:
            os._exit(_run(command))
        running[child] = Path(command[-1])
    while running:
        child, status = os.wait()
        told = running.pop(child).with_suffix(".status")
        told.with_suffix(".new").write_text(str(os.waitstatus_to_exitcode(status)))
        told.with_suffix(".new").rename(told)


def _commands(arguments: Sequence[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for argument in arguments:
        if argument == "--":
            yield command
            command = []
        else:
            command.append(argument)
    yield command


def _run(command: list[str]) -> int:
    """The exit status of a script that runs in this process."""
    with Path(command[-1]).with_suffix(".log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.argv = command
    try:
        runpy.run_path(command[0], run_name="__main__")
    except BaseException:  # whatever ends it
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
