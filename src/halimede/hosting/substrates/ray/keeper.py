"""Ends what an actor leaves behind, however the actor goes.

A shell waits until its standard input ends, which the actor holds open, and then becomes
`python -m halimede.hosting.substrates.ray.keeper DIRECTORY`: every process that carries the instance's mark is killed,
and the instance's directory is removed. There is one for each instance, and a shell that waits takes next to no memory.
"""

import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from halimede.hosting.substrates.processes import end_marked

_WAIT = 'exec 3<&0 </dev/null; { read -r _ <&3 && exit; exec 3<&-; exec "$@"; } &'
"""In the background, so that it is nobody's child: Ray kills the children of actors. What it is told dismisses it."""

_TURNS = 3
_PAUSE_S = 0.3
"""A process that was being started when the actor died shows its mark a moment later."""


def start_keeper(directory: Path) -> "subprocess.Popen[bytes]":
    """Have somebody wait for the end of this process: what has the pipe that is to stay open until then.

    Args:
        directory: the instance's, with which its processes are marked.
    """
    command = [sys.executable, "-m", "halimede.hosting.substrates.ray.keeper", str(directory)]
    process = subprocess.Popen(  # noqa: S603 - our own
        ["/bin/sh", "-c", _WAIT, "keeper", *command], stdin=subprocess.PIPE, start_new_session=True
    )
    process.wait()  # it goes on in the background
    return process


def dismiss(keeper: "subprocess.Popen[bytes]") -> None:
    """There is nothing left to end."""
    assert keeper.stdin is not None
    with suppress(OSError):  # it has been killed
        keeper.stdin.write(b"done\n")
        keeper.stdin.close()


def main() -> None:
    """End what is left."""
    directory = Path(sys.argv[1])
    for _ in range(_TURNS):
        end_marked(directory, 0.0)
        time.sleep(_PAUSE_S)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
