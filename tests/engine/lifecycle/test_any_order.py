"""Loads and unloads in any order and at the same time: the answer means that it is done, and the end is that of one
of the orders in which the calls could have come one after the other."""

import asyncio
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from tempfile import mkdtemp
from typing import cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from halimede.core.errors import HalimedeError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from tests.engine.lifecycle.fakes import FakeEnsemble, FakeModel, World, gone, make_world
from tests.support.waiting import wait_until_async

MODELS = ("a", "b")
ENSEMBLES = {"e": ("a", "b"), "f": ("b", "e")}
NAMES = (*MODELS, *ENSEMBLES)

LOAD, RELOAD, UNLOAD, UNLOAD_ALL, BEGIN, END = ["load", "reload", "unload", "unload_all", "begin", "end"]
Call = tuple[str, str]
calls = st.tuples(st.sampled_from((LOAD, RELOAD, UNLOAD, UNLOAD_ALL)), st.sampled_from(NAMES))
requests = st.tuples(st.sampled_from((BEGIN, END)), st.sampled_from(NAMES))

NEXT_CALL, LOOP_TURNS = "next call", "turns of the loop"

PATIENCE_S = 60
"""Far more than an answer takes; one that never comes fails the test."""


def new_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = make_world(Path(mkdtemp(dir=tmp_path)), monkeypatch)
    world.add_steps(*MODELS)
    for name, steps in ENSEMBLES.items():
        world.add_ensemble(name, *steps)
    return world


def serving(lifecycle: Lifecycle) -> dict[str, FakeModel]:
    """What answers requests."""
    return {model.identifier: cast(FakeModel, model) for model in lifecycle.loaded_models()}


def assert_ensembles_are_whole(lifecycle: Lifecycle) -> None:
    """Every ensemble that serves sends its requests to the versions of its models that serve."""
    models = serving(lifecycle)
    for name in ENSEMBLES.keys() & models.keys():
        bound = cast(FakeEnsemble, models[name])
        assert [bound.find(step, -1) for step in ENSEMBLES[name]] == [
            models.get(step) for step in ENSEMBLES[name]
        ]


async def call(lifecycle: Lifecycle, world: World, what: str, name: str) -> bool:
    """Whether the call succeeded."""
    if what == RELOAD:
        directory = world.repository / name / "1"
        (directory / f"file{len(list(directory.iterdir()))}").touch()
    try:
        if what in (LOAD, RELOAD):
            await asyncio.wait_for(lifecycle.load(name, {}), PATIENCE_S)
        else:
            await asyncio.wait_for(lifecycle.unload(name, what == UNLOAD_ALL), PATIENCE_S)
    except HalimedeError:
        return False
    finally:
        assert_ensembles_are_whole(lifecycle)
    return True


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(operations=st.lists(calls | requests, max_size=15))
@example(operations=[(LOAD, "e"), (BEGIN, "e"), (UNLOAD, "a"), (END, "e"), (UNLOAD, "b")])
@example(operations=[(LOAD, "a"), (BEGIN, "a"), (RELOAD, "a"), (UNLOAD, "a")])
def test_what_a_call_took_away_is_closed_when_it_answers_unless_requests_need_it(
    operations: list[Call], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(tmp_path, monkeypatch)
    under_way: list[FakeModel] = []

    async def test(lifecycle: Lifecycle) -> None:
        for what, name in operations:
            models = serving(lifecycle)
            if what == BEGIN and name in models:
                models[name].begin()
                under_way.append(models[name])
            elif what == END and under_way:
                under_way.pop().end()
                await gone_unless_used(lifecycle, world, under_way)
            elif what not in (BEGIN, END):
                await call(lifecycle, world, what, name)
                left_open = {id(version) for version in world.open} - {
                    id(each.loaded)
                    for each in serving(lifecycle).values()
                    if not isinstance(each, FakeEnsemble)
                }
                assert left_open <= used(under_way)
        for model in under_way:
            model.end()
        await gone(lifecycle)

    world.run(test)


def used(under_way: Sequence[FakeModel]) -> set[int]:
    """The ids of the versions that requests in flight are answered by, or may yet be."""
    found = set()
    for model in under_way:
        if isinstance(model, FakeEnsemble):
            steps = [cast(FakeModel, model.find(step, -1)) for step in ENSEMBLES[model.identifier]]
            found |= used(steps)
        else:
            found.add(id(model.loaded))
    return found


async def gone_unless_used(lifecycle: Lifecycle, world: World, under_way: Sequence[FakeModel]) -> None:
    """Return when what no request needs any more is closed."""
    served = {id(each.loaded) for each in serving(lifecycle).values() if not isinstance(each, FakeEnsemble)}
    await wait_until_async(lambda: {id(version) for version in world.open} <= served | used(under_way))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given(
    before=st.lists(calls, max_size=2),
    at_once=st.lists(calls, min_size=2, max_size=3, unique=True),
    steps=st.lists(st.sampled_from((NEXT_CALL, LOOP_TURNS, *MODELS)), max_size=16),
)
@example(before=[], at_once=[(LOAD, "e"), (UNLOAD, "a")], steps=["a", "b"])
@example(
    before=[(LOAD, "a")],
    at_once=[(LOAD, "e"), (UNLOAD, "a")],
    steps=[NEXT_CALL, *[LOOP_TURNS] * 8, NEXT_CALL, *[LOOP_TURNS] * 2, "b"],
)
@example(before=[(LOAD, "e")], at_once=[(UNLOAD, "a"), (LOAD, "e"), (UNLOAD, "b")], steps=["b", "a"])
@example(before=[(LOAD, "f")], at_once=[(UNLOAD_ALL, "f"), (LOAD, "e")], steps=[])
def test_calls_at_the_same_time_end_as_in_one_of_their_orders(
    before: list[Call],
    at_once: list[Call],
    steps: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    possible = []
    for order in permutations(at_once):
        possible.append(outcome([*before, *order], [], [], tmp_path, monkeypatch))
    concurrent = outcome(before, at_once, steps, tmp_path, monkeypatch)
    assert concurrent in possible


def outcome(
    one_by_one: list[Call],
    at_once: list[Call],
    steps: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[set[str], set[Call]]:
    """Which models serve after these calls, and which calls failed.

    Args:
        one_by_one: calls that come after each other.
        at_once: calls that come at the same time after them.
        steps: what comes after what: the next call, a moment for those that there are, or the end of the wait of
            a model's loads.
        tmp_path: a directory.
        monkeypatch: puts fakes in.
    """
    world = new_world(tmp_path, monkeypatch)
    served: set[str] = set()
    failed: set[Call] = set()

    async def note(lifecycle: Lifecycle, what: str, name: str) -> None:
        if not await call(lifecycle, world, what, name):
            failed.add((what, name))

    async def test(lifecycle: Lifecycle) -> None:
        for what, name in one_by_one:
            await note(lifecycle, what, name)
        gates = {name: world.block(name) for name in MODELS}
        waiting = list(at_once)
        tasks = []
        for step in (*steps, *MODELS, *[NEXT_CALL] * len(at_once)):
            if step in gates:
                gates.pop(step)()
            elif step == NEXT_CALL and waiting:
                tasks.append(asyncio.create_task(note(lifecycle, *waiting.pop(0))))
            else:
                await lifecycle.refresh()
        await asyncio.gather(*tasks)
        assert_ensembles_are_whole(lifecycle)
        served.update(serving(lifecycle))

    world.run(test)
    return served, failed
