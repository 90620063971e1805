import pytest

from halimede.core.errors import CancelledError, InternalError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from tests.engine.ensembles.conftest import Start
from tests.engine.ensembles.fakes import Bench, FakeModel, ensemble, model, step, tensor, values

STREAM = ensemble(step("many", "IN=X", "OUT=t"), step("each", "IN=t", "OUT=Y"))


def streaming(start: Start) -> Bench:
    return start(STREAM, model("many", decoupled=True), model("each"))


def test_each_response_of_a_decoupled_step_goes_its_own_way(start: Start) -> None:
    bench = streaming(start)
    bench.infer()
    bench.fake("many").send(1)
    bench.fake("many").send(2)
    assert [values(each.inputs["IN"]) for each in bench.fake("each").requests] == [[1], [2]]
    bench.fake("each").send(10)
    assert bench.stream == [[10]]
    bench.fake("each").send(20)
    assert bench.stream == [[10], [20]]
    assert not bench.ended
    bench.fake("many").end()
    assert bench.answers[-1] == (None, True)
    assert bench.ensemble.inflight == 0


def test_a_decoupled_last_step_streams_as_it_goes(start: Start) -> None:
    config = ensemble(step("one", "IN=X", "OUT=t"), step("many", "IN=t", "OUT=Y"))
    bench = start(config, model("one"), model("many", decoupled=True))
    bench.infer()
    bench.fake("one").send(1)
    bench.fake("many").send(1)
    bench.fake("many").send(2)
    assert bench.stream == [[1], [2]]
    bench.fake("many").end()
    assert bench.ended


def test_the_last_response_may_be_the_final_one(start: Start) -> None:
    bench = streaming(start)
    bench.infer()
    bench.fake("many").send(1)
    bench.fake("many").send(2, final=True)
    bench.fake("each").send(10)
    bench.fake("each").send(20)
    assert bench.stream == [[10], [20]]
    assert bench.finals == [False, True]
    assert bench.ensemble.inflight == 0
    assert bench.ensemble.statistics.success.count == 1


@pytest.mark.parametrize(
    "steps", ["many", "many each", "one many", "one many each", "many many", "many each many"]
)
def test_a_final_response_with_outputs_ends_what_any_chain_answers(start: Start, steps: str) -> None:
    """Decoupled models that send their last response and its end at once."""

    def stream(request: InferRequest) -> None:
        for number in range(3):
            request.respond(
                InferResponse({"OUT": tensor(*values(request.inputs["IN"]), number)}), number == 2
            )

    def echo(request: InferRequest) -> None:
        request.respond(InferResponse({"OUT": request.inputs["IN"]}), True)

    names = steps.split()
    ends = ["X", *(f"t{number}" for number in range(1, len(names))), "Y"]
    config = ensemble(*(step(name, f"IN={ends[i]}", f"OUT={ends[i + 1]}") for i, name in enumerate(names)))
    models = [
        FakeModel(model(name, decoupled=name == "many"), stream if name == "many" else echo)
        for name in dict.fromkeys(names)
    ]
    bench = start(config, *models)
    bench.infer()
    assert len(bench.stream) == 3 ** names.count("many")
    assert bench.finals == [False] * (len(bench.stream) - 1) + [True]


def test_responses_keep_the_order_of_their_origins(start: Start) -> None:
    bench = streaming(start)
    bench.infer()
    for number in range(3):
        bench.fake("many").send(number)
    bench.fake("many").end()
    bench.fake("each").send(2, index=2)
    bench.fake("each").send(1, index=1)
    assert bench.stream == []
    bench.fake("each").send(0)
    assert bench.stream == [[0], [1], [2]]
    assert bench.ended


def test_no_response_at_all_is_an_empty_final_one(start: Start) -> None:
    bench = streaming(start)
    bench.infer()
    bench.fake("many").end()
    assert bench.answers == [(None, True)]
    assert bench.ensemble.statistics.success.count == 1


def test_a_final_response_without_outputs_begins_nothing(start: Start) -> None:
    bench = streaming(start)
    bench.infer()
    bench.fake("many").requests.pop().respond(InferResponse(), True)
    assert bench.answers == [(None, True)]
    assert not bench.fake("each").seen


