"""What is kept for sequences counts as memory of its model, and is kept to the budget."""

from pathlib import Path

import numpy as np
import pytest

from halimede.backends.states import SequenceStates
from halimede.core.errors import HalimedeError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from tests.backends.sequences import Step
from tests.backends.test_states import signature_of
from tests.engine.lifecycle.fakes import World, make_world
from tests.engine.lifecycle.ondemand import ON_DEMAND, add_all, loaded, use
from tests.support.waiting import wait_until_async

ROW = 400
STATE = """
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    sequence_batching { state { input_name: "IN" output_name: "OUT" data_type: TYPE_INT8 dims: [ 400 ] } }
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


def states_of(world: World, name: str) -> SequenceStates:
    """What the only instance of the model keeps: 400 bytes for each sequence."""
    states = SequenceStates(signature_of(STATE), {"IN": np.zeros(ROW, np.int8)})
    world.states[name] = (states,)
    return states


def keep(states: SequenceStates, *keys: int) -> list[HalimedeError]:
    """What went wrong with the first requests of the sequences."""
    requests = [Step(key, {}, start=True).request() for key in keys]
    computed = {"OUT": np.zeros((len(keys), ROW), np.int8)}
    return list(states.keep(requests, states.take(computed, len(keys))).values())


def test_states_count_as_memory_of_their_model_until_the_sequence_ends(world: World) -> None:
    add_all(world, "a", 100)
    states = states_of(world, "a")

    async def test(lifecycle: Lifecycle) -> None:
        ledger = lifecycle.memory.ledger
        assert ledger.total == 100
        assert keep(states, 1, 2) == []
        assert ledger.total == 100 + 2 * ROW
        assert not ledger.fits(200)
        states.end(1)
        states.end(2)
        assert ledger.total == 100

    async def load_first(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a")
        await test(lifecycle)

    world.run(load_first, ON_DEMAND, model_memory_budget=1000)


def test_states_beyond_the_budget_are_refused_where_nobody_may_be_evicted(world: World) -> None:
    add_all(world, "ab", 100)
    states = states_of(world, "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("a", {})
        await lifecycle.load("b", {})
        (error,) = keep(states, 1, 2, 3)
        assert "the state of sequence 3 takes 400 bytes more" in error.message
        states.end(1)
        states.end(2)
        assert keep(states, 3) == []

    world.run(test, ControlMode.EXPLICIT, model_memory_budget=1000)


def test_models_that_rest_make_room_for_states(world: World) -> None:
    add_all(world, "abc", 200)
    states = states_of(world, "c")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a", "b", "c")
        assert keep(states, 1) == []
        assert loaded(lifecycle) == ["a", "b", "c"]
        assert keep(states, 2) == []
        await wait_until_async(lambda: loaded(lifecycle) == ["c"])
        (error,) = keep(states, 3)
        assert "the state of sequence 3 takes 400 bytes more" in error.message

    world.run(test, ON_DEMAND, model_memory_budget=1000)
