"""Requests to an instance, whose side is played byte by byte."""

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.http1.client import CallError, call
from halimede.http1.upstream import ResponseHead, UpstreamConnection, UpstreamPool
from tests.support.loops import LoopThread
from tests.support.waiting import let_pass, wait_until

REQUEST = b"POST /invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
CHUNKED = b"POST /invocations HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


class Sink:
    """Writes down what comes (`ResponseSink`)."""

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.body = bytearray()
        self.failure = ""
        self.ends = 0
        self.writable = 0
        self.done = threading.Event()

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        self.response_begun(head)
        self.response_data(data)
        self.response_ended()

    def response_begun(self, head: ResponseHead) -> None:
        self.head = head

    def response_data(self, data: bytes) -> None:
        self.body += data

    def response_ended(self) -> None:
        self.ends += 1
        self.done.set()

    def response_failed(self, reason: str) -> None:
        self.failure = reason
        self.ends += 1
        self.done.set()

    def request_writable(self) -> None:
        self.writable += 1

    @property
    def text(self) -> bytes:
        assert self.done.wait(60)
        assert (self.ends, self.failure) == (1, "")
        return bytes(self.body)

    @property
    def reason(self) -> str:
        assert self.done.wait(60)
        assert self.ends == 1
        return self.failure


class Rig:
    """A pool on its loop, and the listening socket of the instance."""

    def __init__(self, loop: LoopThread, listener: socket.socket) -> None:
        self.loop = loop
        self.listener = listener
        self.pool = UpstreamPool("127.0.0.1", listener.getsockname()[1])
        self.peers: list[socket.socket] = []

    def connect(self) -> tuple[UpstreamConnection, socket.socket]:
        connection = self.loop.run(self.pool.connect())
        peer, _ = self.listener.accept()
        peer.settimeout(60)
        self.peers.append(peer)
        return connection, peer

    def send(self, connection: UpstreamConnection, body: bytes = b"body") -> Sink:
        """Send a whole small request."""
        sink = Sink()
        self.loop.call(lambda: connection.send(REQUEST, body, sink, complete=True, chunked=False))
        return sink

    def idle(self) -> UpstreamConnection | None:
        return self.loop.call(self.pool.idle)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with LoopThread() as loop, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        one = Rig(loop, listener)
        yield one
        loop.call(one.pool.close)
        for peer in one.peers:
            peer.close()


def read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        assert piece, f"the connection was closed after {data!r}"
        data += piece
    return data


def answer(body: bytes, *lines: str, status: int = 200) -> bytes:
    head = "\r\n".join((f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *lines, "", ""))
    return head.encode() + body


