"""A request passes through containers: bodies, types, errors, and who is said to have made them."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from halimede.http1.upstream import UpstreamPool
from tests.hosting.containers.serving import row_of
from tests.hosting.http.serving import chunked
from tests.hosting.instances import Received, Reply
from tests.support.waiting import let_pass, wait_until

LARGE = bytes(range(256)) * 40_000  # 10 MB


def test_what_one_container_answers_is_what_the_next_is_asked() -> None:
    with row_of(3) as row:
        first, second, third = row.containers
        first.invoke = lambda got: Reply(200, got.body + b"1", {"Content-Type": "text/csv"})
        second.invoke = lambda got: Reply(200, got.body + b"2", {"Content-Type": "application/x-npy"})
        third.invoke = lambda got: Reply(
            200,
            got.body + b"3",
            {"Content-Type": "text/final", "X-Amzn-SageMaker-Custom-Attributes": "a", "X-Own": "hidden"},
        )
        answer = row.ask(
            b"body", "Content-Type: application/json", "Accept: text/final",
            "X-Amzn-SageMaker-Custom-Attributes: c", "X-Other: no",
        )  # fmt: skip
        assert (answer.status, answer.body) == (200, b"body123")
        assert answer.headers["content-type"] == "text/final"
        assert answer.headers["x-amzn-sagemaker-custom-attributes"] == "a"
        assert "x-own" not in answer.headers
        assert "x-halimede-container" not in answer.headers
        types = [each.seen[0].headers.get("content-type") for each in row.containers]
        assert types == ["application/json", "text/csv", "application/x-npy"]
        # what the client accepts is for the container whose answer it gets
        assert [each.seen[0].headers.get("accept") for each in row.containers] == [None, None, "text/final"]
        for each in row.containers:
            assert each.paths() == ["/invocations"]
            assert each.seen[0].headers["x-amzn-sagemaker-custom-attributes"] == "c"
            assert "x-other" not in each.seen[0].headers


def test_an_answer_without_a_type_is_handed_on_without_one() -> None:
    with row_of(2) as row:
        row.containers[0].invoke = lambda _: Reply(200, b"x")
        assert row.ask(b"", "Content-Type: text/csv").status == 200
        assert "content-type" not in row.containers[1].seen[0].headers


def test_a_request_that_names_a_container_passes_through_that_one_only() -> None:
    with row_of(3) as row:
        row.containers[1].invoke = lambda got: Reply(200, got.body + b"2")
        answer = row.ask(b"x", "X-Amzn-SageMaker-Target-Container-Hostname: c2", "Accept: text/csv")
        assert answer.body == b"x2"
        assert [len(each.seen) for each in row.containers] == [0, 1, 0]
        assert row.containers[1].seen[0].headers["accept"] == "text/csv"


@pytest.mark.parametrize("size", [0, 1, 300_000, len(LARGE)])
def test_bodies_of_any_size_pass_through(size: int) -> None:
    with row_of(3) as row:
        assert row.ask(LARGE[:size]).body == LARGE[:size]


def test_bodies_whose_length_nobody_says_pass_through() -> None:
    def pieces(received: Received) -> Reply:
        body = received.body
        return Reply(200, [body[at : at + 100_000] for at in range(0, len(body), 100_000)])

    with row_of(3) as row:
        for each in row.containers:
            each.invoke = pieces
        with row.served.client() as client:
            head, _, rest = chunked(LARGE, [1, 70_000, 2_000_000]).partition(b"\r\n")
            answer = client.ask(head.replace(b"/", b"/invocations", 1) + b"\r\n" + rest)
        assert answer.body == LARGE
        assert answer.headers["transfer-encoding"] == "chunked"


def test_the_last_container_streams() -> None:
    gate = threading.Event()

    def slowly(_: Received) -> Reply:
        def pieces() -> Iterator[bytes]:
            yield b"first"
            assert gate.wait(60)
            yield b"second"

        return Reply(200, pieces())

    with row_of(2) as row, row.served.client() as client:
        row.containers[1].invoke = slowly
        client.send(b"POST /invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
        received = b""
        while b"first" not in received:
            received += client.socket.recv(1000)
        gate.set()
        while b"second" not in received:
            received += client.socket.recv(1000)


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("status", [400, 503])
def test_an_error_names_its_container_and_ends_the_passage(failing: int, status: int) -> None:
    with row_of(3) as row:
        row.containers[failing].invoke = lambda _: Reply(status, b"no such row", {"Content-Type": "text/x"})
        answer = row.ask(b"x")
        assert (answer.status, answer.body) == (status, b"no such row")
        assert answer.headers["x-halimede-container"] == f"c{failing + 1}"
        assert "x-halimede-failure" not in answer.headers
        assert answer.headers["content-type"] == "text/x"
        assert [len(each.seen) for each in row.containers] == [1] * (failing + 1) + [0] * (2 - failing)


def test_a_long_error_is_shortened() -> None:
    with row_of(2) as row:
        row.containers[0].invoke = lambda _: Reply(500, [b"e" * 100_000])
        assert row.ask(b"x").body == b"e" * 16_384
        row.containers[0].invoke = lambda _: Reply(500, b"e" * 100_000)
        assert row.ask(b"x").body == b"e" * 16_384


@pytest.mark.parametrize("failing", [0, 1])
def test_a_container_that_breaks_off_is_named(failing: int) -> None:
    with row_of(2) as row:
        row.containers[failing].invoke = lambda _: Reply(200, b"", breaks=True)
        answer = row.ask(b"x")
        assert answer.status == 502
        assert answer.headers["x-halimede-container"] == f"c{failing + 1}"
        assert answer.headers["x-halimede-failure"] == (
            "the connection was closed before the response was complete"
        )


def test_a_container_that_breaks_off_in_the_middle_takes_no_half_body_further() -> None:
    with row_of(2) as row:
        row.containers[0].invoke = lambda _: Reply(200, [b"half"], breaks=True)
        answer = row.ask(b"x")
        assert (answer.status, answer.headers["x-halimede-container"]) == (502, "c1")
        assert not [got for got in row.containers[1].seen if got.method == "POST"]


def test_a_container_that_accepts_nothing_is_named() -> None:
    with row_of(2) as row:
        row.containers[1].close()
        answer = row.ask(b"x")
        assert (answer.status, answer.headers["x-halimede-container"]) == (502, "c2")
        assert "Connection refused" in answer.headers["x-halimede-failure"]


def test_a_connection_that_fails_in_an_unforeseen_way_is_told_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect(_: UpstreamPool) -> None:
        raise ValueError("unforeseen")

    monkeypatch.setattr(UpstreamPool, "connect", connect)
    with row_of(1) as row:
        answer = row.ask(b"body")
        assert answer.status == 502
        assert "ValueError('unforeseen')" in answer.headers["x-halimede-failure"]
    assert "connecting to a container failed" in caplog.messages


def test_a_response_that_breaks_when_it_has_begun_breaks_the_clients() -> None:
    with row_of(2) as row, row.served.client() as client:
        row.containers[1].invoke = lambda _: Reply(200, [b"some"], breaks=True)
        client.send(b"POST /invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
        received = client.read_to_end()
        assert received.endswith(b"some\r\n")  # and no last chunk


def test_a_client_that_goes_is_told_to_all_containers() -> None:
    begun, broken = threading.Event(), threading.Event()

    def endless(_: Received) -> Reply:
        def pieces() -> Iterator[bytes]:
            begun.set()
            try:
                while True:
                    yield b"x" * 1000
                    time.sleep(0.01)  # sleeps: what the model does for each piece
            finally:
                broken.set()

        return Reply(200, pieces())

    with row_of(2) as row:
        row.containers[0].invoke = endless
        client = row.served.client()
        client.send(b"POST /invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
        assert begun.wait(60)
        client.vanish()
        assert broken.wait(20)
        wait_until(lambda: not row.passages)


def test_a_container_that_reads_slowly_slows_the_one_before_it_down() -> None:
    sent = []
    gate = threading.Event()

    def floods(_: Received) -> Reply:
        def pieces() -> Iterator[bytes]:
            for _ in range(1000):
                sent.append(100_000)
                yield b"x" * 100_000

        return Reply(200, pieces())

    with row_of(2) as row, lazy(gate) as port:
        row.containers[0].invoke = floods
        row.played[1].pool = UpstreamPool("127.0.0.1", port)
        answers = []
        asking = threading.Thread(target=lambda: answers.append(row.ask(b"x")))
        asking.start()
        wait_until(lambda: len(sent) > 1)
        seen = -1
        while len(sent) != seen:
            seen = len(sent)
            let_pass(0.3, "whether something still moves can only be seen later")
        # Linux keeps up to 10 MB of each of the two connections (tcp(7), tcp_rmem and tcp_wmem)
        assert sum(sent) < 50_000_000
        gate.set()
        asking.join(60)
        [answer] = answers
        assert answer.body == b"read"
        assert sum(sent) == 100_000_000


@contextmanager
def lazy(gate: threading.Event) -> Iterator[int]:
    """A server that reads no body before it may, and answers when it has read all: its port."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            assert gate.wait(60)
            read = b""
            while not read.endswith(b"\r\n0\r\n\r\n"):
                read = read[-10:] + connection.recv(1_000_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nread")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        thread.join(60)


@contextmanager
def hasty() -> Iterator[int]:
    """A server that answers at once, and then reads what else comes: its port."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: 6\r\n\r\nenough")
            with suppress(OSError):
                while connection.recv(1_000_000):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        thread.join(60)


def test_an_early_answer_ends_what_the_container_before_still_sends() -> None:
    ended = threading.Event()

    def endless(_: Received) -> Reply:
        def pieces() -> Iterator[bytes]:
            try:
                while True:
                    yield b"x" * 100_000
            finally:
                ended.set()

        return Reply(200, pieces())

    with row_of(2) as row:
        row.containers[0].invoke = endless
        with hasty() as port:
            row.played[1].pool = UpstreamPool("127.0.0.1", port)
            answer = row.ask(b"x")
            assert (answer.status, answer.body) == (413, b"enough")
            assert answer.headers["x-halimede-container"] == "c2"
        assert ended.wait(60)


def test_requests_and_times_are_counted_by_container() -> None:
    with row_of(2) as row:
        first, second = (each.counts for each in row.played)
        for _ in range(3):
            row.ask(b"x")
        row.containers[1].invoke = lambda _: Reply(404, b"")
        row.ask(b"x")
        row.containers[0].invoke = lambda _: Reply(200, b"", breaks=True)
        row.ask(b"x")
        assert (first.invocations, second.invocations) == (5, 5)
        assert (first.ended, second.ended) == (5, 4)  # the last request of the second was given up
        assert (first.client_errors, first.server_errors) == (0, 1)
        assert (second.client_errors, second.server_errors) == (1, 0)
        assert (len(first.latencies_ns), len(second.latencies_ns)) == (4, 4)
        assert all(0 < each < 60e9 for each in first.latencies_ns)


def test_connections_are_kept() -> None:
    with row_of(2) as row:
        for number in range(20):
            assert row.ask(b"%d" % number).body == b"%d" % number
        assert [each.open_connections for each in row.containers] == [1, 1]
