import pytest

from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.frontends.grpc import stream as stream_module
from halimede.frontends.grpc.kserve_pb2 import ModelInferResponse, ModelStreamInferResponse
from halimede.frontends.grpc.service import ServiceSettings, methods
from halimede.frontends.grpc.transport.call import StreamMethod
from tests.frontends.grpc.service_fakes import (
    STREAM,
    FakeCall,
    FakeEngine,
    FakeModel,
    echo,
    infer_request,
    status_of,
)


def open_stream(engine: FakeEngine, metadata: dict[str, str | bytes] | None = None) -> FakeCall:
    call = FakeCall(STREAM, metadata)
    method = methods(engine, ServiceSettings())[STREAM]  # type: ignore[arg-type]  # a fake
    assert isinstance(method, StreamMethod)
    method.handler(call)  # type: ignore[arg-type]  # a fake
    return call


def received(call: FakeCall) -> list[ModelStreamInferResponse]:
    return [ModelStreamInferResponse.FromString(message) for message in call.messages]


def ids(call: FakeCall) -> list[str]:
    return [message.infer_response.id for message in received(call)]


def is_final(response: ModelInferResponse) -> bool:
    return response.parameters["triton_final_response"].bool_param


def test_responses_keep_the_order_of_their_requests_across_models() -> None:
    first, second = FakeModel("a"), FakeModel("b")
    call = open_stream(FakeEngine(first, second))
    call.receive(infer_request(model="a", identifier="1"))
    call.receive(infer_request(model="b", identifier="2"))
    call.receive(infer_request(model="nothing", identifier="3"))
    call.receive(infer_request(model="b", identifier="4"))

    echo(second.requests[1])
    echo(second.requests[0])
    assert ids(call) == []
    echo(first.requests[0])

    assert ids(call) == ["1", "2", "3", "4"]
    messages = received(call)
    assert [message.infer_response.model_name for message in messages] == ["a", "b", "", "b"]
    assert messages[2].error_message == "Request for unknown model: 'nothing' is not found"
    assert all(is_final(messages[index].infer_response) for index in (0, 1, 3))
    assert not call.ended


def test_responses_of_a_decoupled_model_go_out_as_they_come() -> None:
    slow, decoupled = FakeModel("slow"), FakeModel("decoupled", decoupled=True)
    call = open_stream(FakeEngine(slow, decoupled))
    call.receive(infer_request(model="slow", identifier="1"))
    call.receive(infer_request(model="decoupled", identifier="2"))
    call.receive(infer_request(model="decoupled", identifier="3"))
    request, other = decoupled.requests

    request.respond(InferResponse({"OUTPUT0": request.inputs["INPUT0"]}), False)
    other.respond(InferResponse({"OUTPUT0": other.inputs["INPUT0"]}), True)
    request.respond(InferResponse({"OUTPUT0": request.inputs["INPUT0"]}), True)

    assert ids(call) == ["2", "3", "2"]
    assert [is_final(message.infer_response) for message in received(call)] == [False, True, True]


def test_the_end_of_a_decoupled_request_is_told_only_if_it_is_asked_for() -> None:
    model = FakeModel(decoupled=True)
    call = open_stream(FakeEngine(model))
    silent = infer_request(identifier="silent")
    told = infer_request(identifier="told", version="1")
    told.parameters["triton_enable_empty_final_response"].bool_param = True
    call.receive(silent)
    call.receive(told)

    for request in model.requests:
        request.respond(None, True)

    (message,) = received(call)
    response = message.infer_response
    assert (response.id, response.model_name, response.model_version) == ("told", "identity", "1")
    assert is_final(response)
    assert not response.outputs


def test_a_last_response_without_outputs_is_told_as_any_other() -> None:
    model = FakeModel(decoupled=True)
    call = open_stream(FakeEngine(model))
    call.receive(infer_request())

    model.requests[0].respond(InferResponse(), True)

    (message,) = received(call)
    assert (message.infer_response.model_name, message.infer_response.model_version) == ("identity", "1")
    assert is_final(message.infer_response)


