"""Responses that come piece by piece, on real sockets."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from halimede.frontends.http.settings import HttpLimits
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.streaming import WAITING_BYTES, WAITING_PIECES, ResponseStream
from tests.frontends.http.serving import Client, Served, get, serve
from tests.support.loops import LoopThread

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n"


class Streams:
    """A handler that begins a stream for each request, and leaves it to the test.

    Paths that begin with /plain are answered at once.
    """

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.streams: list[ResponseStream] = []
        self.disconnected: dict[str, threading.Event] = {}
        self._arrived = threading.Condition()

    def handle(self, exchange: Exchange) -> None:
        self.disconnected[exchange.path] = gone = threading.Event()
        exchange.on_disconnect = gone.set
        if exchange.path.startswith("/plain"):
            exchange.respond(200, (b"plain",))
            return
        with self._arrived:
            self.exchanges.append(exchange)
            self.streams.append(exchange.stream(200, "text/plain"))
            self._arrived.notify_all()

    def wait(self, streams: int) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.streams) >= streams, 60)


@pytest.fixture
def streams() -> Streams:
    return Streams()


@pytest.fixture
def served(streams: Streams) -> Iterator[Served]:
    with serve(streams.handle, HttpLimits(pipelined=4)) as running:
        yield running


def write(loop: LoopThread, stream: ResponseStream, *pieces: bytes, end: bool = False) -> None:
    """All in one turn of the loop."""

    def send() -> None:
        for piece in pieces:
            stream.write(piece)
        if end:
            stream.end()

    loop.call(send)


def receive(client: Client, expected: bytes) -> None:
    """The next bytes are these."""
    received = b""
    while len(received) < len(expected):
        line = client.read_line()
        assert line, received
        received += line
    assert received == expected


def test_pieces_come_when_they_are_written(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get())
        receive(client, HEAD + b"\r\n")  # before there is anything to send
        write(served.loop, streams.streams[0], b"one\n")
        receive(client, b"4\r\none\n\r\n")
        write(served.loop, streams.streams[0], b"two\n", end=True)
        receive(client, b"4\r\ntwo\n\r\n0\r\n\r\n")


def test_pieces_of_one_turn_come_as_one_chunk(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get())
        streams.wait(1)
        receive(client, HEAD + b"\r\n")
        write(served.loop, streams.streams[0], *[b"event\n"] * 30)
        receive(client, b"b4\r\n" + b"event\n" * 30 + b"\r\n")
        write(served.loop, streams.streams[0], b"last\n", b"of all\n", end=True)
        receive(client, b"c\r\nlast\nof all\n\r\n0\r\n\r\n")


def test_a_short_stream_is_one_write() -> None:
    writes: list[bytes] = []

    def at_once(exchange: Exchange) -> None:
        stream = exchange.stream(200, "text/plain")
        stream.write(b"all\n")
        stream.end()

    with serve(at_once) as served, served.client() as client:
        client.send(get())
        writes.append(client.socket.recv(65_536))
    assert writes == [HEAD + b"\r\n4\r\nall\n\r\n0\r\n\r\n"]


def test_the_connection_goes_on_after_a_stream(served: Served, streams: Streams) -> None:
    with served.client() as client:
        for number in range(3):
            client.send(get())
            streams.wait(number + 1)
            write(served.loop, streams.streams[number], b"x", end=True)
            assert client.read("GET").body == b"x"
        assert client.ask(get("/plain"), "GET").body == b"plain"


def test_pipelined_requests_wait_their_turn(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get("/a") + get("/plain") + get("/b") + get("/plain"))
        streams.wait(2)
        first, second = streams.streams
        write(served.loop, second, b"b", end=True)
        write(served.loop, first, b"a", end=True)
        assert [client.read("GET").body for _ in range(4)] == [b"a", b"plain", b"b", b"plain"]


def test_requests_beyond_the_pipeline_are_read_after_the_stream(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get("/a") + get("/plain") * 9)
        streams.wait(1)
        write(served.loop, streams.streams[0], b"a", end=True)
        assert [client.read("GET").body for _ in range(10)] == [b"a"] + [b"plain"] * 9


@pytest.mark.parametrize("keep_alive", [(), ("Connection: keep-alive",)])
def test_http_1_0_reads_until_the_end_of_the_connection(
    served: Served, streams: Streams, keep_alive: tuple[str, ...]
) -> None:
    with served.client() as client:
        client.send(get("/old", *keep_alive).replace(b"HTTP/1.1", b"HTTP/1.0"))
        streams.wait(1)
        write(served.loop, streams.streams[0], b"one ")
        write(served.loop, streams.streams[0], b"two", end=True)
        head, _, body = client.read_to_end().partition(b"\r\n\r\n")
    assert body == b"one two"
    assert b"Connection: close" in head
    assert b"Transfer-Encoding" not in head


def test_connection_close_is_honoured(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get("/", "Connection: close"))
        streams.wait(1)
        write(served.loop, streams.streams[0], b"x", end=True)
        answer = client.read("GET")
        assert (answer.body, answer.headers["connection"]) == (b"x", "close")
        assert client.read_to_end() == b""


def test_shutdown_waits_for_the_end_of_a_stream(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get())
        streams.wait(1)
        served.shutdown()
        write(served.loop, streams.streams[0], b"x", end=True)
        assert client.read("GET").body == b"x"
        assert client.read_to_end() == b""


def test_an_empty_stream_has_an_empty_body(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get())
        streams.wait(1)
        write(served.loop, streams.streams[0], end=True)
        assert client.read("GET").body == b""


def test_writes_after_the_end_are_dropped(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get())
        streams.wait(1)
        write(served.loop, streams.streams[0], b"x", end=True)
        write(served.loop, streams.streams[0], b"y")
        assert client.read("GET").body == b"x"
        assert client.ask(get("/plain"), "GET").body == b"plain"


def test_a_second_response_is_dropped(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get())
        streams.wait(1)
        served.loop.call(streams.exchanges[0].respond, 200, (b"plain",))
        write(served.loop, streams.streams[0], b"x", end=True)
        assert client.read("GET").body == b"x"


def test_disconnect_is_told_and_what_comes_later_goes_nowhere(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get("/gone"))
        streams.wait(1)
        receive(client, HEAD + b"\r\n")
    assert streams.disconnected["/gone"].wait(10)
    write(served.loop, streams.streams[0], b"x" * WAITING_BYTES, b"y", end=True)
    assert not streams.streams[0].full


def test_a_stream_that_begins_after_the_client_has_left_goes_nowhere() -> None:
    exchanges: list[Exchange] = []
    arrived, gone = threading.Event(), threading.Event()

    def keep(exchange: Exchange) -> None:
        exchange.on_disconnect = gone.set
        exchanges.append(exchange)
        arrived.set()

    with serve(keep) as served:
        with served.client() as client:
            client.send(get())
            assert arrived.wait(60)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert gone.wait(60)
        served.loop.call(lambda: None)

        def stream() -> None:
            late = exchanges[0].stream(200, "text/plain")
            late.write(b"x")
            late.end()

        served.loop.call(stream)


def test_a_failure_within_a_stream_breaks_the_connection_off(served: Served, streams: Streams) -> None:
    with served.client() as client:
        client.send(get())
        streams.wait(1)
        write(served.loop, streams.streams[0], b"one\n")
        receive(client, HEAD + b"\r\n4\r\none\n\r\n")
        served.loop.call(streams.exchanges[0].fail, ValueError("unforeseen"))
        assert client.read_to_end() == b""  # without the last chunk, so that the client knows


def fill(loop: LoopThread, stream: ResponseStream, piece: bytes) -> int:
    """Write the piece until the stream is full; how often that was."""

    def some() -> bool:
        for _ in range(50):
            if stream.full:
                return True
            stream.write(piece)
            total.append(piece)
        return False

    total: list[bytes] = []
    while not loop.call(some):
        assert len(total) * len(piece) < 1 << 28, "the stream takes everything"
    return len(total)


@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_client_that_stops_reading_fills_its_stream(served: Served, streams: Streams, size: int) -> None:
    room = threading.Event()
    with served.client() as client, served.client() as other:
        client.send(get("/", "Connection: close"))
        streams.wait(1)
        stream = streams.streams[0]
        stream.on_room = room.set
        written = fill(served.loop, stream, b"#" * size)
        (connection,) = [found for found in served.connections if found.write_paused]
        assert connection.unsent + stream._size <= 2 * (WAITING_BYTES + size)  # noqa: SLF001 - what the stream holds back shows in memory only

        other.send(get())  # which nobody holds up
        streams.wait(2)
        write(served.loop, streams.streams[1], b"y", end=True)
        assert other.read("GET").body == b"y"
        assert not room.is_set()

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(client.read_to_end)
            assert room.wait(10)
            assert not stream.full
            write(served.loop, stream, end=True)
            assert reading.result(60).count(b"#") == written * size


def test_a_stream_that_waits_its_turn_fills_too(served: Served, streams: Streams) -> None:
    room = threading.Event()
    with served.client() as client:
        client.send(get("/a") + get("/b"))
        streams.wait(2)
        first, second = streams.streams
        second.on_room = room.set
        write(served.loop, second, *[b"b"] * WAITING_PIECES)
        assert not second.full
        write(served.loop, second, b"b")
        assert served.loop.call(lambda: second.full)
        write(served.loop, first, end=True)
        assert room.wait(10)
        write(served.loop, second, end=True)
        assert [len(client.read("GET").body) for _ in range(2)] == [0, WAITING_PIECES + 1]


def test_a_client_that_reads_nothing_of_a_stream_is_dropped() -> None:
    streams = Streams()
    with serve(streams.handle, HttpLimits(send_timeout=0.2)) as served, served.client() as client:
        client.send(get("/idle"))
        streams.wait(1)
        fill(served.loop, streams.streams[0], b"x" * 100_000)
        assert streams.disconnected["/idle"].wait(10)
