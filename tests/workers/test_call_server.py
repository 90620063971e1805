import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from halimede.core.datatypes import FP32
from halimede.core.errors import NotFoundError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.workers.call_server import CallServer, Handler, ModelCall
from halimede.workers.channel import Message
from halimede.workers.memory import PeerMemory
from halimede_worker.messages import wire
from halimede_worker.messages.memory import Memory
from tests.support.loops import LoopThread

NO_TENSORS = ("m", -1, "", 0, 0, 0, "", (), (), None)
VALUE = wire.METRIC_VALUE


class Served:
    """A call server, and the client's end of its socket.

    Attributes:
        calls: the inferences that it was asked for.
        requests: what they became.
    """

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.memory = PeerMemory()
        self.calls: list[ModelCall] = []
        self.requests: list[InferRequest] = []
        self.came = threading.Semaphore(0)
        self.closed = threading.Event()
        self.error: Exception | None = None

    def __enter__(self) -> "Served":
        self.loop = LoopThread().__enter__()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server = self.loop.call(
            CallServer,
            self.loop.loop,
            ours,
            self.memory,
            self._infer,
            self.handlers,
            lambda _: self.closed.set(),
        )
        self.client = wire.Channel(theirs, Memory())
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call(self.server.close)
        self.client.close()
        self.loop.__exit__(None, None, None)

    def _infer(self, call: ModelCall) -> InferRequest | None:
        if self.error is not None:
            raise self.error
        self.calls.append(call)
        self.requests.append(InferRequest(call.model_name, call.inputs, call.respond))
        self.came.release()
        return self.requests[-1]

    def infer(self, number: int, request: tuple[Any, ...] = NO_TENSORS) -> InferRequest:
        """Ask for an inference: what it became."""
        self.client.send((wire.INFER, number, request, True, False))
        assert self.came.acquire(timeout=60)
        return self.requests[-1]

    def respond(self, request: InferRequest, response: InferResponse | None, final: bool = True) -> None:
        self.loop.call(request.respond, response, final)

    def receive(self) -> Message:
        return self.client.receive(10)

    def value(self, value: Any) -> Any:
        """What comes of a call that is no inference."""
        self.client.send((VALUE, value))
        kind, answer = self.receive()
        assert kind == wire.DONE
        return answer


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as served:
        yield served


def fp32(*values: float) -> InferResponse:
    return InferResponse({"OUT": Tensor.from_array(FP32, np.array(values, np.float32))})


def test_inferences_on_one_socket_are_answered_as_they_end(served: Served) -> None:
    first, second = served.infer(1), served.infer(2)
    served.respond(second, fp32(2))
    assert served.receive()[:2] == (wire.ANSWER, 2)
    served.respond(first, fp32(1), False)
    served.respond(first, None)
    kind, number, response, final, given_back, gone = served.receive()
    assert (kind, number, final, given_back, gone) == (wire.ANSWER, 1, False, (), ())
    assert response == ((("OUT", 11, (1,), np.float32(1).tobytes(), False),), "", None)
    assert served.receive() == (wire.ANSWER, 1, None, True, (), ())


def test_an_error_is_an_answer_with_its_code(served: Served) -> None:
    served.respond(served.infer(1), InferResponse(error=NotFoundError("no such thing")))
    assert served.receive()[2] == ((), "", (2, "no such thing"))


