"""Messages that take long to decode, as their tensors are typed contents, are decoded elsewhere."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.core.requests import InferRequest
from halimede.frontends.decoders import Decoders
from halimede.frontends.grpc.codec_request import LARGE, Decoded, Decoding, RequestDecoder
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest, ModelStreamInferResponse
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
)
from tests.support.loops import LoopThread

COUNT = LARGE // 4


def large(identifier: str = "", model: str = "identity") -> ModelInferRequest:
    """A request with as many numbers as make it large."""
    message = ModelInferRequest(model_name=model, id=identifier)
    entry = message.inputs.add(name="INPUT0", datatype="FP32", shape=[COUNT])
    entry.contents.fp32_contents.extend([1.5] * COUNT)
    return message


class HeldDecoders:
    """Decodes when the test says so.

    Attributes:
        works: what was begun.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.works: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def decode(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        self.works.append((self._loop.create_future(), function, arguments))
        return self.works[-1][0]

    def finish(self) -> None:
        """Finish the oldest work."""
        work, function, arguments = self.works.pop(0)
        try:
            work.set_result(function(*arguments))
        except Exception as error:
            work.set_exception(error)
        self._turn()

    def fail(self, error: Exception) -> None:
        """Have the oldest work fail."""
        self.works.pop(0)[0].set_exception(error)
        self._turn()

    def _turn(self) -> None:
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def decoders() -> Iterator[HeldDecoders]:
    held = HeldDecoders()
    yield held
    held.close()


def settings(decoders: Any) -> ServiceSettings:
    return ServiceSettings(decoders=decoders)


def ask(engine: FakeEngine, decoders: HeldDecoders, message: ModelInferRequest | bytes) -> FakeCall:
    call = FakeCall(INFER)
    method = methods(engine, settings(decoders))[INFER]  # type: ignore[arg-type]  # a fake
    assert isinstance(method, UnaryMethod)
    encoded = message if isinstance(message, bytes) else message.SerializeToString()
    method.handler(call, memoryview(encoded))  # type: ignore[arg-type]  # a fake
    return call


def open_stream(engine: FakeEngine, decoders: HeldDecoders) -> FakeCall:
    call = FakeCall(STREAM)
    method = methods(engine, settings(decoders))[STREAM]  # type: ignore[arg-type]  # a fake
    assert isinstance(method, StreamMethod)
    method.handler(call)  # type: ignore[arg-type]  # a fake
    return call


def ids(call: FakeCall) -> list[str]:
    return [ModelStreamInferResponse.FromString(each).infer_response.id for each in call.messages]


def is_paused(call: FakeCall) -> bool:
    return call.paused


def values(request: InferRequest) -> Any:
    return request.inputs["INPUT0"].array.tolist()


@pytest.mark.parametrize("identifier", ["", "7"])
def test_a_large_request_is_not_copied_before_it_is_decoded(identifier: str, decoders: HeldDecoders) -> None:
    message = memoryview(large(identifier).SerializeToString())
    decoding = RequestDecoder(decoders).decode(message)  # type: ignore[arg-type]  # a fake
    assert isinstance(decoding, Decoding)
    ((_, _, (data, *_)),) = decoders.works
    assert data.obj is message.obj
    decoders.finish()
    plan, found, tensors = decoding.result()
    assert (len(plan.inputs), found, tensors) == (1, identifier, [])


def test_a_large_request_runs_when_it_is_decoded(decoders: HeldDecoders) -> None:
    model = FakeModel()
    call = ask(FakeEngine(model), decoders, large("7"))
    assert not model.requests
    decoders.finish()
    (request,) = model.requests
    assert (request.id, values(request)) == ("7", [1.5] * COUNT)
    echo(request)
    assert call.status == 0


def test_raw_tensors_are_not_decoded_elsewhere_however_large(decoders: HeldDecoders) -> None:
    model = FakeModel()
    ask(FakeEngine(model), decoders, infer_request(bytes(2 * LARGE), shape=(LARGE // 2,)))
    assert len(model.requests) == 1
    assert not decoders.works


@pytest.mark.parametrize(
    ("error", "status"), [(InvalidArgumentError("wrong"), 3), (InternalError("gone"), 13), (ValueError(), 13)]
)
def test_what_fails_elsewhere_is_the_answer(decoders: HeldDecoders, error: Exception, status: int) -> None:
    model = FakeModel()
    call = ask(FakeEngine(model), decoders, large())
    decoders.fail(error)
    assert call.status == status
    assert not model.requests


def test_a_request_that_was_cancelled_meanwhile_does_not_run(decoders: HeldDecoders) -> None:
    model = FakeModel()
    call = ask(FakeEngine(model), decoders, large())
    ((work, *_),) = decoders.works
    call.cancel()
    assert work.cancelled()
    assert not model.requests


def test_a_large_message_that_only_protobuf_reads_is_decoded_elsewhere_too(decoders: HeldDecoders) -> None:
    model = FakeModel()
    name = b"\x8a\x00\x08identity"  # an overlong tag
    ask(FakeEngine(model), decoders, name + large("7", model="").SerializeToString())
    decoders.finish()
    assert [request.id for request in model.requests] == ["7"]


def test_requests_of_a_stream_that_come_after_a_large_one_wait_for_it(decoders: HeldDecoders) -> None:
    model = FakeModel()
    call = open_stream(FakeEngine(model), decoders)
    call.receive(infer_request(identifier="1"))
    call.receive(large("2"))
    assert is_paused(call)
    call.receive(infer_request(identifier="3"))  # was under way
    call.receive(large("4"))
    call.half_close()
    assert [request.id for request in model.requests] == ["1"]
    decoders.finish()
    assert [request.id for request in model.requests] == ["1", "2", "3"]
    decoders.finish()
    assert [request.id for request in model.requests] == ["1", "2", "3", "4"]
    assert not is_paused(call)
    for request in model.requests:
        echo(request)
    assert ids(call) == ["1", "2", "3", "4"]
    assert call.status == 0


def test_an_error_of_a_large_request_of_a_stream_is_told_in_its_turn(decoders: HeldDecoders) -> None:
    model = FakeModel()
    call = open_stream(FakeEngine(model), decoders)
    call.receive(infer_request(identifier="1"))
    call.receive(large("2"))
    decoders.fail(InvalidArgumentError("wrong"))
    assert ids(call) == []
    echo(model.requests[0])
    assert ids(call) == ["1", "2"]
    assert ModelStreamInferResponse.FromString(call.messages[1]).error_message == "wrong"


def test_a_stream_that_ends_meanwhile_runs_nothing_more(decoders: HeldDecoders) -> None:
    model = FakeModel()
    call = open_stream(FakeEngine(model), decoders)
    call.receive(large("1"))
    ((work, *_),) = decoders.works
    call.cancel()
    assert work.cancelled()
    assert not model.requests


def test_a_message_is_decoded_by_another_process_as_here() -> None:
    message = large("7")
    message.parameters["priority"].int64_param = 3
    message.parameters["own"].string_param = "x"
    message.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 2
    strings = message.inputs.add(name="INPUT1", datatype="BYTES", shape=[2])
    strings.contents.bytes_contents.extend([b"a", b"\xff"])
    encoded = memoryview(message.SerializeToString())

    async def elsewhere() -> Decoded:
        decoding = RequestDecoder(Decoders()).decode(encoded)
        assert isinstance(decoding, Decoding)
        await decoding.work
        return decoding.result()

    here = RequestDecoder().decode(encoded)
    assert isinstance(here, tuple)
    with LoopThread() as loop:
        there = loop.run(elsewhere())
    one, other = (
        plan.request(identifier, tensors, lambda *_: None, 0, None)
        for plan, identifier, tensors in (here, there)
    )
    assert (one.id, one.outputs, one.priority, one.parameters) == ("7", ("OUTPUT0",), 3, {"own": "x"})
    assert (other.id, other.outputs, other.priority, other.parameters) == (
        one.id,
        one.outputs,
        one.priority,
        one.parameters,
    )
    assert there[0].classes == here[0].classes == {"OUTPUT0": 2}
    for name, tensor in one.inputs.items():
        assert other.inputs[name].datatype is tensor.datatype
        assert bytes(other.inputs[name].data) == bytes(tensor.data)
