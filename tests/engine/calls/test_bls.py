import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from halimede.core.errors import (
    CancelledError,
    HalimedeError,
    InvalidArgumentError,
    NotFoundError,
    NotLoadedError,
)
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.calls.bls import ModelCalls
from halimede.workers.call_server import ModelCall
from halimede.workers.host import WorkerName
from halimede.workers.memory import PeerMemory
from tests.support.waiting import wait_until_async
from tests.workers.calling import ScriptedModel, fp32


class Asked:
    """A call, and what it was answered.

    Attributes:
        answers: (response, final), in order.
        request: what it became.
    """

    def __init__(self, model: str, *, decoupled: bool = False, blocks: bool = True, **fields: Any) -> None:
        values = {
            "id": "", "sequence_id": 0, "flags": 0, "timeout_us": 0, "parameters": "", "outputs": (), "inputs": (),
            "preferred_memory": None, **fields,
        }  # fmt: skip
        encoded = (model, values.pop("version", -1), *values.values())
        self.answers: list[tuple[InferResponse | None, bool]] = []
        self.call = ModelCall(encoded, PeerMemory(), self._respond, decoupled=decoupled, blocks=blocks)
        self.request: InferRequest | None = None

    def _respond(self, response: InferResponse | None, final: bool) -> None:
        self.answers.append((response, final))
        self.call.ended |= final

    @property
    def error(self) -> HalimedeError:
        """Its only answer, an error."""
        ((response, final),) = self.answers
        assert final
        assert response is not None
        assert response.error is not None
        return response.error


class World:
    """Models without instances, and the calls of their instances. `a0` is the first instance of model `a`."""

    def __init__(self) -> None:
        self.models: dict[str, ScriptedModel] = {}
        self.calls = ModelCalls(self._find, lambda: 5)

    def _find(self, name: str, version: int) -> Any:
        if name not in self.models:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return self.models[name]

    def add(self, name: str, instances: int = 1, *, decoupled: bool = False) -> None:
        self.models[name] = model = ScriptedModel(name, decoupled=decoupled)
        model.with_instances(*((),) * instances)

    def runs(self, instance: str, *requests: InferRequest | None) -> None:
        """The instance has these requests."""
        instances = self.models[instance[0]].loaded.instances
        instances[int(instance[1])].instance.requests = requests

    def call(self, caller: str, model: str, **options: Any) -> Asked:
        asked = Asked(model, **options)
        name = WorkerName(caller[0], 1, f"{caller[0]}_0_{caller[1]}")
        asked.request = self.calls.infer(asked.call, name)
        return asked


@pytest.fixture
def world() -> World:
    return World()


ENDLESS = "would wait for ever: every instance of model 'a' waits"


def test_a_call_becomes_a_request_like_any_other(world: World) -> None:
    world.add("m")
    asked = world.call(
        "x0",
        "m",
        id="r",
        sequence_id=7,
        flags=2,
        timeout_us=9,
        parameters='{"a":true}',
        outputs=("OUT",),
        version=1,
    )
    request = asked.request
    assert request is world.models["m"].requests[0]
    assert (request.model_version, request.id, request.outputs) == (1, "r", ("OUT",))
    assert (request.sequence_id, request.sequence_start, request.sequence_end) == (7, False, True)
    assert (request.timeout_us, request.parameters, request.priority) == (9, {"a": True}, 0)
    assert request.received_ns == 5
    response = fp32(1)
    request.respond(response, True)
    assert asked.answers == [(response, True)]


def test_a_request_that_the_model_refuses_says_that_running_it_failed(world: World) -> None:
    world.add("m")
    model: Any = world.models["m"]
    model.infer = lambda request: request.respond(InferResponse(error=InvalidArgumentError("too big")), True)
    error = world.call("x0", "m").error
    assert error.message == "Model m - Error when running inference: too big"


def test_an_error_of_the_execution_is_passed_on_as_it_is(world: World) -> None:
    world.add("m")
    asked = world.call("x0", "m")
    assert asked.request is not None
    asked.request.respond(InferResponse(error=CancelledError("enough")), True)
    assert asked.error.message == "enough"
    assert isinstance(asked.error, CancelledError)


def test_an_instance_that_calls_its_own_model_needs_another_instance(world: World) -> None:
    world.add("a", 1)
    asked = world.call("a0", "a")
    assert asked.request is None
    assert ENDLESS in asked.error.message
    assert asked.error.message.startswith("Model a - Error when running inference: ")
    world.add("a", 2)
    assert world.call("a0", "a").answers == []


def test_recursion_is_refused_when_the_last_instance_is_reached(world: World) -> None:
    world.add("a", 3)
    caller = "a0"
    for following in ("a1", "a2"):
        asked = world.call(caller, "a")
        assert asked.answers == []
        world.runs(following, asked.request)
        caller = following
    assert ENDLESS in world.call("a2", "a").error.message


def test_a_circle_of_models_is_refused_where_it_closes(world: World) -> None:
    world.add("a")
    world.add("b")
    first = world.call("a0", "b")
    world.runs("b0", first.request)
    assert ENDLESS in world.call("b0", "a").error.message
    assert first.answers == []


def test_a_circle_is_seen_even_if_the_model_has_other_instances(world: World) -> None:
    world.add("a")
    world.add("b", 2)
    first = world.call("a0", "b")
    world.runs("b0", first.request)
    assert ENDLESS in world.call("b0", "a").error.message


