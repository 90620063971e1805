"""The memory of answers that clients do not read."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from halimede.net.receiving import ReceiveBudget
from halimede.net.unsent import UnsentAnswers
from tests.support.waiting import let_pass_async, wait_until_async

MIB = 1 << 20
LIMIT = 32 * MIB


class Connection:
    """A connection, of which the test says how much its client has not taken."""

    def __init__(self, answers: UnsentAnswers, size: int, *, waits: bool = True) -> None:
        self.to_take = size
        self.waits = waits
        self.closed = False
        self._answers = answers
        answers.update(self)

    def holds(self, size: int) -> None:
        self.to_take = size
        self._answers.update(self)

    def give_up(self) -> None:
        self.closed = True
        self._answers.forget(self)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(limited())


def test_answers_count_until_they_are_taken_and_leave_less_for_bodies() -> None:
    async def test() -> None:
        budget = ReceiveBudget(2 * LIMIT)
        answers = budget.unsent
        assert answers.limit == LIMIT
        first, second = Connection(answers, 3 * MIB), Connection(answers, 5 * MIB)
        assert answers.held == budget.kept == 8 * MIB
        first.holds(MIB)
        assert answers.held == budget.kept == 6 * MIB
        first.holds(0)
        answers.forget(second)
        answers.forget(second)
        assert answers.held == budget.kept == 0

    run(test())


def test_an_answer_fits_while_there_is_room_for_it() -> None:
    async def test() -> None:
        answers = ReceiveBudget(2 * LIMIT).unsent
        other = Connection(answers, 20 * MIB)
        assert answers.fits(12 * MIB)
        assert not answers.fits(12 * MIB + 1)
        other.holds(0)
        assert answers.fits(12 * MIB + 1)

    run(test())


def test_what_was_taken_meanwhile_is_noticed_before_an_answer_is_refused() -> None:
    async def test() -> None:
        answers = ReceiveBudget(2 * LIMIT).unsent
        other = Connection(answers, 30 * MIB)
        other.to_take = MIB
        assert answers.fits(20 * MIB)
        assert answers.held == MIB

    run(test())


def test_an_answer_larger_than_the_memory_fits_while_little_else_waits() -> None:
    async def test() -> None:
        answers = ReceiveBudget(2 * LIMIT).unsent
        other = Connection(answers, 8 * MIB)
        assert answers.fits(100 * MIB)
        other.holds(8 * MIB + 1)
        assert not answers.fits(100 * MIB)

    run(test())


def test_clients_that_take_nothing_are_closed_while_memory_is_short() -> None:
    async def test() -> None:
        answers = ReceiveBudget(2 * LIMIT, turn_s=0.05).unsent
        silent = [Connection(answers, 13 * MIB), Connection(answers, 13 * MIB)]
        await wait_until_async(lambda: all(each.closed for each in silent), "the silent clients to be closed")
        assert answers.held == 0

    run(test())


def test_clients_that_read_are_not_closed_though_memory_is_short() -> None:
    async def test() -> None:
        answers = ReceiveBudget(2 * LIMIT, turn_s=0.05, turn_rate=1).unsent
        silent, reading = Connection(answers, 13 * MIB), Connection(answers, 20 * MIB)
        reading.to_take -= MIB
        await wait_until_async(lambda: silent.closed, "the silent client to be closed")
        assert not reading.closed

    run(test())


@pytest.mark.parametrize(("size", "waits"), [(24 * MIB, True), (30 * MIB, False)])
def test_no_client_is_closed_while_memory_suffices_or_nothing_waits_for_it(size: int, waits: bool) -> None:
    async def test() -> None:
        answers = ReceiveBudget(2 * LIMIT, turn_s=0.01).unsent
        other = Connection(answers, size, waits=waits)
        await let_pass_async(0.1, "several turns pass")
        assert not other.closed
        assert answers.held == size

    run(test())


def test_without_a_limit_everything_fits() -> None:
    async def test() -> None:
        answers = ReceiveBudget().unsent
        Connection(answers, 1 << 50)
        assert answers.fits(1 << 50)

    run(test())
