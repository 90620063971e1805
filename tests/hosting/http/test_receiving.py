from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request
from halimede.net.receiving import ReceiveBudget
from tests.frontends.http.serving import Client, post
from tests.hosting.http.serving import LIMIT, Tasks, serve
from tests.support.waiting import wait_until

MIB = 1 << 20


async def count(request: Request) -> None:
    """Answers with the size of the body."""
    try:
        body = await request.read(LIMIT)
    except ApiError as error:
        request.respond(error.status, error.message.encode())
        return
    request.respond(200, str(len(body)).encode())


def begin(length: int) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % length


def fill(clients: list[Client], budget: ReceiveBudget) -> None:
    """Let each begin a body of 8 MiB, and send 5 of them."""
    for place, client in enumerate(clients):
        client.send(begin(8 * MIB) + b"x" * 5 * MIB)
        wait_until(lambda place=place: budget.held == (place + 1) * 5 * MIB)  # type: ignore[misc]  # bound now


def test_bodies_count_until_they_are_complete() -> None:
    budget = ReceiveBudget(64 * MIB)
    with serve(Tasks(count), budget=budget) as served, served.client() as client:
        fill([client], budget)
        client.send(b"x" * 3 * MIB)
        assert client.read().body == str(8 * MIB).encode()
        assert budget.held == 0
        client.send(begin(8 * MIB) + b"x" * MIB)
        wait_until(lambda: budget.held == MIB)
        client.vanish()
        wait_until(lambda: budget.held == 0)


def test_body_that_could_never_fit_is_refused() -> None:
    with serve(Tasks(count), budget=ReceiveBudget(8 * MIB)) as served, served.client() as client:
        client.send(begin(7 * MIB + 1))
        answer = client.read()
        assert answer.status == 413
        assert b"--receive-memory-budget" in answer.body


def test_large_body_waits_while_memory_is_short_and_small_ones_do_not() -> None:
    budget = ReceiveBudget(24 * MIB)
    with (
        serve(Tasks(count), budget=budget) as served,
        served.client() as one,
        served.client() as two,
        served.client() as three,
        served.client() as four,
        served.client() as late,
        served.client() as small,
    ):
        fill([one, two, three, four], budget)
        late.send(begin(MIB) + b"x" * MIB)
        for _ in range(20):
            assert small.ask(post(b"x" * 1000)).body == b"1000"
            small.send(begin(100_000) + b"x")
            assert small.ask(b"x" * 99_999).body == b"100000"
        assert budget.held == 20 * MIB
        one.vanish()
        two.vanish()
        assert late.read().body == str(MIB).encode()


def test_newest_body_is_refused_when_nothing_is_left() -> None:
    budget = ReceiveBudget(24 * MIB)
    with (
        serve(Tasks(count), budget=budget) as served,
        served.client() as one,
        served.client() as two,
        served.client() as three,
        served.client() as four,
    ):
        fill([one, two, three, four], budget)
        one.send(b"x" * 2 * MIB)
        answer = four.read()
        assert answer.status == 503
        assert b"try again later" in answer.body
        one.send(b"x" * MIB)
        assert one.read().body == str(8 * MIB).encode()