def test_steps_that_do_not_depend_on_the_stream_run_once(start: Start) -> None:
    config = ensemble(
        step("once", "IN=X", "OUT=c"),
        step("many", "IN=X", "OUT=t"),
        step("join", "IN0=t IN1=c", "OUT=Y"),
    )
    bench = start(config, model("once"), model("many", decoupled=True), model("join", "IN0 IN1"))
    bench.infer()
    bench.fake("many").send(1)
    assert not bench.fake("join").seen
    common = tensor(7)
    bench.fake("once").send(OUT=common)
    bench.fake("many").send(2)
    bench.fake("many").end()
    assert [values(each.inputs["IN0"]) for each in bench.fake("join").requests] == [[1], [2]]
    assert all(each.inputs["IN1"] is common for each in bench.fake("join").requests)
    assert common.shared
    bench.fake("join").send(1)
    bench.fake("join").send(2)
    assert bench.stream == [[1], [2]]
    assert bench.ended


def test_an_output_that_does_not_depend_on_the_stream_is_in_every_response(start: Start) -> None:
    config = ensemble(step("once", "IN=X", "OUT=Z"), step("many", "IN=X", "OUT=Y"), outputs="Y Z")
    bench = start(config, model("once"), model("many", decoupled=True))
    bench.infer()
    bench.fake("many").send(1)
    bench.fake("many").send(2)
    bench.fake("many").end()
    assert not bench.answers
    bench.fake("once").send(9)
    assert bench.stream == [[1], [2]]
    assert [values(each.outputs["Z"]) for each, _ in bench.answers if each] == [[9], [9]]
    assert bench.ended


def test_a_request_for_outputs_beside_the_stream_gets_one_response(start: Start) -> None:
    config = ensemble(step("once", "IN=X", "OUT=Y"), step("many", "IN=X", "OUT=Z"), outputs="Y Z")
    bench = start(config, model("once"), model("many", decoupled=True))
    bench.infer(outputs=["Y"])
    bench.fake("once").send(9)
    assert bench.stream == [[9]]
    assert bench.ended
    assert not bench.fake("many").seen


NESTED = ensemble(
    step("outer", "IN=X", "OUT=t"), step("inner", "IN=t", "OUT=u"), step("each", "IN=u", "OUT=Y")
)


def test_streams_of_streams_come_in_order(start: Start) -> None:
    bench = start(NESTED, model("outer", decoupled=True), model("inner", decoupled=True), model("each"))
    bench.infer()
    bench.fake("outer").send(1)
    bench.fake("outer").send(2)
    bench.fake("outer").end()
    inner, each = bench.fake("inner"), bench.fake("each")
    for index, number in ((1, 21), (0, 11), (1, 22), (0, 12)):
        inner.send(number, index=index)
    for request in list(each.requests):
        each.requests.remove(request)
        request.respond(InferResponse({"OUT": request.inputs["IN"]}), True)
    assert bench.stream == [[11], [12]]
    inner.end(0)
    assert bench.stream == [[11], [12], [21], [22]]
    assert not bench.ended
    inner.end()
    assert bench.ended


def test_a_tensor_of_the_outer_stream_may_be_joined_with_the_inner_one(start: Start) -> None:
    config = ensemble(
        step("outer", "IN=X", "OUT=t"), step("inner", "IN=t", "OUT=u"), step("join", "IN0=t IN1=u", "OUT=Y")
    )
    bench = start(
        config, model("outer", decoupled=True), model("inner", decoupled=True), model("join", "IN0 IN1")
    )
    bench.infer()
    for number in (1, 2):
        bench.fake("outer").send(number)
    bench.fake("outer").end()
    bench.fake("inner").send(21, index=1)
    bench.fake("inner").send(11, index=0)
    got = [(values(each.inputs["IN0"]), values(each.inputs["IN1"])) for each in bench.fake("join").requests]
    assert got == [([2], [21]), ([1], [11])]


def test_a_decoupled_ensemble_may_be_a_step(start: Start) -> None:
    inner = start(STREAM, model("many", decoupled=True), model("each"))
    bench = start(
        ensemble(step("e", "X=X", "Y=t"), step("last", "IN=t", "OUT=Y"), name="outer"),
        inner.ensemble,
        model("last"),
    )
    bench.infer()
    assert bench.ensemble.signature.decoupled
    inner.fake("many").send(1)
    inner.fake("each").send(10)
    inner.fake("many").end()
    assert values(bench.fake("last").requests[0].inputs["IN"]) == [10]
    bench.fake("last").send(100)
    assert bench.stream == [[100]]
    assert bench.ended


