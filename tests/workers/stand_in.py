"""What the workers of these tests run: `run` does the deeds that its settings name, one after the other."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np


def run(work: socket.socket, control: socket.socket, settings: dict[str, Any]) -> None:
    for deed in settings.get("deeds", []):
        DEEDS[deed](work)


def tell(work: socket.socket) -> None:
    report = {
        "arguments": sys.argv,
        "path": sys.path,
        "directory": str(Path.cwd()),
        "name": Path("/proc/self/comm").read_text().strip(),
        "main thread": threading.current_thread() is threading.main_thread(),
        "files": sorted(_files()),
        "random": (random.random(), float(np.random.random())),
        "greeting": os.environ.get("GREETING"),
        "home": os.environ.get("HOME"),
        "numpy": np.__file__,
        "halimede": "halimede" in sys.modules,
        "started": time.monotonic_ns(),
    }
    work.send(repr(report).encode())


def _files() -> list[str]:
    """What the descriptors are open on, but for the one that lists them."""
    found = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [file.split(":")[0] for file in found if not file.endswith("/fd")]


def greet(work: socket.socket) -> None:
    work.send(b"hello")


def wait_for_end(work: socket.socket) -> None:
    """Until the server says something or is gone."""
    work.recv(100)


def hang(work: socket.socket) -> None:
    threading.Event().wait()


def print_lines(work: socket.socket) -> None:
    sys.stdout.write("one line\n")
    sys.stdout.write("no end of line")
    sys.stderr.write("an error\n")


def exit_with_3(work: socket.socket) -> None:
    os._exit(3)


def leave_with_4(work: socket.socket) -> None:
    sys.exit(4)


def raise_error(work: socket.socket) -> None:
    raise ValueError("what a pity")


def segfault(work: socket.socket) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def close_work(work: socket.socket) -> None:
    work.close()


def start_program(work: socket.socket) -> None:
    """Leaves a program that holds the worker's standard output."""
    program = subprocess.Popen(["sleep", "1000"])
    work.send(str(program.pid).encode())


def fork_and_terminate(work: socket.socket) -> None:
    """Forks, as `multiprocessing` does, and ends the child with SIGTERM."""
    pid = os.fork()
    if pid == 0:
        threading.Event().wait()
    os.kill(pid, signal.SIGTERM)
    work.send(str(os.waitpid(pid, 0)[1]).encode())


def get_signals(work: socket.socket) -> None:
    """Sends itself what ends other processes."""
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    work.send(b"alive")


DEEDS = {
    function.__name__: function
    for function in (
        tell,
        greet,
        wait_for_end,
        hang,
        print_lines,
        exit_with_3,
        leave_with_4,
        raise_error,
        segfault,
        close_work,
        start_program,
        fork_and_terminate,
        get_signals,
    )
}