def test_what_an_inference_raises_is_its_answer(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    for error, text in ((NotFoundError("no"), (2, "no")), (KeyError("x"), (1, "KeyError: 'x'"))):
        served.error = error
        served.client.send((wire.INFER, 1, NO_TENSORS, False, False))
        assert served.receive()[2] == ((), "", text)
    assert "a model's call of another failed" in caplog.text


def test_memory_that_the_server_does_not_know_is_an_error(served: Served) -> None:
    tensor = ("IN", 11, (4,), (-77, 0, 16), False)
    served.client.send((wire.INFER, 1, (*NO_TENSORS[:8], (tensor,), None), False, False))
    _, _, (code, text) = served.receive()[2]
    assert code == 4
    assert text.startswith("the inputs of the call were lost: 16 bytes of shared memory did not arrive")
    served.handlers[VALUE] = lambda message: message[1]
    assert served.value("still there") == "still there"


def test_stop_cancels_one_inference_and_leave_cancels_if_it_says_so(served: Served) -> None:
    requests = [served.infer(number) for number in range(4)]
    served.client.send((wire.STOP, 0))
    served.client.send((wire.LEAVE, 1, True))
    served.client.send((wire.LEAVE, 2, False))
    served.client.send((wire.LEAVE, 17, True))
    served.handlers[VALUE] = lambda message: message[1]
    assert served.value(0) == 0
    assert [request.cancelled for request in requests] == [True, True, False, False]
    for request in requests:
        served.respond(request, fp32(1))
    assert [served.receive()[1] for _ in range(2)] == [0, 3]
    assert served.value(1) == 1, "those that were left are not answered"
    assert [call.ended for call in served.calls] == [True] * 4


def test_a_closed_socket_cancels_what_runs_on_it(served: Served) -> None:
    started, stopped = threading.Event(), threading.Event()

    async def wait(message: Message) -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            stopped.set()

    served.handlers[VALUE] = wait
    request = served.infer(1)
    served.client.send((VALUE,))
    assert started.wait(60)
    served.client.close()
    assert served.closed.wait(60)
    assert stopped.wait(60)
    assert request.cancelled
    served.respond(request, fp32(1))


def test_handlers_may_be_awaited_and_their_errors_are_told(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async def later(message: Message) -> Any:
        if isinstance(message[1], Exception):
            raise message[1]
        await asyncio.sleep(0)
        return message[1] + 1

    served.handlers[VALUE] = later
    assert served.value(1) == 2
    served.handlers[VALUE] = lambda message: later((VALUE, NotFoundError("nothing there")))
    served.client.send((VALUE,))
    assert served.receive() == (wire.FAILED, "nothing there")
    served.handlers[VALUE] = lambda message: message[7]
    served.client.send((VALUE,))
    assert served.receive() == (wire.FAILED, "IndexError: tuple index out of range")
    assert "a model's call failed" in caplog.text
    served.client.send((99,))
    assert served.receive() == (wire.FAILED, "the server does not know calls of kind 99")


@pytest.mark.parametrize("awaited", [False, True])
def test_an_answer_that_cannot_be_sent_is_an_error_for_who_waits(
    served: Served, caplog: pytest.LogCaptureFixture, awaited: bool
) -> None:
    async def later(_: Message) -> Any:
        return object()

    served.handlers[VALUE] = later if awaited else lambda _: object()
    served.client.send((VALUE,))
    assert served.receive() == (wire.FAILED, "ValueError: unmarshallable object")
    assert "a model's call failed" in caplog.messages


def test_sending_never_holds_up_the_loop(served: Served) -> None:
    request = served.infer(1)
    for number in range(5000):
        served.respond(request, fp32(number), False)
    assert request.congested
    drained = threading.Event()
    request.on_drain = lambda _: drained.set()
    for number in range(5000):
        (tensor,) = served.receive()[2][0]
        assert np.frombuffer(tensor[3], np.float32)[0] == number
    assert drained.wait(10)


def test_segments_of_answers_live_until_they_are_released(served: Served) -> None:
    large = np.arange(50_000, dtype=np.float32)
    request = served.infer(1)
    numbers = []
    for _ in range(3):
        served.respond(request, InferResponse({"OUT": Tensor.from_array(FP32, large)}), False)
        payload = served.receive()[2][0][0][3]
        assert np.array_equal(served.client.memory.view(payload).view(np.float32), large)
        numbers.append(payload[0])
    assert len(set(numbers)) == 3, "none is written over"
    served.client.send((wire.RELEASED, [(number, 1) for number in numbers]))
    served.handlers[VALUE] = lambda message: message[1]
    assert served.value(0) == 0
    served.respond(request, InferResponse({"OUT": Tensor.from_array(FP32, large)}))
    assert served.receive()[2][0][0][3][0] in numbers


def test_a_segment_that_came_twice_is_released_twice(served: Served) -> None:
    large = served.loop.call(lambda: served.memory.outgoing())
    reference = served.loop.call(large.put_bytes, b"x" * 50_000)
    served.loop.call(served.memory.answered, [large._segment])  # noqa: SLF001 - what the other side tells of it
    served.loop.call(served.memory.answered, [large._segment, large._segment])  # noqa: SLF001 - what the other side tells of it
    served.loop.call(served.memory.released, [(reference[0], 1)])
    assert reference[0] in served.memory._answered  # noqa: SLF001 - what is left is seen only inside
    served.loop.call(served.memory.released, [(reference[0], 1)])
    assert not served.memory._answered  # noqa: SLF001 - what is left is seen only inside


def test_what_a_caller_passes_on_is_shared_and_what_it_made_is_not(served: Served) -> None:
    large = np.arange(50_000, dtype=np.float32)
    served.respond(served.infer(1), InferResponse({"OUT": Tensor.from_array(FP32, large)}))
    (tensor,) = served.receive()[2][0]
    served.infer(2, (*NO_TENSORS[:8], (tensor, ("SMALL", 11, (1,), b"abcd", False)), None))
    shared = {name: tensor.shared for name, tensor in served.calls[-1].inputs.items()}
    assert shared == {"OUT": True, "SMALL": False}


def test_a_message_longer_than_a_packet_is_answered_by_one(served: Served) -> None:
    served.handlers[VALUE] = lambda message: message[1]
    assert served.value("x" * 300_000) == "x" * 300_000
