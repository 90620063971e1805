import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.net.receiving import (
    SMALL_BYTES,
    BodyTooLargeError,
    Claim,
    NoRoomError,
    ReceiveBudget,
    ReceiveError,
    Reception,
    StalledError,
)

MIB = 1 << 20
LIMIT = 64 * MIB
LARGE = 56 * MIB  # what is left for large bodies


class Body:
    """A body that is being received, and what it is told."""

    def __init__(self, budget: ReceiveBudget, length: int) -> None:
        self.waits = False
        self.error: ReceiveError | None = None
        self.told = asyncio.Event()
        self.may_send = True
        self.reception: Reception = budget.open(self, length)

    def add(self, size: int) -> None:
        self.reception.add(size)

    def hold_back(self) -> None:
        self.waits = True

    def go_on(self) -> None:
        self.waits = False
        self.told.set()

    def refuse_body(self, error: ReceiveError) -> None:
        assert self.reception.closed
        self.error = error
        self.told.set()


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(limited())


def test_bodies_count_as_far_as_they_have_arrived_and_until_they_are_complete() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        body = Body(budget, 20 * MIB)
        assert budget.held == 0
        body.add(5 * MIB)
        body.add(MIB)
        assert budget.held == 6 * MIB
        body.reception.close()
        body.reception.close()
        body.add(MIB)
        assert budget.held == 0

    run(test())


def test_small_bodies_count_whole() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        body = Body(budget, 1000)
        body.add(10)
        assert budget.held == 1000
        body.reception.close()
        assert budget.held == 0

    run(test())


def test_bodies_of_unknown_length_become_large_as_they_grow() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        body = Body(budget, -1)
        body.add(SMALL_BYTES)
        was_large = body.reception.large
        body.add(1)
        assert [was_large, body.reception.large] == [False, True]
        assert budget.held == SMALL_BYTES + 1
        body.reception.close()
        assert budget.held == 0

    run(test())


def test_body_that_could_never_fit_is_refused_at_once() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        Body(budget, LARGE)
        with pytest.raises(BodyTooLargeError, match=f"{LARGE + 1} bytes is larger .*--receive-memory-budget"):
            Body(budget, LARGE + 1)

    run(test())


def test_body_of_unknown_length_that_grows_beyond_all_there_is_is_refused() -> None:
    async def test() -> None:
        body = Body(ReceiveBudget(LIMIT), -1)
        body.add(LARGE + 1)
        await body.told.wait()
        assert isinstance(body.error, BodyTooLargeError)

    run(test())


def test_all_but_the_oldest_wait_when_memory_runs_out_and_go_on_when_there_is_some() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        bodies = [Body(budget, 20 * MIB) for _ in range(6)]
        for body in bodies[:5]:
            body.add(8 * MIB)
        assert not any(body.waits for body in bodies)
        bodies[0].add(4 * MIB)
        assert [body.waits for body in bodies] == [False] * 4 + [True] * 2
        late = Body(budget, MIB)
        assert late.waits
        bodies[0].reception.close()
        await bodies[4].told.wait()
        assert [body.waits for body in bodies[1:]] == [False] * 4 + [True]
        for body in bodies[1:3]:
            body.reception.close()
        await late.told.wait()
        assert not any(body.waits for body in (*bodies[3:], late))

    run(test())


def test_small_bodies_never_wait() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        for _ in range(5):
            Body(budget, 20 * MIB).add(10 * MIB)
        assert Body(budget, MIB).waits
        assert not Body(budget, SMALL_BYTES).waits
        assert not Body(budget, -1).waits

    run(test())


def test_when_nothing_is_left_the_newest_of_the_larger_ones_is_refused() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        oldest, middle, newer, newest = (Body(budget, 40 * MIB) for _ in range(4))
        newest.add(MIB)
        newer.add(20 * MIB)
        middle.add(19 * MIB)
        oldest.add(17 * MIB)
        await newer.told.wait()
        assert isinstance(newer.error, NoRoomError)
        assert f"all of the {LIMIT} bytes" in str(newer.error)
        assert [body.error for body in (oldest, middle, newest)] == [None] * 3
        assert budget.held == 37 * MIB

    run(test())


