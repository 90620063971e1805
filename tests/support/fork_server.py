"""The process that `tests.support.forks` has forked: `python -m tests.support.fork_server SOCKET MODULE ...`."""

import importlib
import json
import os
import runpy
import socket
import sys
from collections.abc import Callable
from functools import partial

_REQUEST_BYTES = 1 << 20


def serve(clients: socket.socket) -> Callable[[], None] | None:
    """Fork for each request, until nobody is there any more; in a fork, what it does."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(clients, _REQUEST_BYTES, 2)
        if not request:
            return None
        reader, writer = os.pipe()
        between = os.fork()
        if not between:
            pid = os.fork()
            if pid:
                os.write(writer, b"%d" % pid)
                os._exit(0)
            for descriptor in (reader, writer):
                os.close(descriptor)
            clients.close()
            return partial(run, request, descriptors)
        os.waitpid(between, 0)  # its child is an orphan now
        clients.send(os.read(reader, 64))
        for descriptor in (reader, writer, *descriptors):
            os.close(descriptor)


def run(request: bytes, descriptors: list[int]) -> None:
    """Be `python -m halimede`."""
    arguments, environment, directory = json.loads(request)
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = directory
    sys.argv[1:] = arguments
    runpy.run_module("halimede", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    with socket.socket(fileno=int(sys.argv[1])) as its_end:
        work = serve(its_end)
    if work is not None:
        work()
