"""Requests: those that models make, and those that they are to answer."""

import asyncio
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

from halimede_worker import requests
from halimede_worker.calls.preferred_memory import MemoryType, PreferredMemory
from halimede_worker.errors import TritonModelException
from halimede_worker.messages.memory import Memory, Outgoing
from halimede_worker.requests import InferenceRequest, decode_request, encoded_form
from halimede_worker.responses import InferenceResponse
from halimede_worker.runtime import runtime
from halimede_worker.senders import FINAL, InferenceResponseSender
from halimede_worker.tensors.tensors import Tensor
from halimede_worker.trace import InferenceTrace

FP32 = 11


class Server:
    """What a worker has that serves requests; it remembers what it was told."""

    def __init__(self, decoupled: bool = False) -> None:
        self.memory = Memory()
        self.decoupled = decoupled
        self.transmitter = self
        self.request_class = InferenceRequest
        self.states = None
        self.sent: list[tuple[int, InferenceResponse | None, bool]] = []
        self.abandoned: list[int] = []

    def transmit(
        self, number: int, response: InferenceResponse | None, final: bool, dropped: Sequence[str] = ()
    ) -> None:
        self.sent.append((number, response, final))

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def transmit_abandoned(self, number: int) -> None:
        self.abandoned.append(number)


def a_tensor(name: str = "IN") -> Tensor:
    return Tensor(name, np.array([1.0, 2.0], np.float32))


def a_request(**arguments: Any) -> InferenceRequest:
    return InferenceRequest(**{"model_name": "m", "inputs": [], "requested_output_names": [], **arguments})


def a_served_request(
    server: Server,
    *,
    number: int = 7,
    parameters: str = "",
    wanted: tuple[str, ...] = ("OUT",),
    correlation_id: int | str = 0,
    trace: tuple[int, str | None] | None = None,
) -> InferenceRequest:
    tensor = ("IN", FP32, (2,), np.array([1.0, 2.0], np.float32).tobytes(), False)
    encoded = (number, "id", correlation_id, 1, 250, parameters, wanted, (tensor,), 0, None)
    return decode_request(encoded if trace is None else (*encoded, trace), server)


# Made by a model


def test_request_needs_inputs_outputs_and_a_model_alone() -> None:
    request = InferenceRequest(model_name="m", inputs=[], requested_output_names=[])
    assert request.inputs() == []
    assert request.requested_output_names() == set()
    assert request.request_id() == ""
    assert request.correlation_id() == 0
    assert request.flags() == 0
    assert request.timeout() == 0
    assert request.parameters() == "{}"
    assert request.trace().get_context() is None
    assert request.is_cancelled() is False


@pytest.mark.parametrize("missing", ["model_name", "inputs", "requested_output_names"])
def test_request_without_a_mandatory_argument_is_refused(missing: str) -> None:
    arguments: dict[str, Any] = {"model_name": "m", "inputs": [], "requested_output_names": []}
    del arguments[missing]
    with pytest.raises(
        TypeError, match=rf"^__init__\(\): incompatible constructor arguments\.[^$]*{missing} is"
    ):
        InferenceRequest(**arguments)


def test_request_takes_its_arguments_in_the_order_of_the_original() -> None:
    tensor, trace = a_tensor(), InferenceTrace()
    memory = PreferredMemory(MemoryType.TRITONSERVER_MEMORY_CPU, 3)
    request = InferenceRequest("id", 5, [tensor], ["OUT"], "m", 2, 3, 9, memory, trace, {"p": 1})
    outgoing = Outgoing(Memory())
    assert request.inputs() == [tensor]
    assert request.trace() is trace
    encoded = request._encoded(outgoing)  # noqa: SLF001 - what travels is the package's
    assert encoded[:8] == ("m", 2, "id", 5, 3, 9, '{"p": 1}', ("OUT",))
    assert [tensor[:3] for tensor in encoded[8]] == [("IN", FP32, (2,))]
    assert encoded[9] == (1, 3)


def test_request_without_options_travels_with_their_defaults() -> None:
    assert a_request()._encoded(Outgoing(Memory())) == ("m", -1, "", 0, 0, 0, "", (), (), None)  # noqa: SLF001 - what travels is the package's


def test_texts_of_a_request_may_be_bytes() -> None:
    request = a_request(model_name=b"m", request_id=b"id", requested_output_names=[b"OUT", "OUT"])
    encoded = request._encoded(Outgoing(Memory()))  # noqa: SLF001 - what travels is the package's
    assert (encoded[0], encoded[2], encoded[7]) == ("m", "id", ("OUT",))