def test_the_sequence_may_differ_from_response_to_response(start: Start) -> None:
    bench = streaming(start)
    bench.infer(sequence_id=1)
    bench.fake("many").send(1, parameters={"sequence_id": 8})
    bench.fake("many").send(2, parameters={"sequence_id": 9})
    bench.fake("many").send(3)
    assert [each.sequence_id for each in bench.fake("each").seen] == [8, 9, 1]


def test_an_error_amid_the_stream_ends_it_when_all_is_finished(start: Start) -> None:
    bench = streaming(start)
    bench.infer()
    bench.fake("many").send(1)
    bench.fake("many").send(2)
    bench.fake("each").send(10)
    bench.fake("each").fail(InternalError("boom"))
    assert bench.stream == [[10]]
    assert not bench.ended
    assert bench.fake("many").requests[0].cancelled
    bench.fake("many").send(3)
    assert len(bench.fake("each").seen) == 2
    bench.fake("many").end()
    assert bench.error.message == "in ensemble 'e', boom (in step 1, model 'each')"


def test_an_error_that_is_not_the_last_response_fails_the_request(start: Start) -> None:
    bench = streaming(start)
    bench.infer()
    bench.fake("many").fail(InternalError("one of many"), final=False)
    assert not bench.answers
    bench.fake("many").end()
    assert "one of many" in bench.error.message


def test_a_cancelled_stream_ends_with_its_model(start: Start) -> None:
    bench = streaming(start)
    request = bench.infer()
    bench.fake("many").send(1)
    bench.fake("each").send(1)
    request.cancel()
    bench.fake("many").send(2)
    assert len(bench.fake("each").seen) == 1
    bench.fake("many").fail(CancelledError("the request was cancelled"))
    assert isinstance(bench.error, CancelledError)
    assert bench.stream == [[1]]


def test_a_client_that_cancels_on_a_response_gets_no_more(start: Start) -> None:
    bench = streaming(start)
    request = bench.infer()
    for number in range(3):
        bench.fake("many").send(number)
    bench.fake("many").end()
    got: list[bool] = []

    def respond(response: InferResponse | None, final: bool) -> None:
        got.append(final)
        request.cancel()

    request.respond = respond
    bench.fake("each").send(2, index=2)
    bench.fake("each").send(1, index=1)
    bench.fake("each").send(0)
    assert got == [False, True]


def test_an_iteration_that_is_never_completed_is_a_deadlock(start: Start) -> None:
    bench = streaming(start)
    bench.infer()
    bench.fake("many").send(1)
    bench.fake("many").end()
    bench.fake("each").end()
    assert isinstance(bench.error, InvalidArgumentError)
    assert "unexpected deadlock" in bench.error.message


def test_long_streams_of_models_that_answer_at_once_do_not_recurse(start: Start) -> None:
    def stream(request: InferRequest) -> None:
        for number in range(2_000):
            request.respond(InferResponse({"OUT": tensor(number)}), False)
        request.respond(None, True)

    def echo(request: InferRequest) -> None:
        request.respond(InferResponse({"OUT": request.inputs["IN"]}), True)

    for inflight in (0, 1):
        config = ensemble(step("many", "IN=X", "OUT=t"), step("each", "IN=t", "OUT=Y"), inflight=inflight)
        bench = start(
            config, FakeModel(model("many", decoupled=True), stream), FakeModel(model("each"), echo)
        )
        bench.infer()
        assert bench.stream == [[number] for number in range(2_000)]
        assert bench.ended


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_branches_of_one_stream_are_joined_response_by_response(start: Start, order: tuple[int, ...]) -> None:
    config = ensemble(
        step("many", "IN=X", "OUT=t"),
        step("left", "IN=t", "OUT=l"),
        step("right", "IN=t", "OUT=r"),
        step("join", "IN0=l IN1=r", "OUT=Y"),
    )
    bench = start(
        config, model("many", decoupled=True), model("left"), model("right"), model("join", "IN0 IN1")
    )
    bench.infer()
    for number in range(3):
        bench.fake("many").send(number)
    left, right = bench.fake("left"), bench.fake("right")
    lefts = list(left.requests)
    for index in order:
        left.send(10 + index, index=left.requests.index(lefts[index]))
    for index in range(3):
        right.send(20 + index)
    pairs = [(values(each.inputs["IN0"]), values(each.inputs["IN1"])) for each in bench.fake("join").seen]
    assert pairs == [([10], [20]), ([11], [21]), ([12], [22])]
