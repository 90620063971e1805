"""HTTP answers whose clients do not read them."""

import json
from collections.abc import Callable
from contextlib import ExitStack

from halimede.core.tensors import Buffer
from halimede.frontends.http.transport.exchange import Exchange
from halimede.net.receiving import ReceiveBudget
from tests.frontends.http.serving import Answer, post, serve
from tests.support.waiting import wait_until

MIB = 1 << 20
KERNEL_BYTES = 65_536
ANSWER = bytes(8 * MIB)


def large(exchange: Exchange) -> None:
    """Answers with as many bytes as the body says."""
    size = int(bytes(exchange.body))
    parts: tuple[Buffer, ...] = (memoryview(ANSWER)[:size],)
    exchange.respond(200, parts, "text/plain")


def ask(size: int) -> bytes:
    return post(str(size).encode())


def refusal(answer: Answer) -> str:
    assert answer.status == 503, answer.status
    assert answer.headers["retry-after"] == "5"
    text: str = json.loads(answer.body)["error"]
    return text


def test_answers_that_are_not_read_count_until_their_clients_go() -> None:
    budget = ReceiveBudget(64 * MIB)
    with serve(large, budget=budget, kernel_bytes=KERNEL_BYTES) as served, served.client() as client:
        client.send(ask(8 * MIB))
        wait_until(lambda: budget.unsent.held > 4 * MIB)
        assert budget.kept == budget.unsent.held <= 8 * MIB + 1000
        client.vanish()
        wait_until(lambda: budget.unsent.held == budget.kept == 0)


def test_answers_that_are_read_count_no_more() -> None:
    budget = ReceiveBudget(64 * MIB)
    with serve(large, budget=budget, kernel_bytes=KERNEL_BYTES) as served, served.client() as client:
        client.send(ask(8 * MIB))
        wait_until(lambda: budget.unsent.held > 4 * MIB)
        assert client.read().body == ANSWER
        wait_until(lambda: budget.unsent.held == 0)


def test_an_answer_that_does_not_fit_is_refused_and_the_connection_goes_on() -> None:
    budget = ReceiveBudget(24 * MIB)
    with ExitStack() as stack:
        served = stack.enter_context(serve(large, budget=budget, kernel_bytes=KERNEL_BYTES))
        silent, other = (stack.enter_context(served.client()) for _ in range(2))
        silent.send(ask(8 * MIB))
        wait_until(lambda: budget.unsent.held > 4 * MIB)
        assert "half of --receive-memory-budget" in refusal(other.ask(ask(8 * MIB)))
        assert other.ask(ask(200_000)).body == ANSWER[:200_000]
        assert silent.read().body == ANSWER
        assert other.ask(ask(8 * MIB)).body == ANSWER


def test_answers_that_wait_for_an_earlier_one_count_and_are_bounded() -> None:
    waiting: list[Exchange] = []

    def first_waits(exchange: Exchange) -> None:
        if waiting:
            large(exchange)
        else:
            waiting.append(exchange)

    budget = ReceiveBudget(24 * MIB)
    with serve(first_waits, budget=budget) as served, served.client() as client:
        client.send(ask(1) + 3 * ask(5 * MIB))
        wait_until(lambda: budget.unsent.held == 10 * MIB)
        served.loop.call(lambda: large(waiting[0]))
        assert client.read().body == ANSWER[:1]
        assert client.read().body == client.read().body == ANSWER[: 5 * MIB]
        assert "try again later" in refusal(client.read())
        wait_until(lambda: budget.unsent.held == 0)


def reserve_then(answer: Callable[[Exchange], None], budget: ReceiveBudget, made: list[bool]) -> Answer:
    """The answer to a client if 6 MiB are reserved for it first."""

    def handle(exchange: Exchange) -> None:
        made.append(exchange.reserve(6 * MIB))
        if made[-1]:
            assert budget.unsent.held >= 6 * MIB
            answer(exchange)

    with serve(handle, budget=budget) as served, served.client() as client:
        return client.ask(ask(8 * MIB))


def test_what_an_answer_needs_while_it_is_made_counts_until_it_is_written() -> None:
    budget, made = ReceiveBudget(64 * MIB), list[bool]()
    assert reserve_then(large, budget, made).body == ANSWER
    assert made == [True]
    wait_until(lambda: budget.unsent.held == 0)


def test_an_answer_that_there_is_no_memory_to_make_is_refused() -> None:
    budget, made = ReceiveBudget(24 * MIB), list[bool]()
    budget.unsent.held += 10 * MIB
    assert "try again later" in refusal(reserve_then(large, budget, made))
    assert made == [False]


def test_clients_that_read_nothing_are_closed_when_memory_is_short() -> None:
    budget = ReceiveBudget(16 * MIB, turn_s=0.1)
    with serve(large, budget=budget, kernel_bytes=KERNEL_BYTES) as served, served.client() as silent:
        silent.send(ask(8 * MIB))
        wait_until(lambda: budget.unsent.held > 6 * MIB)
        wait_until(lambda: not served.connections)
        assert budget.unsent.held == 0
