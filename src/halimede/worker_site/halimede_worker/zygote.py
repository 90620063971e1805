"""The parent of worker processes: has imported what they need, and forks one whenever the server asks for it.

It is single-threaded, so that its forks are safe, and listens to the server on one socket. Frames on that socket, in
both directions, are a length of four bytes and a tuple; the descriptors for a new worker come with the length.

The server's death closes the socket: then all workers are killed. Should this process be killed, the workers go on.

What a model has started ends with its worker, whatever its group and session. Workers and this process are
subreapers: a process whose parent ends becomes a child of its worker, and when the worker ends, a child of this
process, which ends all its children that are not workers.
"""

import ctypes
import gc
import importlib
import importlib.machinery
import marshal
import os
import select
import signal
import socket
import struct
import sys
import threading
from array import array
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

Main = Callable[[socket.socket, socket.socket, Dict[str, Any]], None]

# To this process
SPAWN = 1  # number, name, settings; with four descriptors: work, control, standard output, standard error

# From this process
STARTED = 10  # nothing
REFUSED = 11  # why no workers can be started
SPAWNED = 12  # number, process id
FAILED = 13  # number, why
EXITED = 14  # process id, wait status

_PR_SET_CHILD_SUBREAPER = 36

_LENGTH = struct.Struct("<I")
_FORMAT = 2

_held = threading.local()


