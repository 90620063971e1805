"""Answers that are made in steps."""

import asyncio
import gc
import weakref
from collections.abc import Generator
from typing import Any, cast

import pytest

from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.frontends.http.answers import AnswerInSteps
from halimede.frontends.http.transport.exchange import Exchange


class Result:
    """What the steps give."""


class FakeExchange:
    """An exchange of which only its end matters."""

    def __init__(self) -> None:
        self.closed = False
        self.failed: list[Exception] = []

    def fail(self, error: Exception) -> None:
        """Note what went wrong."""
        self.failed.append(error)


def take(
    exchange: FakeExchange, steps: Generator[None, None, Any], turns: int
) -> tuple[list[Any], list[HalimedeError]]:
    """Take the steps in so many turns of a loop: the results and the errors."""
    results: list[Any] = []
    errors: list[HalimedeError] = []

    async def run() -> None:
        AnswerInSteps(
            cast(Exchange, exchange), steps, results.append, lambda _, error: errors.append(error)
        ).take()
        for _ in range(turns):
            await asyncio.sleep(0)

    asyncio.run(run())
    return results, errors


def test_others_have_a_turn_after_each_step() -> None:
    order: list[str] = []

    def steps() -> Generator[None, None, None]:
        for _ in range(3):
            order.append("step")
            yield

    async def run() -> None:
        AnswerInSteps(cast(Exchange, FakeExchange()), steps(), lambda _: order.append("answer")).take()
        while "answer" not in order:
            order.append("other")
            await asyncio.sleep(0)

    asyncio.run(run())
    assert order == ["step", "other", "step", "other", "step", "other", "answer"]


def test_no_step_is_taken_for_a_client_that_has_left() -> None:
    def steps() -> Generator[None, None, str]:
        try:
            yield
            exchange.closed = True
            yield
            raise AssertionError("a step was taken")
        finally:
            ended.append(True)

    ended: list[bool] = []
    exchange = FakeExchange()
    assert take(exchange, steps(), 5) == ([], [])
    assert (ended, exchange.failed) == ([True], [])


@pytest.mark.parametrize("error", [InvalidArgumentError("no such form"), ValueError("unforeseen")])
def test_what_a_step_raises_is_told(error: Exception) -> None:
    def steps() -> Generator[None, None, str]:
        yield
        raise error

    exchange = FakeExchange()
    _, errors = take(exchange, steps(), 3)
    assert [*errors, *exchange.failed] == [error]
    assert bool(errors) is isinstance(error, HalimedeError)


def test_nothing_is_held_once_it_is_answered() -> None:
    def steps() -> Generator[None, None, Result]:
        made = Result()
        held.append(weakref.ref(made))
        yield
        return made

    held: list[weakref.ref[Result]] = []
    gc.collect()
    gc.disable()
    try:
        results, _ = take(FakeExchange(), steps(), 3)
        assert held[0]() is results.pop()
        assert held[0]() is None
    finally:
        gc.enable()
