"""The process that decodes large requests; see `decoders`."""

import gc
import os
import pickle
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from halimede.core import errors
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.tensors import Buffer
from halimede.frontends.decoder_messages import pickled, receive, send

_NICENESS: Final = 5
"""A process of the server has three times this one's share of a busy processor, so that small requests go first."""

OUT_OF_MEMORY: Final = 75
"""The exit status of a process that cannot even receive its request, or say so."""


def _answer(call: bytes, data: bytes) -> list[Buffer]:
    function, arguments = pickle.loads(call)  # noqa: S301 - of the server
    try:
        return pickled(("", function(data, *arguments)))
    except HalimedeError as error:
        kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
        return pickled((kind.__name__, error.message))
    except MemoryError:
        return pickled((MemoryError.__name__, ""))
    except Exception as error:
        return pickled((InternalError.__name__, f"{type(error).__name__}: {error}"))


def _limit(memory: int) -> None:
    """Take no more than so many bytes; 0 for any number."""
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with suppress(OSError):  # where memory runs out all the same, this process ends rather than the server
        Path("/proc/self/oom_score_adj").write_text("1000")


def main(memory: int) -> None:
    """Serve until the input ends.

    Args:
        memory: bytes that the process may take; 0 for any number.
    """
    _limit(memory)
    os.nice(_NICENESS)
    gc.disable()  # it would look at millions of lists again and again, and there are no cycles in them
    pipe, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        while True:
            send(answers, _answer(*receive(pipe)))
    except EOFError:
        return
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BrokenPipeError:  # the server was killed meanwhile
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
