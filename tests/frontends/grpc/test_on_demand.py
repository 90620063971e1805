"""Calls for models that are loaded when they are asked for."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from halimede.core.errors import HalimedeError, InvalidArgumentError, NotLoadedError
from halimede.frontends.grpc.kserve_pb2 import ModelStreamInferResponse
from halimede.frontends.grpc.service import ServiceSettings, methods
from halimede.frontends.grpc.transport.call import StreamMethod, UnaryMethod
from tests.frontends.grpc.service_fakes import (
    INFER,
    STREAM,
    FakeCall,
    FakeEngine,
    FakeModel,
    echo,
    infer_request,
    status_of,
)


class OnDemandEngine(FakeEngine):
    """Models that are there once the test says so.

    Attributes:
        waiting: how many calls wait for each model.
    """

    def __init__(self, *models: FakeModel) -> None:
        super().__init__()
        self.waiting: dict[str, int] = {}
        self._absent = {model.name: model for model in models}
        self._loads: dict[str, asyncio.Future[None]] = {}

    def find(self, name: str, version: int = -1) -> FakeModel:
        if name not in self._models:
            raise NotLoadedError(name, version)
        return super().find(name, version)

    async def demand(self, name: str, version: int = -1, timeout_s: float | None = None) -> FakeModel:
        self.waiting[name] = self.waiting.get(name, 0) + 1
        try:
            await asyncio.shield(self._load(name))
        finally:
            self.waiting[name] -= 1
        return self.find(name, version)

    def _load(self, name: str) -> "asyncio.Future[None]":
        return self._loads.setdefault(name, asyncio.get_running_loop().create_future())

    async def load(self, name: str, error: HalimedeError | None = None) -> None:
        """The model is loaded, or that has failed; return when all that waited have been told."""
        await asyncio.sleep(0)
        if error is None:
            self._models[name] = self._absent[name]
            self._load(name).set_result(None)
        else:
            self._load(name).set_exception(error)
        for _ in range(10):
            await asyncio.sleep(0)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def call(engine: FakeEngine, **options: Any) -> FakeCall:
    one = FakeCall()
    method = methods(engine, ServiceSettings())[INFER]  # type: ignore[arg-type]  # a fake
    assert isinstance(method, UnaryMethod)
    method.handler(one, memoryview(infer_request(**options).SerializeToString()))  # type: ignore[arg-type]
    return one


def stream(engine: FakeEngine) -> FakeCall:
    one = FakeCall(STREAM)
    method = methods(engine, ServiceSettings())[STREAM]  # type: ignore[arg-type]  # a fake
    assert isinstance(method, StreamMethod)
    method.handler(one)  # type: ignore[arg-type]  # a fake
    return one


def ids(one: FakeCall) -> list[str]:
    responses = (ModelStreamInferResponse.FromString(message) for message in one.messages)
    return [response.infer_response.id for response in responses]


def errors(one: FakeCall) -> list[str]:
    return [ModelStreamInferResponse.FromString(message).error_message for message in one.messages]


# ModelInfer


def test_a_call_is_answered_when_its_model_is_loaded() -> None:
    async def test() -> None:
        engine = OnDemandEngine(FakeModel("a", answer=echo))
        calls = [call(engine, model="a", identifier=str(number)) for number in range(3)]
        await asyncio.sleep(0)
        assert not any(one.ended for one in calls)
        await engine.load("a")
        assert [one.status for one in calls] == [0, 0, 0]

    run(test())


def test_a_call_is_told_why_its_model_cannot_be_loaded() -> None:
    async def test() -> None:
        engine = OnDemandEngine()
        one = call(engine, model="a")
        await engine.load("a", InvalidArgumentError("it is broken"))
        assert (one.status, one.text) == (status_of(InvalidArgumentError), "it is broken")
        assert one.on_cancel is None

    run(test())


def test_a_cancelled_call_waits_no_longer() -> None:
    async def test() -> None:
        model = FakeModel("a")
        engine = OnDemandEngine(model)
        one = call(engine, model="a")
        await asyncio.sleep(0)
        assert engine.waiting["a"] == 1
        one.cancel()
        await asyncio.sleep(0)
        assert engine.waiting["a"] == 0
        await engine.load("a")
        assert model.requests == []
        assert not one.ended

    run(test())


def test_an_error_of_the_server_ends_the_call() -> None:
    async def test() -> None:
        def fail(_: object) -> None:
            raise ZeroDivisionError("a bug")

        engine = OnDemandEngine(FakeModel("a", answer=fail))
        one = call(engine, model="a")
        await engine.load("a")
        assert "ZeroDivisionError('a bug')" in one.text

    run(test())


# ModelStreamInfer


def test_responses_of_a_stream_keep_their_order_though_a_model_is_loaded_first() -> None:
    async def test() -> None:
        present, absent = FakeModel("b", answer=echo), FakeModel("a", answer=echo)
        engine = OnDemandEngine(absent, present)
        await engine.load("b")
        one = stream(engine)
        for identifier, model in (("1", "b"), ("2", "a"), ("3", "b"), ("4", "a")):
            one.receive(infer_request(model=model, identifier=identifier))
        one.half_close()
        assert ids(one) == ["1"]
        await engine.load("a")
        assert ids(one) == ["1", "2", "3", "4"]
        assert one.status == 0

    run(test())


def test_a_decoupled_model_that_was_loaded_first_answers_out_of_turn() -> None:
    async def test() -> None:
        slow, decoupled = FakeModel("slow"), FakeModel("d", decoupled=True)
        engine = OnDemandEngine(slow, decoupled, FakeModel("b", answer=echo))
        await engine.load("slow")
        await engine.load("b")
        one = stream(engine)
        one.receive(infer_request(model="d", identifier="1"))
        one.receive(infer_request(model="b", identifier="2"))
        one.receive(infer_request(model="slow", identifier="3"))
        assert ids(one) == []
        await engine.load("d")
        assert ids(one) == ["2"]  # which no longer waits for the one before
        echo(decoupled.requests[0])
        assert ids(one) == ["2", "1"]
        echo(slow.requests[0])
        one.half_close()
        assert ids(one) == ["2", "1", "3"]
        assert one.status == 0

    run(test())


def test_a_request_of_a_stream_is_told_why_its_model_cannot_be_loaded() -> None:
    async def test() -> None:
        engine = OnDemandEngine(FakeModel("b", answer=echo))
        await engine.load("b")
        one = stream(engine)
        one.receive(infer_request(model="a", identifier="1"))
        one.receive(infer_request(model="b", identifier="2"))
        await engine.load("a", InvalidArgumentError("it is broken"))
        assert errors(one) == ["it is broken", ""]
        assert ids(one) == ["1", "2"]
        one.half_close()
        assert one.status == 0

    run(test())


def test_a_cancelled_stream_waits_no_longer() -> None:
    async def test() -> None:
        model = FakeModel("a")
        engine = OnDemandEngine(model)
        one = stream(engine)
        one.receive(infer_request(model="a"))
        await asyncio.sleep(0)
        one.cancel()
        await asyncio.sleep(0)
        assert engine.waiting["a"] == 0
        await engine.load("a")
        assert model.requests == []

    run(test())