@pytest.mark.parametrize(
    "arguments",
    [
        {"priority": 1},
        {"inputs": None},
        {"inputs": {}},
        {"inputs": iter(())},
        {"inputs": [5]},
        {"requested_output_names": None},
        {"requested_output_names": "OUT"},
        {"requested_output_names": {"OUT"}},
        {"requested_output_names": [None]},
        {"requested_output_names": [5]},
        {"model_name": None},
        {"model_name": 5},
        {"model_name": np.array([b"m"], np.object_)},
        {"request_id": None},
        {"request_id": 5},
        {"correlation_id": None},
        {"model_version": "1"},
        {"model_version": None},
        {"model_version": 1 << 63},
        {"flags": -1},
        {"flags": 1 << 32},
        {"flags": 1.0},
        {"timeout": -1},
        {"timeout": 1.5},
        {"timeout": "5"},
        {"preferred_memory": None},
        {"preferred_memory": MemoryType.TRITONSERVER_MEMORY_CPU},
        {"trace": None},
        {"trace": "trace"},
    ],
)
def test_arguments_of_other_types_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        a_request(**arguments)


def test_input_that_is_none_is_refused() -> None:
    with pytest.raises(TritonModelException) as caught:
        a_request(inputs=[a_tensor(), None])
    assert str(caught.value) == (
        "Input tensor for request with id '' and model name 'm' should not be empty."
    )


def test_name_of_an_output_that_is_empty_is_refused() -> None:
    with pytest.raises(TritonModelException) as caught:
        a_request(request_id="r", requested_output_names=["OUT", ""])
    assert str(caught.value) == (
        "Requested output name for request with id 'r' and model name 'm' should not be empty."
    )


@pytest.mark.parametrize("correlation_id", [0, 5, (1 << 64) - 1, "", "sequence", np.int64(5)])
def test_correlation_id_may_be_a_number_or_a_text(correlation_id: Any) -> None:
    assert a_request(correlation_id=correlation_id).correlation_id() == correlation_id


@pytest.mark.parametrize("correlation_id", [1.5, b"bytes", [], {}])
def test_correlation_id_of_another_type_is_refused(correlation_id: Any) -> None:
    with pytest.raises(TritonModelException) as caught:
        a_request(correlation_id=correlation_id)
    assert str(caught.value) == "Correlation ID must be integer or string"


@pytest.mark.parametrize("correlation_id", [-1, 1 << 64])
def test_correlation_id_out_of_range_is_refused(correlation_id: int) -> None:
    with pytest.raises(RuntimeError, match=f"Unable to cast correlation_id {correlation_id} to"):
        a_request(correlation_id=correlation_id)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ([], "Expect N8pybind114dictE, got <class 'list'>"),
        ({1: "a"}, "Expect parameters keys to have type str, found type <class 'int'>"),
        ({"a": 0.5}, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
        ({"a": None}, "Expect parameters values to have type bool/int/str, found type <class 'NoneType'>"),
    ],
)
def test_parameters_of_other_types_are_refused(parameters: Any, text: str) -> None:
    with pytest.raises(TritonModelException) as caught:
        a_request(parameters=parameters)
    assert str(caught.value) == text


def test_parameters_come_back_as_json() -> None:
    parameters = {"bool": True, "int": 5, "str": "text"}
    assert json.loads(a_request(parameters=parameters).parameters()) == parameters


def test_flags_may_be_set() -> None:
    request = a_request(flags=1)
    request.set_flags(3)
    assert request.flags() == 3
    for flags in (-1, 1 << 32, 1.0, None):
        with pytest.raises(TypeError, match=r"^set_flags\(\): incompatible function arguments\."):
            request.set_flags(flags)  # type: ignore[arg-type]
    assert request.flags() == 3


def test_request_that_a_model_made_cannot_be_released() -> None:
    with pytest.raises(TritonModelException, match=r"^Unable to set release flags\. The request was made by"):
        a_request().set_release_flags(2)


def test_request_gets_no_attributes() -> None:
    with pytest.raises(AttributeError):
        a_request().note = 1  # type: ignore[attr-defined]


def test_received_input_goes_on_to_another_model_as_it_is() -> None:
    server = Server()
    [tensor] = a_served_request(server).inputs()
    encoded = a_request(inputs=[tensor])._encoded(Outgoing(Memory()))  # noqa: SLF001 - what travels is the package's
    assert encoded[8][0][:4] == ("IN", FP32, (2,), np.array([1.0, 2.0], np.float32).tobytes())


# Run by another model