def test_errors_say_whether_they_are_the_last_response() -> None:
    model = FakeModel(decoupled=True)
    call = open_stream(FakeEngine(model))
    call.receive(infer_request(identifier="x"))
    model.requests[0].respond(InferResponse(error=InternalError("one")), False)
    model.requests[0].respond(InferResponse(error=InternalError("two")), True)

    messages = received(call)
    assert [is_final(message.infer_response) for message in messages] == [False, True]
    assert {message.infer_response.model_name for message in messages} == {"identity"}
    assert {message.infer_response.id for message in messages} == {"x"}


def test_a_request_that_the_engine_refuses_is_told_by_its_id_alone() -> None:
    def refuse(request: InferRequest) -> None:
        request.respond(InferResponse(error=InvalidArgumentError("wrong shape")), True)

    call = open_stream(FakeEngine(FakeModel(answer=refuse), FakeModel("late")))
    call.receive(infer_request(identifier="x"))

    (message,) = received(call)
    assert message.error_message == "wrong shape"
    assert message.infer_response == ModelInferResponse(id="x")


def test_decoupled_models_are_held_back_while_the_client_does_not_read() -> None:
    ordinary, decoupled = FakeModel("ordinary"), FakeModel("decoupled", decoupled=True)
    call = open_stream(FakeEngine(ordinary, decoupled))
    call.receive(infer_request(model="ordinary"))
    call.receive(infer_request(model="decoupled"))
    call.receive(infer_request(model="decoupled"))
    first, second = decoupled.requests
    drained: list[InferRequest] = []
    first.on_drain = second.on_drain = drained.append

    call.writable = False
    first.respond(InferResponse({"OUTPUT0": first.inputs["INPUT0"]}), False)
    assert first.congested
    assert second.congested
    assert not ordinary.requests[0].congested
    call.receive(infer_request(model="decoupled"))  # it was under way before the stream was paused
    assert decoupled.requests[2].congested

    call.drain()
    assert not any(request.congested for request in decoupled.requests)
    assert set(drained) == {first, second}
    assert not call.paused


def test_who_fills_the_stream_again_at_once_leaves_the_others_held_back() -> None:
    model = FakeModel(decoupled=True)
    call = open_stream(FakeEngine(model))
    for _ in range(2):
        call.receive(infer_request())

    def flood(request: InferRequest) -> None:
        call.writable = False
        request.respond(InferResponse({"OUTPUT0": request.inputs["INPUT0"]}), False)

    for request in model.requests:
        request.on_drain = flood
    call.writable = False
    model.requests[0].respond(InferResponse({"OUTPUT0": model.requests[0].inputs["INPUT0"]}), False)
    call.drain()

    assert len(call.messages) == 2
    assert all(request.congested for request in model.requests)


def test_an_error_is_told_in_the_stream_which_goes_on() -> None:
    model = FakeModel()
    call = open_stream(FakeEngine(model))
    call.receive(infer_request(identifier="1"))
    model.requests[0].respond(InferResponse(error=InternalError("it broke")), True)
    call.receive(b"\xff")
    call.receive(infer_request(identifier="3"))
    echo(model.requests[1])
    call.half_close()

    first, second, third = received(call)
    assert (first.error_message, first.infer_response.id) == ("it broke", "1")
    assert "not a valid ModelInferRequest" in second.error_message
    assert third.infer_response.outputs[0].name == "OUTPUT0"
    assert call.status == 0


def test_an_error_before_the_model_is_found_names_its_request() -> None:
    call = open_stream(FakeEngine())
    for version in ("", "x"):
        call.receive(infer_request(identifier="x", version=version))

    unknown, unreadable = received(call)
    assert unknown.error_message == "Request for unknown model: 'identity' is not found"
    assert unreadable.error_message.startswith(
        "failed to get model version from specified version string 'x'"
    )
    assert unknown.infer_response == unreadable.infer_response == ModelInferResponse(id="x")


def test_an_error_of_the_model_names_model_and_version_as_the_request_did() -> None:
    model = FakeModel()
    call = open_stream(FakeEngine(model))
    for version in ("", "1"):
        call.receive(infer_request(version=version))
    for request in model.requests:
        request.respond(InferResponse(error=InternalError("it broke")), True)

    responses = [message.infer_response for message in received(call)]
    assert [(each.model_name, each.model_version) for each in responses] == [
        ("identity", ""),
        ("identity", "1"),
    ]