def test_two_that_hold_one_instance_each_and_want_another_are_seen(world: World) -> None:
    world.add("a", 2)
    assert world.call("a0", "a").answers == []
    assert ENDLESS in world.call("a1", "a").error.message


def test_an_instance_that_is_merely_busy_is_waited_for(world: World) -> None:
    world.add("a", 2)
    world.add("b")
    first = world.call("a0", "b")
    world.runs("b0", first.request)
    world.runs("a1", InferRequest("a", {}, lambda response, final: None))
    assert world.call("b0", "a").answers == []


def test_a_queued_call_is_not_stuck_while_another_instance_may_take_it(world: World) -> None:
    world.add("a")
    world.add("b", 2)
    world.call("a0", "b")  # waits in the queue of b
    assert world.call("b0", "a").answers == [], "b1 will run the call of a0, and then a0 is free"


def test_a_call_that_was_answered_blocks_nobody(world: World) -> None:
    world.add("a")
    world.add("b")
    first = world.call("a0", "b")
    assert first.request is not None
    first.request.respond(fp32(1), True)
    assert world.call("b0", "a").answers == []


def test_a_worker_that_ended_blocks_nobody(world: World) -> None:
    world.add("a")
    world.add("b")
    first = world.call("a0", "b")
    world.runs("b0", first.request)
    first.call.ended = True
    assert world.call("b0", "a").answers == []


def test_a_call_beside_execute_is_never_refused(world: World) -> None:
    world.add("a")
    assert world.call("a0", "a", blocks=False).answers == []


def test_a_decoupled_call_blocks_until_its_first_response(world: World) -> None:
    world.add("a", decoupled=True)
    assert ENDLESS in world.call("a0", "a", decoupled=True).error.message
    world.add("b", decoupled=True)
    first = world.call("a0", "b", decoupled=True)
    world.runs("b0", first.request)
    assert first.request is not None
    first.request.respond(fp32(1), False)
    assert world.call("b0", "a", decoupled=True).answers == []


def test_a_decoupled_request_may_be_answered_by_threads_of_an_instance_that_waits(world: World) -> None:
    world.add("a")
    world.add("b", decoupled=True)
    first = world.call("a0", "b", decoupled=True)
    assert first.request is not None
    world.runs(
        "b0"
    )  # its execution is over, but threads of b still answer it; b0 executes another, which calls
    assert world.call("b0", "a").answers == []


def test_passive_instances_take_no_calls(world: World) -> None:
    world.add("a", 2)
    world.models["a"].loaded.instances[1] = SimpleNamespace(passive=True)
    assert ENDLESS in world.call("a0", "a").error.message


# Models that are not loaded


class Absent:
    """Models that have to be loaded first, and the calls that wait for them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[tuple[str, int, str, bool]] = []
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls = ModelCalls(self._find, lambda: 5, demand=self._demand)

    def _find(self, name: str, version: int) -> Any:
        raise NotLoadedError(name, version)

    async def _demand(self, name: str, version: int, caller: str, is_loading: bool) -> Any:
        self.asked.append((name, version, caller, is_loading))
        await self.loaded
        return self.world.models[name]

    def call(self, model: str, *, is_loading: bool = False, **options: Any) -> Asked:
        asked = Asked(model, **options)
        asked.request = self.calls.infer(asked.call, WorkerName("x", 1, "x_0_0"), is_loading=is_loading)
        return asked


def test_a_call_waits_for_a_model_that_is_being_loaded(world: World) -> None:
    async def test() -> None:
        world.add("a")
        absent = Absent(world)
        asked = absent.call("a", version=3, is_loading=True)
        await asyncio.sleep(0)
        assert asked.request is not None
        assert world.models["a"].requests == []
        absent.loaded.set_result(None)
        await wait_until_async(lambda: world.models["a"].requests == [asked.request], "the call")
        assert absent.asked == [("a", 3, "x", True)]
        assert asked.answers == []

    asyncio.run(test())


def test_a_call_of_a_model_that_cannot_be_loaded_fails(world: World) -> None:
    async def test() -> None:
        absent = Absent(world)
        asked = absent.call("a")
        absent.loaded.set_exception(InvalidArgumentError("it is broken"))
        await wait_until_async(lambda: asked.answers, "the error")
        assert str(asked.error) == "Model a - Error when running inference: it is broken"

    asyncio.run(test())


def test_a_decoupled_model_that_was_loaded_first_still_needs_a_decoupled_call(world: World) -> None:
    async def test() -> None:
        world.add("a", decoupled=True)
        absent = Absent(world)
        asked = absent.call("a")
        absent.loaded.set_result(None)
        await wait_until_async(lambda: asked.answers, "the error")
        assert "Please use 'decoupled=True'" in str(asked.error)

    asyncio.run(test())


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_nobody_waits_for_any_more_is_not_made(world: World, fails: bool) -> None:
    async def test() -> None:
        world.add("a")
        absent = Absent(world)
        asked = absent.call("a")
        await asyncio.sleep(0)
        (loading,) = asyncio.all_tasks() - {asyncio.current_task()}
        asked.call.ended = True
        if fails:
            absent.loaded.set_exception(InvalidArgumentError("it is broken"))
        else:
            absent.loaded.set_result(None)
        await wait_until_async(loading.done, "what waited for the model to end")
        assert world.models["a"].requests == []
        assert asked.answers == []

    asyncio.run(test())