def test_bodies_that_together_fill_the_memory_do_not_wait_for_each_other() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        bodies = [Body(budget, 50 * MIB) for _ in range(10)]
        complete = refused = 0
        while bodies:
            for body in bodies:
                if not body.waits and not body.error and body.reception.held < 50 * MIB:
                    body.add(MIB)
                assert budget.held <= LARGE + 10 * MIB
            await asyncio.sleep(0)
            assert budget.held <= LARGE
            for body in [body for body in bodies if body.error or body.reception.held == 50 * MIB]:
                complete += body.error is None
                refused += body.error is not None
                body.reception.close()
                bodies.remove(body)
        assert complete >= 1
        assert complete + refused == 10
        assert budget.held == 0

    run(test())


def test_when_small_bodies_need_too_much_the_one_that_came_first_is_refused() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        bodies = [Body(budget, SMALL_BYTES) for _ in range(33)]
        await bodies[0].told.wait()
        assert isinstance(bodies[0].error, NoRoomError)
        assert not any(body.error for body in bodies[1:])
        assert budget.held == 8 * MIB

    run(test())


def test_body_that_is_slow_when_it_is_its_turn_is_refused() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT, turn_s=0.01, turn_rate=1 << 40)
        bodies = [Body(budget, 20 * MIB) for _ in range(5)]
        for body in bodies:
            body.add(10 * MIB)
        assert [body.waits for body in bodies] == [False] * 4 + [True]
        for body in bodies[:4]:
            await body.told.wait()
            assert isinstance(body.error, NoRoomError)
        await bodies[4].told.wait()
        assert not bodies[4].waits
        assert bodies[4].error is None  # by now there is memory, and it may be slow

    run(test())


def test_body_that_keeps_up_goes_on_and_the_others_do_not_wait_for_ever() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT, turn_s=0.01, turn_rate=0, wait_s=0.05)
        bodies = [Body(budget, 20 * MIB) for _ in range(5)]
        for body in bodies:
            body.add(9 * MIB)
        await bodies[4].told.wait()
        assert isinstance(bodies[4].error, NoRoomError)
        assert not any(body.error for body in bodies[:4])

    run(test())


def test_what_is_kept_leaves_less_for_large_bodies() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        budget.keep(LARGE)
        assert budget.kept == LARGE
        small, large = Body(budget, 1000), Body(budget, 20 * MIB)
        small.add(1000)
        large.add(MIB)
        await large.told.wait()
        assert isinstance(large.error, NoRoomError)
        assert "unsent answers" in str(large.error)
        assert small.error is None
        budget.release(LARGE)
        other = Body(budget, 20 * MIB)
        await other.told.wait()
        other.add(20 * MIB)
        assert (other.waits, other.error, budget.kept) == (False, None, 0)

    run(test())


def test_bodies_wait_while_much_is_kept_and_go_on_when_it_is_released() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        bodies = [Body(budget, 5 * MIB) for _ in range(9)]
        budget.keep(LARGE // 4 * 3 + 1)
        assert all(body.waits for body in bodies)
        budget.release(LARGE // 4 * 3 + 1)
        await bodies[-1].told.wait()
        assert not any(body.waits for body in bodies)

    run(test())


def test_a_large_body_that_stands_still_is_refused_also_while_there_is_memory() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT, stall_s=0.05, least_rate=MIB)
        stalled, unread = Body(budget, 20 * MIB), Body(budget, 20 * MIB)
        unread.may_send = False
        stalled.add(100)
        await stalled.told.wait()
        assert isinstance(stalled.error, StalledError)
        assert str(stalled.error) == f"the body is slower than {MIB} bytes a second"
        assert unread.error is None
        unread.reception.close()

    run(test())


def test_a_large_body_that_keeps_up_is_not_refused() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT, stall_s=0.05, least_rate=1)
        steady, stalled = Body(budget, 20 * MIB), Body(budget, 20 * MIB)
        while not stalled.told.is_set():
            steady.add(1000)
            await asyncio.wait([asyncio.ensure_future(stalled.told.wait())], timeout=0.01)
        assert isinstance(stalled.error, StalledError)
        assert steady.error is None
        steady.reception.close()

    run(test())


class SlowReader:
    """A connection whose client does not read."""

    to_take = LARGE // 2
    waits = True

    def give_up(self) -> None:
        raise AssertionError


