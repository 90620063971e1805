"""The process that decodes large requests; see `decoders`."""

import gc
import os
import pickle
import sys

from halimede.core import errors
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.tensors import Buffer
from halimede.frontends.decoder_messages import pickled, receive, send


def _answer(call: bytes, data: bytes) -> list[Buffer]:
    function, arguments = pickle.loads(call)  # noqa: S301 - of the server
    try:
        return pickled(("", function(data, *arguments)))
    except HalimedeError as error:
        kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
        return pickled((kind.__name__, error.message))
    except Exception as error:
        return pickled((InternalError.__name__, f"{type(error).__name__}: {error}"))


def main() -> None:
    """Serve until the input ends."""
    gc.disable()  # it would look at millions of lists again and again, and there are no cycles in them
    pipe, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        while True:
            send(answers, _answer(*receive(pipe)))
    except EOFError:
        return
    except BrokenPipeError:  # the server was killed meanwhile
        os._exit(1)


if __name__ == "__main__":
    main()
