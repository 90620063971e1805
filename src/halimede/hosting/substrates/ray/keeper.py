"""Ends what an actor leaves behind: `python -m halimede.hosting.substrates.ray.keeper DIRECTORY`.

It waits until its standard input ends, which the actor holds open: that is when the actor is gone, however it went.
Then every process that carries the instance's mark is killed, and the instance's directory is removed.
"""

import os
import shutil
import sys
import time
from pathlib import Path

from halimede.hosting.substrates.processes import end_marked

_TURNS = 3
_PAUSE_S = 0.3
"""A process that was being started when the actor died shows its mark a moment later."""


def main() -> None:
    """Wait, and end what is left."""
    if os.fork():  # nobody's child, since Ray kills the children of actors
        os._exit(0)
    directory = Path(sys.argv[1])
    while os.read(0, 1):
        pass
    for _ in range(_TURNS):
        end_marked(directory, 0.0)
        time.sleep(_PAUSE_S)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
