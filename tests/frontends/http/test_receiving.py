import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from halimede.frontends.http.settings import HttpLimits
from halimede.frontends.http.transport.exchange import Exchange
from halimede.http1.head import JsonLength, json_length
from halimede.net.receiving import ReceiveBudget
from tests.frontends.http.serving import Client, Served, echo, post, serve
from tests.support.waiting import wait_until

MIB = 1 << 20
CALL_TOO_LARGE = "request JSON size of 1001 bytes exceeds the maximum allowed input size. It is 1000 bytes."
INFERENCE_TOO_LARGE = "Request JSON size of 1001 bytes exceeds the maximum allowed value of 1000 bytes."
BINARY = "Inference-Header-Content-Length: 10"


def count(exchange: Exchange) -> None:
    exchange.respond(200, (str(len(exchange.body)).encode(),))


def begin(length: int, *headers: str, path: str = "/echo") -> bytes:
    """The head of a request with a body of so many bytes."""
    head = [f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {length}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n"


def begin_chunked(*headers: str) -> bytes:
    head = ["POST /echo HTTP/1.1", "Host: test", "Transfer-Encoding: chunked", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n"


def chunk(size: int) -> bytes:
    return b"%x\r\n%b\r\n" % (size, b"x" * size)


def error(client: Client) -> tuple[int, str]:
    answer = client.read()
    assert answer.headers["connection"] == "close"
    return answer.status, json.loads(answer.body)["error"]


def test_unfinished_bodies_count_until_they_are_complete() -> None:
    budget = ReceiveBudget(64 * MIB)
    with serve(count, budget=budget) as served, served.client() as client:
        client.send(begin(8 * MIB, BINARY) + b"x" * MIB)
        wait_until(lambda: budget.held == MIB)
        client.send(b"x" * 7 * MIB)
        assert client.read().body == str(8 * MIB).encode()
        assert budget.held == 0
        client.send(begin_chunked(BINARY) + chunk(MIB) + chunk(MIB))
        wait_until(lambda: budget.held == 2 * MIB)
        client.send(chunk(70_000) + b"0\r\n\r\n")
        assert client.read().body == str(2 * MIB + 70_000).encode()
        assert budget.held == 0
        client.send(begin(1000) + b"x")
        wait_until(lambda: budget.held == 1000)
        client.vanish()
        wait_until(lambda: budget.held == 0)


@pytest.mark.parametrize("size", [1, 65_536, 65_537, 5 * MIB, 70 * MIB])
def test_chunked_bodies_of_any_size_arrive_unharmed(size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    with serve(echo) as served, served.client() as client:
        pieces = [body[start : start + 999_999] for start in range(0, size, 999_999)]
        wire = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        assert client.ask(begin_chunked(BINARY) + wire + b"0\r\n\r\n").body == b"POST /echo " + body


def test_body_that_could_never_fit_is_refused_before_it_is_sent() -> None:
    with serve(count, budget=ReceiveBudget(8 * MIB)) as served, served.client() as client:
        client.send(begin(7 * MIB + 1, BINARY, "Expect: 100-continue"))
        status, text = error(client)
        assert status == 413
        assert text.startswith(
            f"the body of {7 * MIB + 1} bytes is larger than the {7 * MIB} bytes that bodies may"
        )


def test_chunked_body_that_could_never_fit_is_refused() -> None:
    with serve(count, budget=ReceiveBudget(8 * MIB)) as served, served.client() as client:
        client.send(begin_chunked(BINARY) + b"%x\r\n" % (8 * MIB))
        assert error(client) == (413, f"the body is larger than the allowed {7 * MIB} bytes")


@contextmanager
def filled(served: Served, budget: ReceiveBudget, coding: str = "length") -> Iterator[list[Client]]:
    """Four clients of 5 MiB each, none of them ready: what they hold is almost all that there is."""
    with ExitStack() as stack:
        clients = [stack.enter_context(served.client()) for _ in range(4)]
        for place, client in enumerate(clients):
            begun = begin(8 * MIB, BINARY) if coding == "length" else begin_chunked(BINARY)
            client.send(begun + (b"x" * 5 * MIB if coding == "length" else chunk(5 * MIB)))
            wait_until(lambda place=place: budget.held == (place + 1) * 5 * MIB)  # type: ignore[misc]  # bound now
        yield clients
    wait_until(lambda: not served.connections)


@pytest.mark.parametrize("coding", ["length", "chunked"])
def test_large_body_waits_while_memory_is_short_and_small_ones_do_not(coding: str) -> None:
    budget = ReceiveBudget(24 * MIB)
    with (
        serve(count, budget=budget) as served,
        filled(served, budget, coding) as clients,
        served.client() as late,
        served.client() as small,
    ):
        late.send(begin(MIB, BINARY) + b"x" * MIB)
        for _ in range(100):
            assert small.ask(post(b"x" * 1000)).body == b"1000"
            small.send(begin(100_000) + b"x")
            assert small.ask(b"x" * 99_999).body == b"100000"
        assert budget.held < 20 * MIB + 300_000  # of the late one, what was read with its head
        clients[0].vanish()
        clients[1].vanish()
        assert late.read().body == str(MIB).encode()


def test_newest_of_the_larger_bodies_is_refused_when_nothing_is_left() -> None:
    budget = ReceiveBudget(24 * MIB)
    with serve(count, budget=budget) as served, filled(served, budget) as clients:
        clients[0].send(b"x" * 2 * MIB)
        status, text = error(clients[3])
        assert status == 503
        assert "(--receive-memory-budget); try again later" in text
        clients[0].send(b"x" * MIB)
        assert clients[0].read().body == str(8 * MIB).encode()
        for client in clients[1:3]:
            client.send(b"x" * 3 * MIB)
            assert client.read().body == str(8 * MIB).encode()
        assert budget.held == 0


def test_bodies_that_stand_still_while_memory_is_short_are_refused() -> None:
    budget = ReceiveBudget(24 * MIB, turn_s=1.0)  # long enough for a busy machine to fill it
    with serve(count, budget=budget) as served, filled(served, budget) as clients:
        with served.client() as late:
            late.send(begin(MIB, BINARY) + b"x" * MIB)
            assert late.read().body == str(MIB).encode()
        assert [error(client)[0] for client in clients[:2]] == [503, 503]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v2/models/m/infer", INFERENCE_TOO_LARGE),
        ("/v2/models/m/versions/1/infer", INFERENCE_TOO_LARGE),
        ("/invocations", INFERENCE_TOO_LARGE),
        ("/models/m/invoke", INFERENCE_TOO_LARGE),
        ("/v2/models/m/generate", CALL_TOO_LARGE),
        ("/v2/repository/models/m/load", CALL_TOO_LARGE),
        ("/v2/logging", CALL_TOO_LARGE),
    ],
)
def test_json_above_the_limit_is_refused_in_the_words_of_the_call(path: str, text: str) -> None:
    with serve(count, HttpLimits(json_bytes=1000)) as served, served.client() as client:
        client.send(begin(1001, "Expect: 100-continue", path=path))
        assert error(client) == (400, f"{text} Use --http-max-input-size to increase the limit.")


def test_json_above_the_limit_is_refused_before_it_is_sent() -> None:
    limits = HttpLimits(json_bytes=1000)
    with serve(count, limits) as served:
        with served.client() as client:
            client.send(begin_chunked() + b"3e9\r\n")
            assert error(client) == (413, "the body is larger than the allowed 1000 bytes")
        with served.client() as client:
            client.send(begin(2000, BINARY) + b"x")  # most of which is not JSON
            assert client.ask(b"x" * 1999).body == b"2000"


def test_json_is_what_the_front_end_says() -> None:
    def length(headers: dict[str, str]) -> str | None:
        return headers.get("x-json")

    lengths: list[JsonLength] = [json_length, length]  # type: ignore[list-item]  # a Mapping is all it needs
    for function, status in zip(lengths, (400, 200), strict=True):
        with serve(count, HttpLimits(json_bytes=1000), function) as served, served.client() as client:
            client.send(begin(2000, "X-Json: 10") + b"x")
            if status == 200:
                client.send(b"x" * 1999)
            assert client.read().status == status
