"""What all soaks do: say how it goes, and wait for their clients."""

import sys
import time
from collections.abc import Iterable
from threading import Thread


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def hanging(clients: Iterable[Thread], seconds: float) -> int:
    """Wait for clients that were told to stop, all together no longer than that: how many of them hang."""
    every, end = list(clients), time.monotonic() + seconds
    for client in every:
        client.join(max(0.0, end - time.monotonic()))
    return sum(client.is_alive() for client in every)
