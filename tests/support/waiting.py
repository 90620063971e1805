"""How tests wait: for a condition, with a deadline that only a defect reaches; or through a period, with its reason.

`make check` refuses `time.sleep` and `asyncio.sleep` elsewhere in the tests, unless the line's comment says what the
sleep stands for: `# sleeps: the work of a slow model`.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

_SHORTEST_S, _LONGEST_S = 0.001, 0.02

_SHARE, _LONGEST_LATER_S = 0.03, 0.1
"""Who has waited for long waits for longer: a share of the time so far, which lets others compute."""


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], str] = "the condition",
    timeout: float = 60,
    longest_s: float = _LONGEST_S,
) -> T:
    """Wait until the condition holds, and return its value, which is true.

    Args:
        condition: called again and again, after pauses from 1 ms to the longest one; those of long waits grow.
        what: what is waited for, for the error; or a function that says it when the deadline has passed.
        timeout: the deadline, in seconds.
        longest_s: the longest pause, in seconds; more than usual if to ask costs much and the wait is long.

    Raises:
        AssertionError: the deadline has passed.
    """
    for pause in _pauses(what, timeout, longest_s):
        if found := condition():
            return found
        time.sleep(pause)
    raise AssertionError("unreachable")


async def wait_until_async(
    condition: Callable[[], T],
    what: str | Callable[[], str] = "the condition",
    timeout: float = 60,  # noqa: ASYNC109 - as that of `wait_until`
) -> T:
    """The same as `wait_until` in a coroutine: the loop runs on in the meantime."""
    for pause in _pauses(what, timeout):
        if found := condition():
            return found
        await asyncio.sleep(pause)
    raise AssertionError("unreachable")


def let_pass(seconds: float, why: str) -> None:
    """Sleep, where a test shows that something does not happen, or that a real period is kept.

    Args:
        seconds: how long.
        why: why no condition can be waited for.
    """
    assert why, "say why no condition can be waited for"
    time.sleep(seconds)


async def let_pass_async(seconds: float, why: str) -> None:
    """The same as `let_pass` in a coroutine."""
    assert why, "say why no condition can be waited for"
    await asyncio.sleep(seconds)


def _pauses(what: str | Callable[[], str], timeout: float, longest_s: float = _LONGEST_S) -> Iterator[float]:
    begin = time.monotonic()
    deadline = begin + timeout
    pause = _SHORTEST_S
    while True:
        now = time.monotonic()
        late = now >= deadline
        yield pause
        assert not late, f"waited {timeout:g} s in vain for {what() if callable(what) else what}"
        pause = min(pause * 1.5, max(longest_s, min((now - begin) * _SHARE, _LONGEST_LATER_S)))
