"""Responses on their way to the server, over a real socket."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from halimede_worker.messages import wire
from halimede_worker.messages.memory import Memory
from halimede_worker.messages.wire import Channel
from halimede_worker.responses import InferenceResponse
from halimede_worker.tensors.tensors import Tensor
from halimede_worker.transmitter import SocketTransmitter

LARGE = 1 << 20


class Line:
    """A transmitter, and the server's end of its socket."""

    def __init__(self) -> None:
        self._ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.transmitter = SocketTransmitter(Channel(self._ends[0], Memory()), Memory())
        self._server = Channel(self._ends[1], Memory())

    def send(self, number: int, elements: int = 1, *, final: bool = False) -> None:
        response = InferenceResponse([Tensor("OUT", np.zeros(elements, np.float32))])
        self.transmitter.transmit(number, response, final)

    def received(self) -> list[tuple[Any, ...]]:
        """Kind and numbers of the messages that have come."""
        self._ends[0].shutdown(socket.SHUT_WR)
        messages = []
        try:
            while True:
                kind, *rest = self._server.receive()
                numbers = [each[0] for each in rest[0]] if kind == wire.RESPONSES else [rest[0]]
                messages.append((kind, *numbers))
        except wire.ClosedError:
            return messages

    def close(self) -> None:
        for end in self._ends:
            end.close()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


def test_responses_go_one_by_one(line: Line) -> None:
    line.send(1)
    line.send(2, final=True)
    line.transmitter.transmit(3, None, True)
    assert line.received() == [(wire.RESPONSE, 1), (wire.RESPONSE, 2), (wire.RESPONSE, 3)]


def test_those_of_a_block_go_together_at_its_end(line: Line) -> None:
    with line.transmitter.together():
        line.send(1)
        line.send(2)
        line.transmitter.transmit(1, None, True)
    line.send(4)
    assert line.received() == [(wire.RESPONSES, 1, 2, 1), (wire.RESPONSE, 4)]


def test_one_alone_goes_as_ever_and_none_sends_nothing(line: Line) -> None:
    with line.transmitter.together():
        line.send(1)
    with line.transmitter.together():
        pass
    assert line.received() == [(wire.RESPONSE, 1)]


def test_one_with_new_shared_memory_keeps_its_place(line: Line) -> None:
    with line.transmitter.together():
        line.send(1)
        line.send(2, LARGE)
        line.send(3)
    assert line.received() == [(wire.RESPONSE, 1), (wire.RESPONSE, 2), (wire.RESPONSE, 3)]


def test_other_threads_do_not_wait_for_the_block(line: Line) -> None:
    with line.transmitter.together():
        line.send(1)
        other = threading.Thread(target=line.send, args=(2,))
        other.start()
        other.join()
    assert line.received() == [(wire.RESPONSE, 2), (wire.RESPONSE, 1)]


def test_what_was_sent_before_an_error_goes(line: Line) -> None:
    def send_and_fail() -> None:
        with line.transmitter.together():
            line.send(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        send_and_fail()
    line.send(2)
    assert line.received() == [(wire.RESPONSE, 1), (wire.RESPONSE, 2)]
