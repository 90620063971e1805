"""Threads whose work may compute in Python for long, next to an event loop that answers requests.

A thread that waits for Python's lock gets it after the switch interval, 5 ms by default. The loop gives the lock up
whenever it looks for messages, several times for each request, so that a request takes some 15 ms next to a thread that
computes. A short interval all the time would slow down models in the server's process, which compute in threads, too.
"""

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Final, ParamSpec, TypeVar

SWITCH_S: Final = 0.0005
"""The switch interval, in seconds, while such a thread works."""

P = ParamSpec("P")
T = TypeVar("T")

_lock = Lock()
_working = 0
_usual_s = 0.0


class BackgroundThreads(ThreadPoolExecutor):
    """While one of these threads works, the switch interval of the process is `SWITCH_S`; then it is as before."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Have a thread call a function."""
        return super().submit(_call, fn, *args, **kwargs)


def _call(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    global _working, _usual_s
    with _lock:
        _working += 1
        if _working == 1:
            _usual_s = sys.getswitchinterval()
            sys.setswitchinterval(min(SWITCH_S, _usual_s))
    try:
        return fn(*args, **kwargs)
    finally:
        with _lock:
            _working -= 1
            if not _working:
                sys.setswitchinterval(_usual_s)