def send(sock: socket.socket, message: Tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
    """Send a frame.

    Raises:
        OSError: the other end is gone.
        ValueError: the message holds something other than simple values.
    """
    body = marshal.dumps(message, _FORMAT)
    data = _LENGTH.pack(len(body)) + body
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
    sent = sock.sendmsg([data], rights)
    if sent < len(data):
        sock.sendall(data[sent:])


def receive(sock: socket.socket) -> "Tuple[Tuple[Any, ...], List[int]]":
    """The next frame, and the descriptors that came with it.

    Raises:
        EOFError: the other end is gone.
    """
    try:
        head, ancillary, _, _ = sock.recvmsg(_LENGTH.size, 1024, socket.MSG_CMSG_CLOEXEC)
        descriptors = array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        head += _exactly(sock, _LENGTH.size - len(head))
        message: Tuple[Any, ...] = marshal.loads(_exactly(sock, *_LENGTH.unpack(head)))
    except OSError as error:
        raise EOFError from error
    return message, descriptors.tolist()


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def serve(descriptor: str, main: str, suffix: str, numpy_directory: str) -> Callable[[], None]:
    """Serve until the server is gone, which ends the process.

    Args:
        descriptor: number of the socket on which the server speaks.
        main: what workers run, as `module:function`; it gets the work and the control socket and the settings.
        suffix: of extension modules that the server's interpreter loads.
        numpy_directory: where the server's numpy lies. It is taken where there is none, if it fits.

    Returns:
        In a worker, and only there: what it does. Its caller is to be the process's outermost frame, so that a
        worker has no trace of this one on its stack and ends as any program does.
    """
    control = socket.socket(fileno=int(descriptor))
    os.set_inheritable(control.fileno(), False)
    gc.disable()  # imports leave no cycles worth looking for
    try:
        _import_numpy(suffix, numpy_directory)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        version = sys.version.split()[0]
        text = f"Python {version} has no numpy, which workers need; install it in that environment"
        send(control, (REFUSED, text))
        sys.exit(1)
    module, _, function = main.partition(":")
    zygote = Zygote(control, getattr(importlib.import_module(module), function))
    gc.freeze()  # the collector of a worker leaves these objects alone, so their pages stay shared
    gc.enable()
    send(control, (STARTED,))
    return zygote.run()


def _import_numpy(suffix: str, directory: str) -> None:
    try:
        importlib.import_module("numpy.random")
    except ModuleNotFoundError as error:
        if error.name != "numpy" or suffix not in importlib.machinery.EXTENSION_SUFFIXES[:1]:
            raise
        # only numpy is to be found there: its own modules are found through it from now on
        sys.path.append(directory)
        try:
            importlib.import_module("numpy.random")
        finally:
            sys.path.remove(directory)


class Zygote:
    """Forks workers and reports their ends."""

    def __init__(self, control: socket.socket, main: Main) -> None:
        self._control = control
        self._main = main
        self._children: Set[int] = set()
        _become_subreaper()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        # The server decides when it is over: workers learn of it by message, not by a signal to all that run. The
        # signals are not ignored, for that would be inherited by the programs that models start.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _do_nothing)
        os.register_at_fork(
            before=_hold_signals, after_in_parent=_release_signals, after_in_child=_heed_signals
        )

    def run(self) -> Callable[[], None]:
        """Serve until the server is gone, which ends the process; in a worker: what it does."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._woken, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poller.poll()]
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            if self._control.fileno() in ready:
                try:
                    message, descriptors = receive(self._control)
                except EOFError:
                    self._end()
                work = self._spawn(descriptors, *message[1:])
                if work is not None:
                    return work

    def _spawn(
        self, descriptors: List[int], number: int, name: str, settings: Dict[str, Any]
    ) -> "Optional[Callable[[], None]]":
        """Fork a worker; what it does, in the worker."""
        try:
            if len(descriptors) != 4:
                raise OSError("its sockets did not arrive: too many open files")
            pid = os.fork()
        except OSError as error:
            self._report(FAILED, number, str(error))
            pid = -1
        if pid == 0:
            return self._become(descriptors, name, settings)
        # no other worker may hold them, or nobody would see that this one has closed them
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            self._children.add(pid)
            with suppress(OSError):
                os.setpgid(pid, pid)
            self._report(SPAWNED, number, pid)
        return None

    def _become(self, descriptors: List[int], name: str, settings: Dict[str, Any]) -> Callable[[], None]:
        """In the child: turn into a worker."""
        os.setpgid(0, 0)
        _become_subreaper()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _swallow)
        os.close(self._woken)
        os.close(self._wake)
        self._control.close()
        for descriptor, standard in ((descriptors[2], 1), (descriptors[3], 2)):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        with suppress(OSError), Path("/proc/self/comm").open("wb") as comm:
            comm.write(f"halimede-{name}".encode()[:15])
        # what a model finds in a process that embeds Python
        sys.argv[:] = [""]
        sys.path.insert(0, "")
        # `random` has done so itself
        sys.modules["numpy.random"].seed()
        main = self._main
        work, control = (socket.socket(fileno=descriptor) for descriptor in descriptors[:2])
        return partial(main, work, control, settings)

    def _reap(self) -> None:
        """Report the workers that have ended, and end what they have left."""
        ended: Dict[int, int] = {}
        with suppress(ChildProcessError):
            while True:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None:
                    break
                ended[found.si_pid] = self._reap_one(found.si_pid)
        if ended:
            self._end_strays()
        for pid in self._children.intersection(ended):
            self._children.discard(pid)
            self._report(EXITED, pid, ended[pid])

    def _reap_one(self, pid: int) -> int:
        # what it started goes with it; while it is not waited for, the group's number is still its own
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]

    def _end_strays(self) -> Set[int]:
        """Kill what workers that have ended have left; its own children come when it has ended, and are killed then."""
        strays = _children() - self._children
        for pid in strays:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return strays

    def _report(self, *message: Any) -> None:
        with suppress(OSError):  # the server is gone; reading tells
            send(self._control, message)

    def _end(self) -> None:
        """The server wants no more workers, or is dead."""
        for pid in self._children:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self._children:
            self._report(EXITED, pid, self._reap_one(pid))
        self._children.clear()
        while True:  # each that ends leaves its own
            strays = self._end_strays()
            if not strays:
                break
            for pid in strays:
                self._reap_one(pid)
        sys.exit(0)


def _become_subreaper() -> None:
    """Become the parent of descendants whose parents end, where the system can do that (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> Set[int]:
    """The processes whose parent is this one, those included that have ended and were not waited for."""
    found = set()
    own = str(os.getpid())
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it is gone
            # the name, in brackets, may hold anything; then the state and the parent
            if path.read_bytes().rpartition(b")")[2].split()[1].decode() == own:
                found.add(int(path.parent.name))
    return found


def _do_nothing(number: int, frame: Optional[FrameType]) -> None:
    """For a signal that only has to wake this process, or that is not meant for it."""


def _swallow(number: int, frame: Optional[FrameType]) -> None:
    """For a signal that a worker leaves to the server."""


def _hold_signals() -> None:
    """Before a fork: a signal to the child waits until the child can heed it."""
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _heed_signals() -> None:
    """In what a model forks (multiprocessing): signals end it again, as its parent in the model expects."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is _swallow:
            signal.signal(number, handler)
    _release_signals()
