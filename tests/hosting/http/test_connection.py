"""Requests and responses on one connection, as bytes on a real socket."""

import socket
import threading
from http.client import IncompleteRead

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.http.connection import WINDOW_BYTES
from halimede.hosting.http.request import DisconnectedError, Request, response_head
from halimede.hosting.http.settings import ConnectionLimits
from tests.hosting.http.serving import Tasks, chunked, describe, echo, get, post, serve
from tests.support.waiting import let_pass, wait_until

SHORT = ConnectionLimits(head_timeout=0.2, body_timeout=0.2, send_timeout=0.2, linger=0.2)


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


class TestHeads:
    @pytest.mark.parametrize("size", [1, 2, 7])
    def test_a_head_may_come_in_pieces(self, size: int) -> None:
        with serve(describe) as served, served.client() as client:
            for piece in pieces_of(get("/a/b?x=1", "X-Long: " + "y" * 50), size):
                client.send(piece)
            answer = client.read()
            assert (answer.status, answer.body) == (200, b"GET /a/b?x=1")
            address, port = client.socket.getsockname()
            assert answer.headers["x-client"] == f"{address}:{port}"

    def test_pipelined_requests_are_answered_in_order(self) -> None:
        with serve(Tasks(echo)) as served, served.client() as client:
            bodies = [b"%d" % number * (number * 17) for number in range(50)]
            client.send(b"".join(post(body) for body in bodies))
            assert [client.read().body for _ in bodies] == bodies

    def test_requests_that_are_answered_at_once_may_be_pipelined_too(self) -> None:
        with serve(describe) as served, served.client() as client:
            client.send(b"".join(get(f"/{number}") for number in range(300)))
            assert [client.read().body for _ in range(300)] == [b"GET /%d?" % n for n in range(300)]

    def test_empty_lines_before_a_request_are_ignored(self) -> None:
        with serve(describe) as served, served.client() as client:
            assert client.ask(b"\r\n\r\n" + get()).status == 200

    def test_empty_lines_are_looked_at_once(self) -> None:
        with serve(describe) as served, served.client() as client:
            for _ in range(20):
                client.send(b"\r\n" * 500_000)
            assert client.ask(get()).status == 200

    @pytest.mark.parametrize(
        ("data", "status"),
        [
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
            (b"nonsense\r\n\r\n", 400),
            (get("/", "A: b\r\n folded"), 400),
            (get("/", "A: b\x00"), 400),
            (get("/", "A : b"), 400),
            (get("/", "Content-Length: 1", "Content-Length: 2"), 400),
            (get("/", "Content-Length: -1"), 400),
            (get("/", "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
            (get("/", "Content-Length: " + "9" * 5000), 400),
            (get("/", "Transfer-Encoding: gzip, chunked"), 501),
            (get("/", "Expect: miracles"), 417),
            (get("/").replace(b"1.1", b"3.7"), 400),
            (get("/", "X: " + "y" * 70_000), 431),
            (b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000, 431),
            (get("/", *(f"X{number}: 1" for number in range(300))), 431),
        ],
    )
    def test_what_cannot_be_taken_is_refused_and_the_connection_closed(
        self, data: bytes, status: int
    ) -> None:
        with serve(describe) as served, served.client() as client:
            answer = client.ask(data)
            assert (answer.status, answer.headers["connection"]) == (status, "close")
            assert answer.body.startswith(b'{"message":"')
            assert client.read_to_end() == b""

    def test_a_refusal_comes_after_the_answers_before_it(self) -> None:
        with serve(Tasks(echo)) as served, served.client() as client:
            client.send(post(b"first") + b"nonsense\r\n\r\n")
            assert client.read().body == b"first"
            assert client.read().status == 400


class TestBodies:
    @pytest.mark.parametrize("size", [1, 3, 1000])
    def test_a_body_may_come_in_pieces(self, size: int) -> None:
        body = bytes(range(256)) * 4
        with serve(Tasks(echo)) as served, served.client() as client:
            for piece in pieces_of(post(body), size):
                client.send(piece)
            assert client.read().body == body

    @pytest.mark.parametrize("size", [1, 2, 5, 4096])
    def test_a_chunked_body_may_come_in_any_pieces(self, size: int) -> None:
        body = bytes(range(256)) * 4
        with serve(Tasks(echo)) as served, served.client() as client:
            data = chunked(body, [1, 16, 255, 3], b"X-Trailer: 1\r\n") + get("/")
            for piece in pieces_of(data, size):
                client.send(piece)
            assert client.read().body == body
            assert client.read().status == 200  # where the next request begins has been found

    @pytest.mark.parametrize(
        "rest", [b"zz\r\n", b"5\r\nabcdefgh\r\n", b"5\nabcde\r\n", b"-1\r\n", b"1" * 300]
    )
    def test_a_malformed_chunked_body_is_refused(self, rest: bytes) -> None:
        handler = Tasks(echo)
        with serve(handler) as served, served.client() as client:
            client.send(chunked(b"", [])[:-5] + b"3\r\nabc\r\n")
            assert handler.begun.wait(60)
            client.send(rest)
            assert client.read().status == 400
            assert client.read_to_end() == b""
            assert handler.ended.wait(60)
            assert len(handler.errors) == 1  # whoever waited for the body has heard that it does not come

    def test_a_malformed_body_in_the_first_piece_reaches_no_handler(self) -> None:
        seen: list[Request] = []
        with serve(seen.append) as served, served.client() as client:
            assert client.ask(chunked(b"", [])[:-5] + b"zz\r\n").status == 400
            assert seen == []

    def test_a_body_that_is_not_taken_is_not_received_beyond_the_window(self) -> None:
        waiting: list[Request] = []
        body = b"x" * (64 << 20)
        with serve(waiting.append) as served, served.client() as client:
            sender = threading.Thread(target=client.socket.sendall, args=(post(body),))
            sender.start()
            wait_until(lambda: waiting and waiting[0].waiting > WINDOW_BYTES)
            let_pass(0.1, "nothing shows that no more is received")
            assert served.loop.call(lambda: waiting[0].waiting) <= 2 * WINDOW_BYTES
            assert sender.is_alive()
            whole = served.loop.run(waiting[0].read(len(body)))
            sender.join(60)
            assert whole == body
            served.loop.call(waiting[0].respond, 200)
            assert client.read().status == 200

    def test_a_chunked_body_that_is_not_taken_is_not_received_beyond_the_window(self) -> None:
        waiting: list[Request] = []
        body = b"x" * (32 << 20)
        with serve(waiting.append) as served, served.client() as client:
            sender = threading.Thread(target=client.socket.sendall, args=(chunked(body, [100_000] * 300),))
            sender.start()
            wait_until(lambda: waiting and waiting[0].waiting > WINDOW_BYTES)
            let_pass(0.1, "nothing shows that no more is received")
            assert served.loop.call(lambda: waiting[0].waiting) <= 2 * WINDOW_BYTES
            assert served.loop.run(waiting[0].read(len(body))) == body
            sender.join(60)
            served.loop.call(waiting[0].respond, 200)
            assert client.read().status == 200

    @pytest.mark.parametrize("data", [post(b"x" * 11), chunked(b"x" * 11, [4])])
    def test_a_body_above_the_limit_is_refused(self, data: bytes) -> None:
        async def small(request: Request) -> None:
            await request.read(10)

        with serve(Tasks(small)) as served, served.client() as client:
            answer = client.ask(data)
            assert (answer.status, answer.body) == (
                413,
                b"the body has 11 bytes or more; at most 10 are allowed",
            )


class TestExpectContinue:
    DATA = post(b"body", "/", "Expect: 100-continue")

    def test_the_body_is_asked_for_when_it_is_wanted(self) -> None:
        begun: list[Request] = []
        with serve(begun.append) as served, served.client() as client:
            client.send(self.DATA[:-4])
            wait_until(lambda: begun)
            client.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.socket.recv(1)
            client.socket.settimeout(60)
            answer = served.loop.loop.create_task
            served.loop.loop.call_soon_threadsafe(lambda: answer(echo(begun[0])))
            assert client.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(b"body")
            assert b"\r\n\r\nbody" in client.socket.recv(1000)

    def test_an_answer_without_it_closes_the_connection(self) -> None:
        # the client may leave the body out: its next request must not be taken for it
        with serve(lambda request: request.respond(403)) as served, served.client() as client:
            answer = client.ask(self.DATA[:-4])
            assert (answer.status, answer.headers["connection"]) == (403, "close")
            assert client.read_to_end() == b""

    def test_a_client_that_does_not_wait_is_not_told(self) -> None:
        with serve(Tasks(echo)) as served, served.client() as client:
            assert client.ask(self.DATA).body == b"body"

    def test_http_1_0_knows_no_continue(self) -> None:
        with serve(Tasks(echo)) as served, served.client() as client:
            client.send(self.DATA[:-4].replace(b"1.1", b"1.0"))
            client.send(b"body")
            assert client.read_line().startswith(b"HTTP/1.1 200")
            client.read_to_end()

    def test_a_body_that_was_not_asked_for_may_take_its_time(self) -> None:
        begun: list[Request] = []
        with serve(begun.append, SHORT) as served, served.client() as client:
            client.send(self.DATA[:-4])
            wait_until(lambda: begun)
            let_pass(0.3, "longer than bodies may be waited for")
            served.loop.call(begun[0].receive, lambda: begun[0].respond(200, begun[0].take()))
            assert client.read_line() == b"HTTP/1.1 100 Continue\r\n"
            assert client.read_line() == b"\r\n"
            client.send(b"body")
            assert client.read().body == b"body"


class TestResponses:
    def test_head_gets_the_length_only(self) -> None:
        with serve(describe) as served, served.client() as client:
            answer = client.ask(get("/").replace(b"GET", b"HEAD"), "HEAD")
            assert answer.headers["content-length"] == str(len(b"HEAD /?"))
            assert client.ask(get("/")).body == b"GET /?"

    @pytest.mark.parametrize("status", [204, 304])
    def test_a_status_without_a_body_has_no_length(self, status: int) -> None:
        with serve(lambda request: request.respond(status, b"dropped")) as served, served.client() as client:
            answer = client.ask(get("/"))
            assert answer.status == status
            assert "content-length" not in answer.headers
            assert client.ask(get("/")).status == status

    @pytest.mark.parametrize(
        ("data", "header", "kept"),
        [
            (get("/"), None, True),
            (get("/", "Connection: keep-alive"), None, True),
            (get("/", "Connection: close"), "close", False),
            (get("/", "Connection: foo, Close"), "close", False),
            (get("/").replace(b"1.1", b"1.0"), "close", False),
            (get("/", "Connection: keep-alive").replace(b"1.1", b"1.0"), "keep-alive", True),
        ],
    )
    def test_connections_are_kept_as_the_client_asks(
        self, data: bytes, header: str | None, kept: bool
    ) -> None:
        with serve(describe) as served, served.client() as client:
            assert client.ask(data).headers.get("connection") == header
            if kept:
                assert client.ask(data).status == 200
            else:
                assert client.read_to_end() == b""

    def test_the_error_of_a_handler_is_a_500_and_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        def broken(request: Request) -> None:
            raise RuntimeError("secret")

        with serve(broken) as served, served.client() as client:
            answer = client.ask(get("/path"))
            assert answer.status == 500
            assert b"secret" not in answer.body
            assert client.ask(get("/")).status == 500  # the connection goes on
        assert "GET /path failed" in caplog.text

    def test_an_error_in_the_middle_of_a_response_breaks_the_connection_off(self) -> None:
        def broken(request: Request) -> None:
            request.begin(response_head(200, (("Content-Length", "10"),)))
            request.write(b"half")
            raise RuntimeError

        with serve(broken) as served, served.client() as client:
            client.send(get("/"))
            with pytest.raises((ConnectionResetError, IncompleteRead)):
                client.read()

    @pytest.mark.parametrize("value", ["a\r\nX: 1", "a\nb", "a\rb"])
    def test_a_header_with_a_line_end_is_not_sent(self, value: str) -> None:
        with pytest.raises(ValueError, match="the value of header X-Name has a line end"):
            response_head(200, (("X-Name", value),))

    def test_a_header_that_no_header_can_be_is_a_500(self) -> None:
        def injected(request: Request) -> None:
            request.respond(200, b"", (("X", "a\r\nSet-Cookie: b"),))

        with serve(injected) as served, served.client() as client:
            answer = client.ask(get("/"))
            assert answer.status == 500
            assert "set-cookie" not in answer.headers

    def test_a_second_response_is_dropped(self) -> None:
        def twice(request: Request) -> None:
            request.respond(200, b"first")
            request.respond(200, b"second")
            request.write(b"third")

        with serve(twice) as served, served.client() as client:
            assert client.ask(get("/")).body == b"first"
            assert client.ask(get("/")).body == b"first"

    def test_a_streamed_response_waits_for_a_client_that_does_not_read(self) -> None:
        size, written = 64 << 20, [0]
        piece = b"x" * 65_536

        def stream(request: Request) -> None:
            def more() -> None:
                while request.is_writable and written[0] < size:
                    request.write(piece)
                    written[0] += len(piece)
                if written[0] >= size:
                    request.end()

            request.on_writable = more
            request.begin(response_head(200, (("Content-Length", str(size)),)))
            more()

        with serve(stream) as served, served.client() as client:
            client.send(get("/"))
            wait_until(lambda: written[0])
            let_pass(0.2, "nothing shows that no more is written")
            assert served.loop.call(lambda: written[0]) < size // 2
            assert len(client.read().body) == size

    def test_http_1_0_gets_a_stream_that_ends_with_the_connection(self) -> None:
        def stream(request: Request) -> None:
            request.last()
            request.begin(response_head(200, ()))
            request.write(b"one ")
            request.write(b"two")
            request.end()

        with serve(stream) as served, served.client() as client:
            client.send(get("/", "Connection: keep-alive").replace(b"1.1", b"1.0"))
            assert client.read_to_end().endswith(b"Connection: close\r\n\r\none two")


class TestAnswersBeforeTheBody:
    def test_a_short_rest_of_a_body_is_dropped(self) -> None:
        def refuse(request: Request) -> None:
            request.respond(404, request.head.path.encode())

        with serve(refuse) as served, served.client() as client:
            first, second = post(b"x" * 100_000, "/1"), post(b"", "/2")
            client.send(first[:100])
            assert client.read().body == b"/1"
            client.send(first[100:] + second)
            assert client.read().body == b"/2"

    @pytest.mark.parametrize("data", [post(b"x" * (1 << 20)), chunked(b"x" * (1 << 20), [10, 500])])
    def test_a_long_rest_is_not_waited_for_but_the_answer_arrives(self, data: bytes) -> None:
        with serve(lambda request: request.respond(404, b"gone")) as served, served.client() as client:
            client.send(data[:200])
            answer = client.read()
            assert (answer.status, answer.body, answer.headers["connection"]) == (404, b"gone", "close")
            client.send(data[200:300])  # read and thrown away, so that nothing is reset
            assert client.read_to_end() == b""

    def test_lingering_ends(self) -> None:
        with serve(lambda request: request.respond(404), SHORT) as served, served.client() as client:
            client.send(post(b"x" * (1 << 20))[:200])
            assert client.read().status == 404

            def closed() -> bool:
                try:
                    client.send(b"x")
                except (ConnectionResetError, BrokenPipeError):
                    return True
                return False

            wait_until(closed)


class TestSlowClients:
    def test_a_slow_head_is_refused(self) -> None:
        with serve(describe, SHORT) as served, served.client() as client:
            client.send(b"GET / HT")
            assert client.read().status == 408
            assert client.read_to_end() == b""

    def test_an_idle_connection_may_stay(self) -> None:
        with serve(describe, SHORT) as served, served.client() as client:
            assert client.ask(get("/")).status == 200
            let_pass(0.3, "longer than heads and bodies may be waited for")
            assert client.ask(get("/")).status == 200

    def test_a_slow_body_is_refused(self) -> None:
        handler = Tasks(echo)
        with serve(handler, SHORT) as served, served.client() as client:
            client.send(post(b"12345")[:-2])
            answer = client.read()
            assert answer.status == 408
            assert b"nothing came of the body for 0.2 seconds" in answer.body
            assert handler.ended.wait(60)
            assert len(handler.errors) == 1

    def test_a_rest_that_does_not_come_is_not_waited_for(self) -> None:
        with serve(lambda request: request.respond(404), SHORT) as served, served.client() as client:
            client.send(post(b"12345")[:-2])
            assert client.read().status == 404
            assert client.read_to_end() == b""

    def test_a_body_that_nobody_takes_is_no_fault_of_the_client(self) -> None:
        waiting: list[Request] = []
        body = b"x" * (16 << 20)
        with serve(waiting.append, SHORT) as served, served.client() as client:
            sender = threading.Thread(target=client.socket.sendall, args=(post(body),))
            sender.start()
            wait_until(lambda: waiting and waiting[0].waiting > WINDOW_BYTES)
            let_pass(0.3, "longer than bodies may be waited for")
            assert served.loop.run(waiting[0].read(len(body))) == body
            sender.join(60)
            served.loop.call(waiting[0].respond, 200)
            assert client.read().status == 200

    def test_a_client_that_does_not_read_is_broken_off(self) -> None:
        gone = threading.Event()

        def stream(request: Request) -> None:
            request.on_disconnect = gone.set
            request.begin(response_head(200, (("Content-Length", str(64 << 20)),)))
            request.write(b"x" * (32 << 20))

        with serve(stream, SHORT) as served, served.client() as client:
            client.send(get("/"))
            assert gone.wait(60)


class TestDisconnects:
    @pytest.mark.parametrize(
        "data", [b"", b"GET / HT", get("/")], ids=["nothing", "half a head", "a request"]
    )
    @pytest.mark.parametrize("reset", [False, True])
    def test_a_client_may_go_at_any_time(self, data: bytes, reset: bool) -> None:
        with serve(describe) as served:
            client = served.client()
            if data:
                client.send(data)
            wait_until(lambda: served.connections)
            client.vanish() if reset else client.__exit__()
            wait_until(lambda: not served.connections)

    @pytest.mark.parametrize("reset", [False, True])
    @pytest.mark.parametrize("data", [post(b"12345")[:-2], chunked(b"12345", [2])[:-3]])
    def test_whoever_reads_the_body_hears_that_the_client_has_gone(self, data: bytes, reset: bool) -> None:
        handler = Tasks(echo)
        with serve(handler) as served:
            client = served.client()
            client.send(data)
            assert handler.begun.wait(60)
            client.vanish() if reset else client.__exit__()
            assert handler.ended.wait(60)
            assert len(handler.errors) == 1

    @pytest.mark.parametrize("reset", [False, True])
    def test_whoever_answers_hears_that_the_client_has_gone(self, reset: bool) -> None:
        begun, gone = threading.Event(), threading.Event()
        kept: list[Request] = []

        def wait(request: Request) -> None:
            request.on_disconnect = gone.set
            kept.append(request)
            begun.set()

        with serve(wait) as served:
            client = served.client()
            client.send(post(b"body"))
            assert begun.wait(60)
            client.vanish() if reset else client.__exit__()
            assert gone.wait(60)
            assert kept[0].answered
            served.loop.call(kept[0].respond, 200, b"too late")

    def test_a_response_that_has_begun_is_broken_off(self) -> None:
        gone = threading.Event()

        def stream(request: Request) -> None:
            request.on_disconnect = gone.set
            request.begin(response_head(200, (("Content-Length", "100"),)))
            request.write(b"some")

        with serve(stream) as served:
            client = served.client()
            client.send(get("/"))
            assert client.read_line().startswith(b"HTTP/1.1 200")
            client.vanish()
            assert gone.wait(60)


class TestShutdown:
    def test_idle_connections_are_closed(self) -> None:
        with serve(describe) as served, served.client() as client:
            assert client.ask(get("/")).status == 200
            served.loop.call(served.connections.shutdown)
            assert client.read_to_end() == b""

    def test_what_has_been_asked_is_answered_first(self) -> None:
        begun: list[Request] = []
        with serve(begun.append) as served, served.client() as client:
            client.send(get("/"))
            wait_until(lambda: begun)
            served.loop.call(served.connections.shutdown)
            served.loop.call(begun[0].respond, 200, b"answer")
            answer = client.read()
            assert (answer.body, answer.headers["connection"]) == (b"answer", "close")
            assert client.read_to_end() == b""


def test_read_refuses_before_it_asks_for_the_body() -> None:
    async def small(request: Request) -> None:
        try:
            await request.read(3)
        except ApiError as error:
            request.respond(error.status)

    with serve(Tasks(small)) as served, served.client() as client:
        assert client.ask(post(b"body", "/", "Expect: 100-continue")[:-4]).status == 413


def test_reading_after_the_client_has_gone_ends_at_once() -> None:
    kept: list[Request] = []
    with serve(kept.append) as served:
        client = served.client()
        client.send(post(b"12345")[:-2])
        wait_until(lambda: kept)
        client.__exit__()
        wait_until(lambda: kept[0].answered)
        with pytest.raises(DisconnectedError):
            served.loop.run(kept[0].read(10))


def test_a_window_of_pipelined_requests_is_held() -> None:
    begun: list[Request] = []

    def flood(sock: socket.socket) -> int:
        sock.settimeout(0.3)
        sent = 0
        try:
            while sent < 256 << 20:
                sent += sock.send(get("/") * 1000)
        except TimeoutError:
            return sent
        raise AssertionError("everything was taken")

    with serve(begun.append) as served, served.client() as client:
        assert flood(client.socket) > WINDOW_BYTES
        assert len(begun) == 1
        [connection] = served.connections
        served.loop.call(connection.abort)