def test_a_request_that_contradicts_itself_hears_first_whether_there_is_its_model() -> None:
    call = open_stream(FakeEngine(FakeModel()))
    for name in ("none", "identity"):
        message = infer_request(model=name)
        message.parameters["priority"].int64_param = -1
        call.receive(message)

    assert [message.error_message for message in received(call)] == [
        "Request for unknown model: 'none' is not found",
        "invalid value for 'priority', expected value >= 0.",
    ]


def test_with_triton_grpc_error_a_request_that_is_not_taken_does_not_end_the_stream() -> None:
    model = FakeModel(answer=echo)
    call = open_stream(FakeEngine(model), {"triton_grpc_error": "true"})
    call.receive(infer_request(model="none", identifier="1"))
    call.receive(infer_request(identifier="2"))

    refused, answered = received(call)
    assert (refused.error_message, refused.infer_response.id) == (
        "Request for unknown model: 'none' is not found",
        "1",
    )
    assert answered.infer_response.id == "2"
    assert not call.ended


def test_with_triton_grpc_error_the_first_error_of_a_model_ends_the_stream_and_cancels_the_rest() -> None:
    model = FakeModel()
    call = open_stream(FakeEngine(model), {"triton_grpc_error": "true"})
    for identifier in "123":
        call.receive(infer_request(identifier=identifier))
    failing, *others = model.requests

    failing.respond(InferResponse(error=InvalidArgumentError("wrong shape")), True)

    assert (call.status, call.text) == (status_of(InvalidArgumentError), "wrong shape")
    assert call.messages == []
    assert all(request.cancelled for request in others)
    call.receive(infer_request())
    assert len(model.requests) == 3


def test_half_close_waits_for_what_is_in_flight() -> None:
    model, decoupled = FakeModel(), FakeModel("decoupled", decoupled=True)
    call = open_stream(FakeEngine(model, decoupled))
    call.receive(infer_request())
    call.receive(infer_request(model="decoupled"))
    call.half_close()
    assert not call.ended

    decoupled.requests[0].respond(None, True)
    assert not call.ended
    echo(model.requests[0])

    assert call.status == 0
    assert len(call.messages) == 1


def test_half_close_of_an_unused_stream_ends_it() -> None:
    call = open_stream(FakeEngine())
    call.half_close()

    assert call.status == 0


def test_cancelling_the_stream_cancels_all_its_requests() -> None:
    model = FakeModel()
    call = open_stream(FakeEngine(model))
    for _ in range(3):
        call.receive(infer_request())
    call.cancel()

    assert all(request.cancelled for request in model.requests)
    assert call.messages == []
    assert not call.ended


def test_no_more_is_read_while_the_client_does_not_read() -> None:
    model = FakeModel(answer=echo)
    call = open_stream(FakeEngine(model))
    call.writable = False
    call.receive(infer_request())
    paused = call.paused
    call.drain()

    assert (paused, call.paused) == (True, False)


def test_no_more_is_read_while_too_much_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_LARGEST_INFLIGHT", 10_000)
    model = FakeModel()
    engine = FakeEngine(model)
    call = open_stream(engine)
    paused = []
    for data in (b"1234", bytes(4000)):
        call.receive(infer_request(data, shape=(len(data) // 4,)))
        paused.append(call.paused)
    for request in reversed(model.requests):
        echo(request)
        engine.clock.run()
        paused.append(call.paused)

    assert paused == [False, True, True, False]  # the response that came first waits for its turn


def test_a_model_that_answers_at_once_is_answered_in_order() -> None:
    late = FakeModel("late")
    call = open_stream(FakeEngine(FakeModel(answer=echo), late))
    call.receive(infer_request(model="late", identifier="1"))
    call.receive(infer_request(identifier="2"))
    assert ids(call) == []
    echo(late.requests[0])

    assert ids(call) == ["1", "2"]


def test_several_errors_of_a_decoupled_request_are_all_told() -> None:
    model = FakeModel(decoupled=True)
    call = open_stream(FakeEngine(model))
    call.receive(infer_request())
    request: InferRequest = model.requests[0]
    request.respond(InferResponse(error=InternalError("one")), False)
    request.respond(InferResponse(error=InternalError("two")), True)
    call.half_close()

    assert [message.error_message for message in received(call)] == ["one", "two"]
    assert call.status == 0