class Calls:
    """Stands for the module that calls the server."""

    def __init__(self) -> None:
        self.made: list[tuple[InferenceRequest, bool]] = []

    def execute_inference(self, request: InferenceRequest, decoupled: bool) -> str:
        self.made.append((request, decoupled))
        return "response"

    def execute_inference_async(self, request: InferenceRequest, decoupled: bool) -> "asyncio.Future[str]":
        self.made.append((request, decoupled))
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.set_result("response")
        return future


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    monkeypatch.setattr(requests, "execute_inference", calls.execute_inference)
    monkeypatch.setattr(requests, "execute_inference_async", calls.execute_inference_async)
    return calls


@pytest.mark.parametrize(("decoupled", "truth"), [(True, True), (False, False), (1, True), (np.True_, True)])
def test_execution_is_the_servers(calls: Calls, decoupled: Any, truth: bool) -> None:
    request = a_request()
    result: object = request.exec(decoupled=decoupled)
    assert result == "response"
    assert calls.made == [(request, truth)]


def test_execution_can_be_awaited(calls: Calls) -> None:
    request = a_request()

    async def execute() -> list[object]:
        return [await request.async_exec(), await request.async_exec(decoupled=True)]

    assert asyncio.run(execute()) == ["response", "response"]
    assert calls.made == [(request, False), (request, True)]


@pytest.mark.parametrize("decoupled", ["True", [], b""])
def test_execution_needs_a_truth_value(calls: Calls, decoupled: Any) -> None:
    with pytest.raises(TypeError, match=r"^exec\(\): incompatible function arguments\."):
        a_request().exec(decoupled)
    with pytest.raises(TypeError, match=r"^async_exec\(\): incompatible function arguments\."):
        a_request().async_exec(decoupled)
    assert calls.made == []


def test_served_request_that_is_run_again_asks_this_very_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "model_name", "mine")
    monkeypatch.setattr(runtime, "args", {"model_version": "3"})
    encoded = a_served_request(Server(), parameters='{"p": 1}')._encoded(Outgoing(Memory()))  # noqa: SLF001 - what travels is the package's
    assert encoded[:8] == ("mine", 3, "id", 0, 1, 250, '{"p": 1}', ("OUT",))


# Served


def test_served_request_says_what_came_with_it() -> None:
    request = a_served_request(Server(), parameters='{"x":1.5}', wanted=("B", "A"), correlation_id="sequence")
    assert request.request_id() == "id"
    assert request.correlation_id() == "sequence"
    assert request.flags() == 1
    assert request.timeout() == 250
    assert request.parameters() == '{"x":1.5}'
    assert request.requested_output_names() == {"A", "B"}
    assert request.trace().get_context() is None
    assert request.trace() is request.trace()


def test_request_that_is_traced_has_its_context_and_hands_its_number_on() -> None:
    context = '{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'
    request = a_served_request(Server(), trace=(12, context))
    assert request.trace().get_context() == context
    assert request.request_id() == "id"
    made = a_request(trace=request.trace())
    assert made.trace().get_context() == context
    assert made._encoded(Outgoing(Memory()))[10:] == (12,)  # noqa: SLF001 - what travels is the package's
    assert encoded_form(request)[0][1] == "id"


def test_request_that_is_traced_without_opentelemetry_has_no_context() -> None:
    request = a_served_request(Server(), trace=(12, None))
    assert request.trace().get_context() is None
    assert a_request(trace=request.trace())._encoded(Outgoing(Memory()))[10:] == (12,)  # noqa: SLF001 - what travels is the package's


def test_request_that_is_not_traced_hands_nothing_on() -> None:
    request = a_served_request(Server())
    assert len(a_request(trace=request.trace())._encoded(Outgoing(Memory()))) == 10  # noqa: SLF001 - what travels is the package's


def test_served_request_without_parameters_has_an_empty_object() -> None:
    assert a_served_request(Server()).parameters() == "{}"


def test_list_of_inputs_is_new_each_time_and_the_tensors_are_not() -> None:
    request = a_served_request(Server())
    first = request.inputs()
    [tensor] = first
    assert tensor.name() == "IN"
    assert tensor.as_numpy().tolist() == [1.0, 2.0]
    first.clear()
    assert request.inputs() == [tensor]
    assert request.inputs()[0] is tensor


def test_requested_names_can_be_changed_by_nobody() -> None:
    request = a_served_request(Server())
    request.requested_output_names().clear()
    assert request.requested_output_names() == {"OUT"}


def test_sender_is_the_same_each_time_and_there_once_it_is_asked_for() -> None:
    request = a_served_request(Server())
    never: object = request._sender  # noqa: SLF001 - whether it was made already
    sender = request.get_response_sender()
    assert never is None
    assert request.get_response_sender() is sender
    assert request._sender is sender  # noqa: SLF001 - whether it was made already
    sender.close()


