import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from halimede.core.requests import InferRequest
from halimede.engine.scheduling.flow import MAX_UNTAKEN, Flow


class Sender:
    """A thread that hands over responses; `count` are handed over so far."""

    def __init__(self, flow: Flow, request: InferRequest, responses: int) -> None:
        self.count = 0
        self._flow = flow
        self._request = request
        self._responses = responses
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        for _ in range(self._responses):
            self._flow.wait(self._request)
            with self._changed:
                self.count += 1
                self._changed.notify_all()

    def reaches(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, 60)

    def ends(self) -> bool:
        self._thread.join(60)
        return not self._thread.is_alive()

    def stays_at(self, count: int) -> bool:
        """It does not hand over more in a while in which it easily could."""
        with self._changed:
            return not self._changed.wait_for(lambda: self.count > count, 0.05) and self.count == count


@contextmanager
def sending(flow: Flow, request: InferRequest, responses: int) -> Iterator[Sender]:
    sender = Sender(flow, request, responses)
    try:
        yield sender
    finally:
        flow.close()
        assert sender.ends()


@pytest.fixture
def flow() -> Flow:
    return Flow()


@pytest.fixture
def request_(flow: Flow) -> InferRequest:
    request = InferRequest("m", {}, lambda response, final: None)
    flow.open(request)
    return request


def test_a_thread_waits_while_its_client_is_slow(flow: Flow, request_: InferRequest) -> None:
    request_.congest()
    with sending(flow, request_, 3) as sender:
        assert sender.stays_at(0)
        request_.drain()
        assert sender.ends()
        assert sender.count == 3


def test_a_thread_waits_while_the_loop_is_slow(flow: Flow, request_: InferRequest) -> None:
    with sending(flow, request_, MAX_UNTAKEN + 10) as sender:
        assert sender.reaches(MAX_UNTAKEN)
        assert sender.stays_at(MAX_UNTAKEN)
        for _ in range(MAX_UNTAKEN):
            flow.taken(request_, False)
        assert sender.ends()


@pytest.mark.parametrize(
    "release",
    [
        lambda flow, request: request.cancel(),
        lambda flow, request: flow.taken(request, True),
        lambda flow, request: flow.close(),
    ],
    ids=["cancelled", "ended", "closed"],
)
def test_a_thread_that_waits_is_let_go_when_nobody_waits_for_it(
    flow: Flow, request_: InferRequest, release: Callable[[Flow, InferRequest], None]
) -> None:
    request_.congest()
    with sending(flow, request_, 2 * MAX_UNTAKEN) as sender:
        assert sender.stays_at(0)
        release(flow, request_)
        assert sender.ends()


def test_one_slow_client_holds_up_no_other(flow: Flow, request_: InferRequest) -> None:
    other = InferRequest("m", {}, lambda response, final: None)
    flow.open(other)
    request_.congest()
    with sending(flow, request_, 1) as slow, sending(flow, other, 5) as quick:
        assert quick.ends()
        assert slow.count == 0


def test_the_loop_itself_never_waits(flow: Flow, request_: InferRequest) -> None:
    request_.congest()
    for _ in range(2 * MAX_UNTAKEN):
        flow.wait(request_)


def test_after_its_last_response_nothing_is_kept_of_a_request(flow: Flow, request_: InferRequest) -> None:
    flow.taken(request_, True)
    assert request_.on_drain is None
    assert request_.on_cancel is None
    request_.congest()
    with sending(flow, request_, 2 * MAX_UNTAKEN) as sender:
        assert sender.ends()
    flow.taken(request_, False)