class TestResponses:
    @pytest.mark.parametrize("size", [1, 3, 1000])
    def test_a_response_may_come_in_pieces(self, rig: Rig, size: int) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        assert read(peer, len(REQUEST) + 4) == REQUEST + b"body"
        data = answer(b"0123456789" * 10, "X-Name: value", status=201)
        for at in range(0, len(data), size):
            peer.sendall(data[at : at + size])
        assert sink.text == b"0123456789" * 10
        assert sink.head is not None
        assert (sink.head.status, sink.head.headers["x-name"]) == (201, "value")
        assert rig.idle() is connection

    @pytest.mark.parametrize("size", [1, 2, 1000])
    def test_a_chunked_response(self, rig: Rig, size: int) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
        data = head + b"3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nX-Trailer: 1\r\n\r\n"
        for at in range(0, len(data), size):
            peer.sendall(data[at : at + size])
        assert sink.text == b"abc0123456789abcdef"
        assert rig.idle() is connection

    def test_a_response_that_ends_with_the_connection(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        read(peer, len(REQUEST) + 4)
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\nsome ")
        peer.sendall(b"more")
        wait_until(lambda: sink.body == b"some more")
        assert not sink.done.is_set()
        peer.close()
        assert sink.text == b"some more"
        assert rig.idle() is None

    def test_100_continue_is_no_response(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"yes"))
        assert sink.text == b"yes"
        assert rig.idle() is connection

    @pytest.mark.parametrize("status", [204, 304])
    def test_a_status_without_a_body(self, rig: Rig, status: int) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status)
        assert sink.text == b""
        assert rig.idle() is connection

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"nonsense\r\n\r\n", "malformed"),
            (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "malformed"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "malformed"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "malformed"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                "'gzip, chunked' is not supported",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                "a chunk's size is not a hexadecimal",
            ),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", "a chunk is longer"),
            (
                b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
                "changes the protocol",
            ),
            (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "larger than 65536"),
        ],
    )
    def test_a_malformed_response_fails_and_closes(self, rig: Rig, data: bytes, reason: str) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(data)
        assert reason in sink.reason
        assert rig.idle() is None

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"HTTP/1.1 2",
            answer(b"0123")[:-1],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
        ],
    )
    def test_a_response_that_breaks_off_fails(self, rig: Rig, data: bytes) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        read(peer, len(REQUEST) + 4)
        peer.sendall(data)
        peer.close()
        assert sink.reason == "the connection was closed before the response was complete"
        assert rig.idle() is None

    def test_more_than_a_response_ends_the_connection(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(answer(b"first") + answer(b"of whom?"))
        assert sink.text == b"first"
        assert rig.idle() is None

    def test_a_response_that_nobody_asked_for_ends_the_connection(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(answer(b"first"))
        assert sink.text == b"first"
        peer.sendall(answer(b"second"))
        wait_until(lambda: not connection.is_idle)
        assert rig.idle() is None


class TestReuse:
    def test_a_connection_is_used_again(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        for number in range(3):
            sink = rig.send(connection)
            assert read(peer, len(REQUEST) + 4) == REQUEST + b"body"
            peer.sendall(answer(b"%d" % number))
            assert sink.text == b"%d" % number
            assert rig.idle() is connection

    @pytest.mark.parametrize(
        "data",
        [answer(b"x", "Connection: close"), answer(b"x").replace(b"1.1", b"1.0")],
        ids=["close", "HTTP/1.0"],
    )
    def test_a_connection_that_the_instance_closes_is_not(self, rig: Rig, data: bytes) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(data)
        assert sink.text == b"x"
        assert rig.idle() is None

    def test_http_1_0_may_keep_a_connection(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(answer(b"x", "Connection: keep-alive").replace(b"1.1", b"1.0"))
        assert sink.text == b"x"
        assert rig.idle() is connection

    def test_an_idle_connection_that_is_closed_is_dropped(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(answer(b"x"))
        assert sink.text == b"x"
        peer.close()
        wait_until(lambda: not connection.is_idle)
        assert rig.idle() is None

    def test_a_pool_that_is_closed_keeps_nothing(self, rig: Rig) -> None:
        (first, one), (second, two) = rig.connect(), rig.connect()
        sink = rig.send(first)
        one.sendall(answer(b"x"))
        assert sink.text == b"x"
        late = rig.send(second)
        rig.loop.call(rig.pool.close)
        read(one, len(REQUEST) + 4)
        assert one.recv(1) == b""
        two.sendall(answer(b"y"))
        assert late.text == b"y"
        read(two, len(REQUEST) + 4)
        assert two.recv(1) == b""
        assert rig.idle() is None

    def test_a_request_that_was_given_up_breaks_its_connection_off(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        read(peer, len(REQUEST) + 4)
        rig.loop.call(connection.give_up)
        assert peer.recv(1) == b""
        let_pass(0.02, "nothing shows that no more is said")
        assert sink.ends == 0
        assert rig.idle() is None


class TestRequests:
    def test_a_body_is_sent_as_it_comes(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = Sink()
        rig.loop.call(lambda: connection.send(REQUEST, b"b", sink, complete=False, chunked=False))
        assert read(peer, len(REQUEST) + 1) == REQUEST + b"b"
        rig.loop.call(lambda: connection.write(b"ody", complete=True))
        assert read(peer, 3) == b"ody"
        peer.sendall(answer(b"x"))
        assert sink.text == b"x"
        assert rig.idle() is connection

    def test_a_chunked_body(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = Sink()
        rig.loop.call(lambda: connection.send(CHUNKED, b"b", sink, complete=False, chunked=True))
        rig.loop.call(lambda: connection.write(b"ody", complete=False))
        rig.loop.call(lambda: connection.write(b"", complete=True))
        wanted = CHUNKED + b"1\r\nb\r\n3\r\nody\r\n0\r\n\r\n"
        assert read(peer, len(wanted)) == wanted
        peer.sendall(answer(b"x"))
        assert sink.text == b"x"

    def test_an_answer_before_the_request_is_complete_ends_the_connection(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = Sink()
        rig.loop.call(lambda: connection.send(REQUEST, b"b", sink, complete=False, chunked=False))
        peer.sendall(answer(b"no", status=413))
        assert sink.text == b"no"
        rig.loop.call(lambda: connection.write(b"ody", complete=True))
        assert read(peer, len(REQUEST) + 1) == REQUEST + b"b"
        assert peer.recv(1) == b""
        assert rig.idle() is None

    def test_an_instance_that_does_not_read_is_told_of_and_waited_for(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = Sink()
        size = 32 << 20
        head = REQUEST.replace(b": 4", b": %d" % size)
        rig.loop.call(lambda: connection.send(head, b"x" * size, sink, complete=True, chunked=False))
        wait_until(lambda: connection.write_paused)
        assert sink.writable == 0
        read(peer, len(head) + size)
        wait_until(lambda: sink.writable == 1)
        assert not connection.write_paused

    def test_a_response_that_is_not_wanted_now_waits_in_the_instance(self, rig: Rig) -> None:
        connection, peer = rig.connect()
        sink = rig.send(connection)
        peer.sendall(answer(b"x" * (64 << 20))[:100])
        wait_until(lambda: sink.body)
        rig.loop.call(connection.pause)
        rest = 64 << 20
        peer.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.sendall(b"x" * rest)
        assert len(sink.body) < 1 << 20
        rig.loop.call(connection.resume)
        wait_until(lambda: len(sink.body) > 1 << 20)


class TestCall:
    def test_an_answer(self, rig: Rig) -> None:
        def play() -> None:
            peer, _ = rig.listener.accept()
            rig.peers.append(peer)
            host = f"127.0.0.1:{rig.pool.port}"
            wanted = f"POST /models HTTP/1.1\r\nHost: {host}\r\nA: b\r\nContent-Length: 2\r\n\r\n{{}}"
            assert read(peer, len(wanted)) == wanted.encode()
            peer.sendall(answer(b"done", status=507))

        player = threading.Thread(target=play)
        player.start()
        assert rig.loop.run(call(rig.pool, "POST", "/models", b"{}", {"A": "b"})) == (507, b"done")
        player.join(60)
        assert rig.idle() is not None

    def test_no_answer_in_time(self, rig: Rig) -> None:
        with pytest.raises(CallError, match=r"no answer to GET /ping within 0.1 seconds"):
            rig.loop.run(call(rig.pool, "GET", "/ping", timeout_s=0.1))
        peer, _ = rig.listener.accept()
        rig.peers.append(peer)
        peer.settimeout(60)
        while peer.recv(1000):  # it was told by the connection's end
            pass

    def test_no_connection(self, rig: Rig) -> None:
        rig.listener.close()
        with pytest.raises(CallError, match="accepts no connection"):
            rig.loop.run(call(rig.pool, "GET", "/ping"))


@settings(deadline=None, max_examples=40)
@given(
    bodies=st.lists(
        st.tuples(st.binary(max_size=3000), st.lists(st.integers(1, 900), max_size=9) | st.none()),
        min_size=1,
        max_size=4,
    ),
    sizes=st.lists(st.integers(1, 700), max_size=20),
)
def test_any_response_in_any_pieces(bodies: list[tuple[bytes, list[int] | None]], sizes: list[int]) -> None:
    with LoopThread() as loop, socket.create_server(("127.0.0.1", 0)) as listener:
        rig = Rig(loop, listener)
        connection, peer = rig.connect()
        with peer:
            for body, chunks in bodies:
                sink = rig.send(connection)
                data = answer(body) if chunks is None else _chunked(body, chunks)
                for size in sizes:
                    peer.sendall(data[:size])
                    data = data[size:]
                peer.sendall(data)
                assert sink.text == body
                assert rig.idle() is connection
            loop.call(connection.close)


def _chunked(body: bytes, sizes: list[int]) -> bytes:
    parts, position = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"], 0
    for size in [*sizes, len(body)]:
        piece = body[position : position + size]
        position += len(piece)
        if piece:
            parts.append(b"%x\r\n%b\r\n" % (len(piece), piece))
    return b"".join(parts) + b"0\r\n\r\n"