def test_threads_that_ask_at_once_get_the_same_sender() -> None:
    server = Server()
    for number in range(20):
        request = a_served_request(server, number=number)
        start = threading.Barrier(8)

        def ask(
            request: InferenceRequest = request, start: threading.Barrier = start
        ) -> InferenceResponseSender:
            start.wait()
            return request.get_response_sender()

        with ThreadPoolExecutor(8) as threads:
            senders = [future.result() for future in [threads.submit(ask) for _ in range(8)]]
        assert {id(sender) for sender in senders} == {id(request.get_response_sender())}
        assert server.abandoned == []
        request.get_response_sender().close()


def test_sender_answers_its_request() -> None:
    server, response = Server(), InferenceResponse([a_tensor("OUT"), a_tensor("OTHER")])
    a_served_request(server).get_response_sender().send(response, FINAL)
    assert server.sent == [(7, response, True)]
    assert [output.name() for output in response.output_tensors()] == ["OUT"]


def test_sender_of_a_decoupled_model_may_be_asked_for_late() -> None:
    server = Server(decoupled=True)
    request = a_served_request(server)
    assert server.abandoned == []
    sender = request.get_response_sender()
    sender.send(InferenceResponse())
    sender.send(InferenceResponse(), FINAL)
    assert len(server.sent) == 2


def test_server_hears_of_a_decoupled_request_that_is_lost_before_anybody_asks_for_its_sender() -> None:
    server = Server(decoupled=True)
    request = a_served_request(server)
    assert server.abandoned == []
    del request
    assert server.abandoned == [7]


def test_server_hears_once_request_and_sender_are_both_lost() -> None:
    server = Server()
    request = a_served_request(server)
    sender = request.get_response_sender()
    del request
    assert server.abandoned == []
    del sender
    assert server.abandoned == [7]


def test_request_without_a_sender_may_be_lost() -> None:
    server = Server()
    a_served_request(server)
    assert server.abandoned == []


def test_cancellation_reaches_the_sender() -> None:
    request = a_served_request(Server())
    sender = request.get_response_sender()
    assert (request.is_cancelled(), sender.is_cancelled()) == (False, False)
    request._cancel()  # noqa: SLF001 - what the server's message does
    assert (request.is_cancelled(), sender.is_cancelled()) == (True, True)
    sender.close()


def test_cancellation_reaches_a_sender_that_is_asked_for_later() -> None:
    request = a_served_request(Server())
    request._cancel()  # noqa: SLF001 - what the server's message does
    sender = request.get_response_sender()
    assert sender.is_cancelled() is True
    sender.close()


def test_served_request_can_be_rescheduled() -> None:
    request = a_served_request(Server())
    marks = [request._rescheduled]  # noqa: SLF001 - what the server is told
    for flags in (2, 1):
        request.set_release_flags(flags)
        marks.append(request._rescheduled)  # noqa: SLF001 - what the server is told
    assert marks == [False, True, False]


@pytest.mark.parametrize(("flags", "rescheduled"), [(0, False), (1, False), (2, True), (3, True), (4, False)])
def test_one_bit_of_the_release_flags_reschedules(flags: int, rescheduled: bool) -> None:
    request = a_served_request(Server())
    request.set_release_flags(flags)
    assert request._rescheduled is rescheduled  # noqa: SLF001 - what the server is told


@pytest.mark.parametrize("flags", [-1, 1 << 32, "1", None, 1.0])
def test_release_flags_that_are_none_are_type_errors(flags: Any) -> None:
    request = a_served_request(Server())
    with pytest.raises(TypeError, match=r"^set_release_flags\(\): incompatible function arguments\."):
        request.set_release_flags(flags)
    assert request._rescheduled is False  # noqa: SLF001 - what the server is told


# Preferred memory


def test_preferred_memory_is_numbered_as_in_the_original() -> None:
    gpu = PreferredMemory(MemoryType.TRITONSERVER_MEMORY_GPU)
    encoded = a_request(preferred_memory=gpu)._encoded(Outgoing(Memory()))  # noqa: SLF001 - what travels is the package's
    assert encoded[9] == (0, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"preferred_memory_type": 0},
        {"preferred_memory_type": None},
        {"preferred_memory_type": MemoryType.TRITONSERVER_MEMORY_CPU, "preferred_device_id": None},
        {"preferred_memory_type": MemoryType.TRITONSERVER_MEMORY_CPU, "preferred_device_id": 1.0},
    ],
)
def test_preferred_memory_of_other_types_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        PreferredMemory(**arguments)