def test_unsent_answers_leave_the_oldest_bodies_to_go_on() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        bodies = [Body(budget, 5 * MIB) for _ in range(9)]
        budget.unsent.update(SlowReader())
        budget.keep(LARGE // 4 + 1)
        assert [body.waits for body in bodies] == [False] * 4 + [True] * 5

    run(test())


class Asker:
    """Asks for memory, and what it is told."""

    def __init__(self, budget: ReceiveBudget, size: int) -> None:
        self.has = False
        self.error: ReceiveError | None = None
        self.told = asyncio.Event()
        self.claim: Claim = budget.claim(size, self._answer)

    def _answer(self, error: ReceiveError | None) -> None:
        self.has = error is None
        self.error = error
        self.told.set()


async def turn() -> None:
    await asyncio.sleep(0)  # sleeps: a turn of the loop, in which memory is handed on


def test_claims_have_their_memory_in_order() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        first, second, third, fourth = (Asker(budget, size * MIB) for size in (30, 20, 10, 1))
        assert [each.has for each in (first, second, third, fourth)] == [True, True, False, False]
        assert budget.kept == 50 * MIB
        second.claim.give_back()
        second.claim.give_back()  # a second time, which changes nothing
        await turn()
        assert third.has
        assert fourth.has
        for each in (first, third, fourth):
            each.claim.give_back()
        assert budget.kept == 0

    run(test())


def test_the_oldest_claim_goes_on_whatever_else_counts() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        budget.keep(LIMIT)
        body = Body(budget, 10 * MIB)
        first, second = Asker(budget, 20 * MIB), Asker(budget, 20 * MIB)
        assert first.has
        assert not second.has
        assert not body.reception.closed
        first.claim.give_back()
        await turn()
        assert second.has

    run(test())


def test_a_claim_that_could_never_fit_is_refused_at_once_and_one_that_waits_too_long_later() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT, wait_s=0.01)
        huge = Asker(budget, LARGE + 1)
        assert isinstance(huge.error, BodyTooLargeError)
        assert str(huge.error) == (
            f"what the request is decoded to, {LARGE + 1} bytes, is larger than the {LARGE} bytes that large "
            f"requests may take together; --receive-memory-budget sets how much they may"
        )
        first, second, third = Asker(budget, LARGE), Asker(budget, LARGE), Asker(budget, 1)
        await second.told.wait()
        await third.told.wait()
        no_room = (
            f"unfinished request bodies, decoded requests and unsent answers take all of the {LIMIT} bytes that they "
            f"may (--receive-memory-budget); try again later"
        )
        assert str(second.error) == str(third.error) == no_room
        first.claim.give_back()
        assert budget.kept == 0

    run(test())


def test_a_claim_waits_for_bodies_and_has_their_memory_when_they_are_complete() -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        body = Body(budget, 30 * MIB)
        body.add(20 * MIB)
        first, second = Asker(budget, 20 * MIB), Asker(budget, 20 * MIB)
        assert first.has
        assert not second.has
        body.reception.close()
        await turn()
        assert second.has

    run(test())


@given(
    st.lists(
        st.tuples(st.sampled_from(["claim", "give back", "body", "complete", "keep"]), st.integers(0, 60))
    )
)
def test_whatever_happens_nothing_counts_in_the_end_and_no_claim_waits_for_ever(
    steps: list[tuple[str, int]],
) -> None:
    async def test() -> None:
        budget = ReceiveBudget(LIMIT)
        askers: list[Asker] = []
        bodies: list[Body] = []
        kept: list[int] = []
        for step, number in steps:
            match step:
                case "claim":
                    askers.append(Asker(budget, number * MIB))
                case "give back" if askers:
                    askers.pop(number % len(askers)).claim.give_back()
                case "body":
                    bodies.append(Body(budget, -1))
                    bodies[-1].add(number * MIB)
                case "complete" if bodies:
                    bodies.pop(number % len(bodies)).reception.close()
                case "keep":
                    kept.append(number)
                    budget.keep(number)
            await turn()
            granted = [each for each in askers if each.has]
            assert granted or not any(each.error is None for each in askers), "the oldest goes on"
            sizes = [each.claim.size for each in granted]
            assert sum(sizes[1:]) <= LARGE
            if number % 7 == 0 and granted:
                askers.remove(granted[0])
                granted[0].claim.give_back()
                await turn()
        for body in bodies:
            body.reception.close()
        for asker in askers:
            asker.claim.give_back()
        budget.release(sum(kept))
        await turn()
        assert (budget.kept, budget.held) == (0, 0)

    run(test())
