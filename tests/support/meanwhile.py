"""What goes on beside a test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(*repeated: tuple[Callable[[], object], float]) -> Iterator[None]:
    """In the block, call each again and again on a thread of its own, after a pause of so many seconds each time."""
    done = threading.Event()

    def repeat(call: Callable[[], object], pause_s: float) -> None:
        while not done.wait(pause_s):
            call()

    threads = [threading.Thread(target=repeat, args=each) for each in repeated]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
