"""What a worker does while there is nothing to do: on real sockets, with a sender that takes its time."""

import socket
import threading
from collections.abc import Iterator
from time import monotonic_ns, sleep

import numpy as np
import pytest

from halimede_worker.messages import wire
from halimede_worker.messages.memory import Memory
from halimede_worker.patience import ALLOWED, LOOKED, Patience

LONG_NS = 2_000_000_000


class Pair:
    """A worker's channel, and what is at the other end."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server = wire.Channel(ours, Memory())
        self.worker = wire.Channel(theirs, Memory())
        self.numbers = np.zeros(5, np.int64)
        self.patience = Patience(self.numbers.data)

    def close(self) -> None:
        self.server.close()
        self.worker.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_it_does_not_look_unless_it_may(pair: Pair) -> None:
    pair.server.send((wire.FORGET, []))
    assert pair.patience.look(pair.worker) is None
    assert pair.worker.receive() == (wire.FORGET, [])
    assert pair.numbers[LOOKED] == 0


def test_it_finds_what_comes_while_it_looks_and_counts_the_time(pair: Pair) -> None:
    pair.numbers[ALLOWED] = LONG_NS
    pair.patience.look(pair.worker)
    pair.patience.found()  # a while after: from now on it looks for longer
    before = int(pair.numbers[LOOKED])
    assert before > 0
    for _ in range(30):
        pair.patience.look(pair.worker)
        sleep(0.02)
        pair.patience.found()
    before, began = int(pair.numbers[LOOKED]), monotonic_ns()
    sender = threading.Thread(target=lambda: (sleep(0.01), pair.server.send((wire.FORGET, [7]))))  # type: ignore[func-returns-value]
    sender.start()
    found = pair.patience.look(pair.worker) or pair.worker.receive()
    sender.join()
    assert found == (wire.FORGET, [7])
    assert 0 < pair.numbers[LOOKED] - before <= monotonic_ns() - began


def test_it_does_not_look_for_what_usually_comes_too_late(pair: Pair) -> None:
    allowed = 1_000_000
    pair.numbers[ALLOWED] = allowed
    for _ in range(30):
        pair.patience.look(pair.worker)
        sleep(2 * allowed / 1e9)
        pair.patience.found()
    before = int(pair.numbers[LOOKED])
    assert pair.patience.look(pair.worker) is None
    assert pair.numbers[LOOKED] == before
    pair.server.send((wire.FORGET, []))
    for _ in range(30):  # it comes at once again
        pair.patience.look(pair.worker)
        pair.patience.found()
    assert pair.numbers[LOOKED] > before


def test_server_that_goes_away_meanwhile_is_noticed(pair: Pair) -> None:
    pair.numbers[ALLOWED] = LONG_NS
    pair.server.close()
    with pytest.raises(wire.ClosedError):
        pair.patience.look(pair.worker)
