"""One turn of the loop takes a bounded part of what a connection sends; the rest has later turns, in order."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from halimede.core.clock import TURN_NS
from halimede.frontends.http.transport import protocol
from halimede.frontends.http.transport.bodies import ChunkedBody
from halimede.frontends.http.transport.exchange import Exchange
from tests.frontends.http.serving import Served, echo, get, post, serve
from tests.support.loops import LoopThread
from tests.support.waiting import wait_until

ONE_BYTE_CHUNKS = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000


@pytest.fixture(autouse=True)
def _busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a tenth of what a turn may take, as the work between two looks does."""
    looks = count(step=TURN_NS // 10)
    monkeypatch.setattr(protocol, "monotonic_ns", lambda: next(looks))


class _Turns:
    """Counts what happens in each turn of a loop."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self._turn = 0
        self._over = False

    def happened(self) -> None:
        self.counts[self._turn] += 1

    def _next(self, loop: LoopThread) -> None:
        self._turn += 1
        if not self._over:
            loop.loop.call_soon(self._next, loop)

    @contextmanager
    def of(self, served: Served) -> Iterator[None]:
        served.loop.call(lambda: self._next(served.loop))
        yield
        self._over = True


def _counting(turns: _Turns) -> Callable[[Exchange], None]:
    def handle(exchange: Exchange) -> None:
        turns.happened()
        echo(exchange)

    return handle


def test_pipelined_requests_are_answered_in_turns_and_in_order() -> None:
    turns = _Turns()
    with serve(_counting(turns)) as served, turns.of(served), served.client() as client:
        client.send(b"".join(get(f"/{number}") for number in range(3000)))
        assert [client.read().body for _ in range(3000)] == [b"GET /%d " % number for number in range(3000)]
    assert max(turns.counts.values()) < 500


def test_pipelined_chunked_requests_are_answered_in_turns() -> None:
    turns = _Turns()
    one = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    with serve(_counting(turns)) as served, turns.of(served), served.client() as client:
        client.send(one * 2000)
        assert {client.read().body for _ in range(2000)} == {b"POST /c x"}
    assert max(turns.counts.values()) < 100


def test_many_chunks_are_taken_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = _Turns()
    feed = ChunkedBody.feed

    def counted(body: ChunkedBody, data: bytes, lines: int) -> int:
        turns.happened()
        return feed(body, data, lines)

    monkeypatch.setattr(ChunkedBody, "feed", counted)
    with serve(echo) as served, turns.of(served), served.client() as client:
        client.send(ONE_BYTE_CHUNKS + b"0\r\n\r\n" + get("/after"))
        assert client.read().body == b"POST /c " + b"x" * 20_000
        assert client.read().body == b"GET /after "
    assert sum(turns.counts.values()) >= 40_000 // 256
    assert max(turns.counts.values()) < 30


def test_connection_that_breaks_between_turns_is_left_alone() -> None:
    with serve(echo) as served:
        with served.client() as client:
            client.send(ONE_BYTE_CHUNKS)
            client.vanish()
        wait_until(
            lambda: not served.loop.call(lambda: len(served.connections)), "the connection to be forgotten"
        )
        with served.client() as client:
            assert client.ask(post(b"x")).body == b"POST /echo x"


def test_large_body_in_large_chunks_is_whole() -> None:
    body = bytes(range(256)) * 20_000
    with serve(echo) as served, served.client() as client:
        wire = b"".join(
            b"%x\r\n" % len(body[at : at + 65_536]) + body[at : at + 65_536] + b"\r\n"
            for at in range(0, len(body), 65_536)
        )
        client.send(b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + wire + b"0\r\n\r\n")
        assert client.read().body == b"POST /c " + body
