import http.client
import json
import logging
import socket
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halimede.frontends.http.settings import HttpLimits
from halimede.frontends.http.transport.exchange import Exchange
from tests.frontends.http.serving import Served, echo, get, post, serve
from tests.support.waiting import wait_until


class Desk:
    """A handler that answers when the test says so."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.disconnected: list[str] = []
        self.gone = threading.Event()
        self._arrived = threading.Condition()

    def handle(self, exchange: Exchange) -> None:
        def on_disconnect() -> None:
            self.disconnected.append(exchange.path)
            self.gone.set()

        exchange.on_disconnect = on_disconnect
        with self._arrived:
            self.exchanges.append(exchange)
            self._arrived.notify_all()

    def wait(self, count: int) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.exchanges) >= count, 60)


@pytest.fixture(scope="module")
def echoing() -> Iterator[Served]:
    with serve(echo) as served:
        yield served


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def waiting(desk: Desk) -> Iterator[Served]:
    with serve(desk.handle, HttpLimits(pipelined=4)) as served:
        yield served


def answer(waiting: Served, desk: Desk, index: int, text: bytes = b"") -> None:
    waiting.loop.call(lambda: desk.exchanges[index].respond(200, (text,)))


def test_request_is_answered_and_the_connection_kept(echoing: Served) -> None:
    with echoing.client() as client:
        for _ in range(3):
            answered = client.ask(post(b"hello", "/a?b=c"))
            assert (answered.status, answered.body) == (200, b"POST /a hello")
            assert answered.headers == {"content-type": "text/plain", "content-length": "13"}


def test_standard_client_is_served(echoing: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", echoing.port, timeout=60)
    for size in (0, 1, 40_000, 3_000_000):
        connection.request("POST", "/x", b"z" * size)
        assert connection.getresponse().read() == b"POST /x " + b"z" * size
    connection.request("POST", "/chunked", iter([b"abc", b"defg"]), encode_chunked=True)
    assert connection.getresponse().read() == b"POST /chunked abcdefg"
    connection.close()


def test_connection_close_is_honoured(echoing: Served) -> None:
    with echoing.client() as client:
        client.send(get("/", "Connection: close"))
        assert client.read().headers["connection"] == "close"
        assert client.read_to_end() == b""


def test_http_1_0_closes_unless_asked_to_keep_alive(echoing: Served) -> None:
    with echoing.client() as client:
        kept = client.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert kept.headers["connection"] == "keep-alive"
        assert client.ask(b"GET / HTTP/1.0\r\n\r\n").headers["connection"] == "close"
        assert client.read_to_end() == b""


def test_head_request_gets_no_body(echoing: Served) -> None:
    with echoing.client() as client:
        answered = client.ask(b"HEAD /x HTTP/1.1\r\n\r\n", "HEAD")
        assert answered.headers["content-length"] == "8"
        assert client.ask(get("/y")).body == b"GET /y "


def test_pipelined_requests_are_answered_in_order(waiting: Served, desk: Desk) -> None:
    with waiting.client() as client:
        client.send(get("/0") + post(b"one", "/1") + get("/2"))
        desk.wait(3)
        for index in (2, 0, 1):
            answer(waiting, desk, index, b"%d" % index)
        assert [client.read().body for _ in range(3)] == [b"0", b"1", b"2"]


def test_too_many_pipelined_requests_wait_unread(waiting: Served, desk: Desk) -> None:
    with waiting.client() as client:
        client.send(b"".join(get(f"/{index}") for index in range(10)))
        desk.wait(4)
        assert waiting.loop.call(lambda: len(desk.exchanges)) == 4
        for index in range(10):
            desk.wait(index + 1)
            answer(waiting, desk, index, b"%d" % index)
        assert [client.read().body for _ in range(10)] == [b"%d" % index for index in range(10)]


def test_many_pipelined_chunked_requests_are_answered(echoing: Served) -> None:
    one = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    with echoing.client() as client:
        client.send(one * 3000)
        for _ in range(3000):
            assert client.read().body == b"POST /c x"


def test_client_that_expects_100_continue_gets_it(echoing: Served) -> None:
    with echoing.client() as client:
        client.send(b"POST /e HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert client.read_line() == b"HTTP/1.1 100 Continue\r\n"
        assert client.read_line() == b"\r\n"
        assert client.ask(b"hello").body == b"POST /e hello"


def test_100_continue_comes_after_earlier_responses(waiting: Served, desk: Desk) -> None:
    with waiting.client() as client:
        client.send(get("/first"))
        client.send(b"POST /e HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        desk.wait(1)
        answer(waiting, desk, 0, b"first")
        assert client.read().body == b"first"
        assert client.read_line() == b"HTTP/1.1 100 Continue\r\n"
        client.read_line()
        client.send(b"hello")
        desk.wait(2)
        answer(waiting, desk, 1)
        assert client.read().status == 200


def test_large_bodies_go_both_ways_unharmed(echoing: Served) -> None:
    body = bytes(range(256)) * 40_000
    with echoing.client() as client:
        threading.Thread(target=client.send, args=(post(body) * 2,)).start()
        for _ in range(2):
            assert client.read().body == b"POST /echo " + body


def test_body_may_be_held_after_the_response(desk: Desk) -> None:
    with serve(desk.handle) as served, served.client() as client:
        for index, letter in enumerate((b"a", b"b")):
            client.send(post(letter * 100_000))
            desk.wait(index + 1)
            answer(served, desk, index)
            assert client.read().status == 200
        assert bytes(desk.exchanges[0].body) == b"a" * 100_000


def test_slow_reader_gets_everything(echoing: Served) -> None:
    body = b"x" * 1_000_000
    with echoing.client() as client:
        sender = threading.Thread(target=client.send, args=(post(body) * 10,))
        sender.start()
        for _ in range(10):
            assert len(client.read().body) == len(body) + 11
        sender.join()


def test_disconnect_is_told_at_once_while_a_response_is_pending(waiting: Served, desk: Desk) -> None:
    with waiting.client() as client:
        client.send(get("/gone"))
        desk.wait(1)
    assert desk.gone.wait(60)
    assert desk.disconnected == ["/gone"]
    answer(waiting, desk, 0)  # too late, and no error


def test_reset_connection_is_told_too(waiting: Served, desk: Desk) -> None:
    with waiting.client() as client:
        client.send(get("/reset"))
        desk.wait(1)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert desk.gone.wait(60)


def test_client_that_only_stops_sending_still_gets_its_answer(waiting: Served, desk: Desk) -> None:
    with waiting.client() as client:
        client.send(get("/half"))
        desk.wait(1)
        client.socket.shutdown(socket.SHUT_WR)
        assert desk.gone.wait(60)
        answer(waiting, desk, 0, b"late")
        answered = client.read()
        assert (answered.body, answered.headers["connection"]) == (b"late", "close")
        assert client.read_to_end() == b""


def test_second_response_is_dropped() -> None:
    def twice(exchange: Exchange) -> None:
        exchange.respond(200, (b"first",))
        exchange.respond(200, (b"second",))

    with serve(twice) as served:
        assert served.talk(get()).count(b"HTTP/1.1") == 1


def test_failing_handler_answers_500_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    def fail(exchange: Exchange) -> None:
        raise ValueError("secret")

    with serve(fail) as served, served.client() as client, caplog.at_level(logging.ERROR, "halimede"):
        answered = client.ask(get())
        assert answered.status == 500
        assert b"secret" not in answered.body
        assert client.ask(get()).status == 500
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (b"NONSENSE\r\n\r\n", 400, "malformed HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed HTTP request"),
        (post(b"x", "/", "Content-Length: 7"), 400, "malformed HTTP request"),
        (get("/", "Expect: tea"), 417, "100-continue"),
        (get("/" + "x" * 70_000), 431, "larger than the allowed 32768 bytes"),
        (get("/", "A: " + "x" * 31_000, "B: " + "x" * 31_000), 431, "larger than the allowed"),
        (get("/", *(f"H{n}: x" for n in range(200))), 431, "at most 128 are allowed"),
        (b"POST / HTTP/1.1\r\nContent-Length: 9999999999999\r\n\r\n", 413, "larger than the allowed"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "hexadecimal"),
        (post(b"whole")[:-2], 400, "ended before it was complete"),
        (post(b"x" * 100_000)[:-2], 400, "ended before it was complete"),
        (b"GET / HTTP/1.1\r\nHo", 400, "ended before it was complete"),
    ],
)
def test_bad_request_gets_a_json_error_and_the_connection_closes(
    echoing: Served, data: bytes, status: int, text: str
) -> None:
    response = echoing.talk(data)
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in head
    assert text in json.loads(body)["error"]


def test_more_than_65536_chunks_are_refused(echoing: Served) -> None:
    with echoing.client() as client:
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 65_537)
        answered = client.read()
        assert answered.status == 400
        assert client.read_to_end() == b""
    with echoing.client() as client:
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 65_536)
        assert client.ask(b"0\r\n\r\n").status == 200


def test_error_comes_after_the_answers_before_it(waiting: Served, desk: Desk) -> None:
    with waiting.client() as client:
        client.send(get("/good") + b"BAD\r\n\r\n")
        desk.wait(1)
        answer(waiting, desk, 0, b"good")
        assert client.read().body == b"good"
        assert client.read().status == 400
        assert client.read_to_end() == b""


def test_client_that_is_still_sending_reads_the_refusal() -> None:
    with serve(echo, HttpLimits(body_bytes=1000)) as served, served.client() as client:
        client.send(post(b"x" * 2_000_000))
        assert client.read().status == 413
        assert client.read_to_end() == b""


def test_slow_head_is_answered_408() -> None:
    with serve(echo, HttpLimits(head_timeout=0.2)) as served, served.client() as client:
        client.send(b"GET / HT")
        assert client.read().status == 408
        assert client.read_to_end() == b""


@pytest.mark.parametrize("length", [100, 100_000])
def test_slow_body_is_answered_408(length: int) -> None:
    limits = HttpLimits(body_timeout=0.2, body_rate=1_000_000)
    with serve(echo, limits) as served, served.client() as client:
        client.send(post(b"x" * length)[:-10])
        assert client.read().status == 408


def test_slow_chunked_body_is_answered_408() -> None:
    limits = HttpLimits(body_timeout=0.2, body_rate=1_000_000)
    with serve(echo, limits) as served, served.client() as client:
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")
        assert client.read().status == 408


def test_idle_connection_is_kept() -> None:
    limits = HttpLimits(head_timeout=0.1, body_timeout=0.1, linger=0.1, send_timeout=0.1)
    with serve(echo, limits) as served, served.client() as client:
        assert client.ask(get()).status == 200
        with served.client() as other:  # whose timer is as coarse, and is over when it has been refused
            other.send(b"G")
            assert other.read().status == 408
        assert client.ask(get()).status == 200


def test_refused_client_that_neither_reads_nor_closes_is_dropped() -> None:
    with serve(echo, HttpLimits(linger=0.2)) as served, served.client() as client:
        client.send(b"BAD\r\n\r\n")
        assert client.read_to_end().startswith(b"HTTP/1.1 400")
        wait_until(
            lambda: not served.loop.call(lambda: len(served.connections)), "the connection to be dropped"
        )


def test_client_that_reads_nothing_is_dropped(desk: Desk) -> None:
    size = 50_000_000
    body = np.zeros(size, np.uint8)
    kept = weakref.ref(body)
    with serve(desk.handle, HttpLimits(send_timeout=0.2)) as served, served.client() as client:
        client.send(get())
        desk.wait(1)
        served.loop.call(desk.exchanges.pop().respond, 200, (memoryview(body.data),))
        del body
        assert kept() is not None, "the server holds what its client does not read"
        wait_until(
            lambda: not served.loop.call(lambda: len(served.connections)), "the connection to be dropped"
        )
        wait_until(lambda: kept() is None, "the server's buffers to be freed")
        assert len(client.read_to_end()) < size, "what the kernel had taken, and no more"


def test_shutdown_closes_idle_connections_at_once() -> None:
    with serve(echo) as served, served.client() as client:
        client.ask(get())
        served.shutdown()
        assert client.read_to_end() == b""


def test_shutdown_waits_for_what_was_asked(desk: Desk) -> None:
    with serve(desk.handle) as served, served.client() as client:
        client.send(get("/a") + get("/b"))
        desk.wait(2)
        served.shutdown()
        answer(served, desk, 0)
        answer(served, desk, 1)
        assert "connection" not in client.read().headers
        assert client.read().headers["connection"] == "close"
        assert client.read_to_end() == b""


def test_shutdown_waits_for_a_body_under_way(desk: Desk) -> None:
    with serve(desk.handle) as served, served.client() as client:
        client.send(get("/first") + post(b"x" * 100_000)[:-4])
        desk.wait(1)
        served.shutdown()
        client.send(b"xxxx")
        desk.wait(2)
        answer(served, desk, 0)
        answer(served, desk, 1)
        assert client.read().status == 200
        assert client.read().headers["connection"] == "close"


REQUEST = st.one_of(
    st.binary(max_size=200).map(post),
    st.just(get("/x")),
    st.binary(min_size=1, max_size=50).map(
        lambda data: (
            b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        )
    ),
    st.just(b"\r\n" + get("/after-an-empty-line")),
)


@given(st.lists(REQUEST, min_size=1, max_size=4), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_cut_anywhere_get_the_same_answers(
    echoing: Served, requests: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(requests)
    expected = echoing.talk(whole)
    assert expected.count(b"HTTP/1.1 200 OK\r\n") >= len(requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    with echoing.client() as client:
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            client.send(whole[start:end])
            echoing.loop.call(lambda: None)  # a turn of the loop, in which it reads
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read_to_end() == expected


FRAGMENT = st.one_of(
    st.binary(max_size=50),
    st.sampled_from(
        [
            b"GET / HTTP/1.1\r\n",
            b"POST /a HTTP/1.1\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"Content-Length: 5\r\n",
            b"Content-Length: 50000\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"Connection: upgrade\r\nUpgrade: h2c\r\n",
            b"Expect: 100-continue\r\n",
            b"hello",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]
    ),
)


@given(st.lists(FRAGMENT, max_size=8))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_bytes_are_answered_or_the_connection_closes(
    echoing: Served, caplog: pytest.LogCaptureFixture, fragments: list[bytes]
) -> None:
    with caplog.at_level(logging.DEBUG):
        response = echoing.talk(b"".join(fragments))
    assert response == b"" or response.startswith(b"HTTP/1.1 ")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert echoing.talk(get("/alive")).endswith(b"GET /alive ")
