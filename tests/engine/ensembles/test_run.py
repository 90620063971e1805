from itertools import pairwise

import numpy as np
import pytest

from halimede.core.errors import (
    CancelledError,
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from tests.engine.ensembles.conftest import Start
from tests.engine.ensembles.fakes import Bench, FakeModel, ensemble, model, parse, step, tensor, values

CHAIN = ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y"))
DIAMOND = ensemble(
    step("split", "IN=X", "LEFT=l RIGHT=r"),
    step("left", "IN=l", "OUT=l2"),
    step("right", "IN=r", "OUT=r2"),
    step("join", "IN0=l2 IN1=r2", "OUT=Y"),
)


def diamond(start: Start) -> Bench:
    return start(
        DIAMOND,
        model("split", "IN", "LEFT RIGHT"),
        model("left"),
        model("right"),
        model("join", "IN0 IN1"),
    )


def test_steps_run_one_after_the_other_and_the_last_one_answers(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer({"X": tensor(5)})
    assert values(bench.fake("a").requests[0].inputs["IN"]) == [5]
    assert not bench.fake("b").seen
    bench.fake("a").send(6)
    assert values(bench.fake("b").requests[0].inputs["IN"]) == [6]
    assert not bench.answers
    bench.fake("b").send(7)
    assert values(bench.response.outputs["Y"]) == [7]


def test_branches_run_at_the_same_time(start: Start) -> None:
    bench = diamond(start)
    bench.infer()
    bench.fake("split").send(LEFT=tensor(1), RIGHT=tensor(2))
    assert len(bench.fake("left").requests) == len(bench.fake("right").requests) == 1
    bench.fake("right").send(20)
    assert not bench.fake("join").seen
    bench.fake("left").send(10)
    joined = bench.fake("join").requests[0].inputs
    assert values(joined["IN0"]) == [10]
    assert values(joined["IN1"]) == [20]
    bench.fake("join").send(3)
    assert values(bench.response.outputs["Y"]) == [3]


def test_tensors_are_handed_on_as_they_are(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    given, between, result = tensor(1), tensor(2), tensor(3)
    bench.infer({"X": given})
    assert bench.fake("a").requests[0].inputs["IN"] is given
    bench.fake("a").send(OUT=between)
    assert bench.fake("b").requests[0].inputs["IN"] is between
    bench.fake("b").send(OUT=result)
    assert bench.response.outputs["Y"] is result
    assert not any(each.shared for each in (given, between, result))


def test_tensors_with_two_readers_are_marked_as_shared(start: Start) -> None:
    bench = start(
        ensemble(
            step("a", "IN=X", "OUT=Y"),
            step("b", "IN=Y", "OUT=t"),
            step("c", "IN0=t IN1=t", "OUT=Z"),
            outputs="Y Z",
        ),
        model("a"),
        model("b"),
        model("c", "IN0 IN1"),
    )
    read_and_put_out, read_twice, only_put_out = tensor(1), tensor(2), tensor(3)
    bench.infer()
    bench.fake("a").send(OUT=read_and_put_out)
    bench.fake("b").send(OUT=read_twice)
    bench.fake("c").send(OUT=only_put_out)
    assert read_and_put_out.shared
    assert read_twice.shared
    assert not only_put_out.shared
    assert list(bench.response.outputs) == ["Y", "Z"]


def test_a_tensor_that_only_one_step_of_the_route_reads_is_not_shared(start: Start) -> None:
    config = ensemble(step("a", "IN=X", "OUT=Y"), step("b", "IN=X", "OUT=Z"), outputs="Y Z")
    bench = start(config, model("a"), model("b"))
    given = tensor(1)
    bench.infer({"X": given}, outputs=["Z"])
    assert not given.shared


def test_steps_that_no_requested_output_needs_do_not_run(start: Start) -> None:
    config = ensemble(step("a", "IN=X", "OUT=t MORE=Z"), step("b", "IN=t", "OUT=Y"), outputs="Y Z")
    bench = start(config, model("a", "IN", "OUT MORE"), model("b"))
    bench.infer(outputs=["Z"])
    assert bench.fake("a").requests[0].outputs == ("MORE",)
    bench.fake("a").send(MORE=tensor(4))
    assert not bench.fake("b").seen
    assert list(bench.response.outputs) == ["Z"]


def test_an_input_may_be_an_output(start: Start) -> None:
    config = ensemble(step("a", "IN=X", "OUT=Y"), outputs="X Y")
    bench = start(config, model("a"))
    given = tensor(2)
    bench.infer({"X": given}, outputs=["X"])
    assert bench.response.outputs["X"] is given
    assert not bench.fake("a").seen


def test_models_that_answer_at_once_do_not_recurse(start: Start) -> None:
    def echo(request: InferRequest) -> None:
        request.respond(InferResponse({"OUT": request.inputs["IN"]}), True)

    names = ["X", *(f"t{index}" for index in range(400)), "Y"]
    steps = [step("a", f"IN={before}", f"OUT={after}") for before, after in pairwise(names)]
    bench = start(ensemble(*steps), FakeModel(model("a"), echo))
    bench.infer({"X": tensor(8)})
    assert values(bench.response.outputs["Y"]) == [8]


def test_ensembles_may_be_made_of_ensembles(start: Start) -> None:
    inner = start(ensemble(step("a", "IN=X", "OUT=Y"), name="inner"), model("a"))
    bench = start(
        ensemble(step("inner", "X=X", "Y=t"), step("b", "IN=t", "OUT=Y")), inner.ensemble, model("b")
    )
    bench.infer()
    inner.fake("a").send(5)
    bench.fake("b").send(6)
    assert values(bench.response.outputs["Y"]) == [6]
    assert inner.ensemble.statistics.success.count == 1
    assert inner.ensemble.inflight == bench.ensemble.inflight == 0


# Optional tensors


def optional(start: Start) -> Bench:
    config = ensemble(
        step("a", "IN=X EXTRA=E", "OUT=t MORE=m"),
        step("b", "IN=t EXTRA=m", "OUT=Y"),
        inputs="X E?",
    )
    return start(config, model("a", "IN EXTRA?", "OUT MORE"), model("b", "IN EXTRA?"))


def test_an_optional_input_that_is_left_out_is_left_out_for_the_step(start: Start) -> None:
    bench = optional(start)
    bench.infer({"X": tensor(1)})
    assert list(bench.fake("a").requests[0].inputs) == ["IN"]


def test_an_optional_input_that_is_given_reaches_the_step(start: Start) -> None:
    bench = optional(start)
    bench.infer({"X": tensor(1), "E": tensor(2)})
    assert values(bench.fake("a").requests[0].inputs["EXTRA"]) == [2]


def test_an_output_that_a_step_leaves_out_is_left_out_downstream(start: Start) -> None:
    bench = optional(start)
    bench.infer()
    bench.fake("a").send(OUT=tensor(3))
    assert list(bench.fake("b").requests[0].inputs) == ["IN"]
    bench.fake("b").send(1)
    assert list(bench.response.outputs) == ["Y"]


def test_the_response_lacks_outputs_that_steps_left_out(start: Start) -> None:
    config = ensemble(step("a", "IN=X", "OUT=Y MORE=Z"), outputs="Y Z")
    bench = start(config, model("a", "IN", "OUT MORE"))
    bench.infer()
    bench.fake("a").send(OUT=tensor(3))
    assert list(bench.response.outputs) == ["Y"]


def test_a_left_out_tensor_that_a_step_needs_is_an_error_of_that_step(start: Start) -> None:
    config = ensemble(step("a", "IN=X EXTRA=E", "OUT=Y"), inputs="X E?")
    bench = start(config, model("a", "IN EXTRA"))
    bench.infer()
    assert isinstance(bench.error, InvalidArgumentError)
    assert (
        "in ensemble 'e', [request id: <id_unknown>] expected 2 inputs but got 1 inputs for model 'a'"
        in str(bench.error)
    )


# Batch dimensions


@pytest.mark.parametrize(("rows", "shape"), [(1, (4,)), (2, None)])
def test_one_row_loses_its_batch_dimension_for_a_model_without(
    start: Start, rows: int, shape: tuple[int, ...] | None
) -> None:
    config = ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y"), batch=8, dims="-1")
    bench = start(config, model("a", batch=8), model("b"))
    bench.infer({"X": tensor(*range(4 * rows)).reshaped((rows, 4))})
    between = tensor(*range(4 * rows)).reshaped((rows, 4))
    bench.fake("a").send(OUT=between)
    if shape is None:
        assert "unexpected shape for input 'IN' for model 'b'. Expected [-1], got [2,4]" in str(bench.error)
        return
    got = bench.fake("b").requests[0].inputs["IN"]
    assert got.shape == shape
    assert shares(got, between)
    result = tensor(9, 8, 7)
    bench.fake("b").send(OUT=result)
    assert bench.response.outputs["Y"].shape == (1, 3)
    assert shares(bench.response.outputs["Y"], result)


def shares(one: Tensor, other: Tensor) -> bool:
    return np.shares_memory(one.array, other.array)


def test_a_model_with_the_batch_dimension_among_its_dims_gets_all_rows(start: Start) -> None:
    config = ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y"), batch=8, dims="4")
    bench = start(config, model("a", batch=8, dims="4"), model("b", dims="-1, 4"))
    bench.infer({"X": tensor(*range(4)).reshaped((1, 4))})
    bench.fake("a").send(OUT=tensor(*range(4)).reshaped((1, 4)))
    assert bench.fake("b").requests[0].inputs["IN"].shape == (1, 4)
    bench.fake("b").send(OUT=tensor(*range(8)).reshaped((2, 4)))
    assert bench.response.outputs["Y"].shape == (2, 4)


# Errors and cancellation


def test_an_error_keeps_its_code_and_names_the_ensemble_and_the_step(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer()
    bench.fake("a").send(1)
    bench.fake("b").fail(UnavailableError("[request id: <id_unknown>] Exceeds maximum queue size"))
    assert isinstance(bench.error, UnavailableError)
    assert bench.error.message == (
        "in ensemble 'e', [request id: <id_unknown>] Exceeds maximum queue size (in step 1, model 'b')"
    )


def test_an_error_of_several_lines_is_followed_by_the_step_on_its_own(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer()
    bench.fake("a").fail(InternalError("ValueError: no\n\nAt:\n  /m/model.py(3): execute\n"))
    assert bench.error.message.endswith("  /m/model.py(3): execute\n (in step 0, model 'a')")


def test_an_error_is_told_when_the_other_branch_is_finished(start: Start) -> None:
    bench = diamond(start)
    bench.infer()
    bench.fake("split").send(LEFT=tensor(1), RIGHT=tensor(2))
    bench.fake("left").fail(InternalError("first"))
    assert not bench.answers
    assert bench.fake("right").requests[0].cancelled
    bench.fake("right").fail(InternalError("second"))
    assert "first" in bench.error.message
    assert not bench.fake("join").seen


def test_a_model_that_is_gone_is_an_error_of_its_step(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    del bench.models["b"]
    bench.infer()
    bench.fake("a").send(1)
    assert isinstance(bench.error, NotFoundError)
    assert "in ensemble 'e', Request for unknown model: 'b' is not found" in bench.error.message


def test_a_model_that_breaks_down_is_an_error_of_its_step(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: InferRequest) -> None:
        raise ZeroDivisionError("oh")

    bench = start(CHAIN, FakeModel(model("a"), broken), model("b"))
    bench.infer()
    assert isinstance(bench.error, InternalError)
    assert "ZeroDivisionError: oh" in bench.error.message
    assert "a step of ensemble 'e' failed" in caplog.text


def test_a_model_that_ends_without_a_response_is_a_deadlock(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer(id="7")
    bench.fake("a").end()
    assert isinstance(bench.error, InvalidArgumentError)
    assert bench.error.message == (
        "in ensemble 'e', [request id: 7] unexpected deadlock, at least one output is not set while no more ensemble "
        "steps can be made"
    )


def test_an_ordinary_model_may_end_after_its_response(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer()
    bench.fake("a").send(1, final=False)
    bench.fake("b").send(2)
    assert not bench.answers
    bench.fake("a").end()
    assert values(bench.response.outputs["Y"]) == [2]


def test_an_ordinary_model_with_two_responses_is_an_error(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer()
    bench.fake("a").send(1, final=False)
    bench.fake("a").send(2)
    bench.fake("b").send(2)
    assert isinstance(bench.error, InternalError)
    assert "more than one response" in bench.error.message


def test_a_request_that_is_cancelled_already_runs_nothing(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer(cancelled=True)
    assert isinstance(bench.error, CancelledError)
    assert not bench.fake("a").seen


def test_nothing_comes_of_a_cancellation_after_the_end(start: Start) -> None:
    bench = start(ensemble(step("a", "IN=X", "OUT=Y")), model("a"))
    request = bench.infer()
    bench.fake("a").send(1)
    request.cancel()
    assert bench.response


@pytest.mark.parametrize("error", [InternalError("no"), UnavailableError("full")])
def test_a_wrong_request_is_refused_before_any_step(start: Start, error: HalimedeError) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer({"Z": tensor(1)})
    assert bench.error.message == "unexpected inference input 'Z' for model 'e'. The inputs are: X"
    assert not bench.fake("a").seen


# What steps inherit


def test_steps_get_what_the_request_says(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer(
        id="7",
        priority=2,
        parameters={"k": 1},
        sequence_id="s",
        sequence_start=True,
        sequence_end=True,
    )
    bench.fake("a").send(1)
    for name in "ab":
        got = bench.fake(name).seen[0]
        assert (got.id, got.priority, got.parameters) == ("7", 2, {"k": 1})
        assert (got.sequence_id, got.sequence_start, got.sequence_end) == ("s", True, True)
        assert (got.model_name, got.model_version, got.timeout_us) == (name, 3, 0)


def test_a_timeout_is_shorter_for_later_steps(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer(timeout_us=1_000)
    bench.clock.advance(400_000)
    bench.fake("a").send(1)
    assert bench.fake("a").seen[0].timeout_us == 1_000
    assert bench.fake("b").seen[0].timeout_us == 600


def test_a_timeout_that_is_over_stays_one(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer(timeout_us=1_000)
    bench.clock.advance(2_000_000)
    bench.fake("a").send(1)
    assert bench.fake("b").seen[0].timeout_us == 1


def test_a_response_may_change_the_sequence_of_all_steps_after_it(start: Start) -> None:
    config = ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=u"), step("c", "IN=u", "OUT=Y"))
    bench = start(config, model("a"), model("b"), model("c"))
    bench.infer(sequence_id=5, sequence_end=True)
    bench.fake("a").send(1, parameters={"sequence_id": 9, "sequence_start": True, "other": 1})
    bench.fake("b").send(1, parameters={"other": 2})
    for name in "bc":
        got = bench.fake(name).seen[0]
        assert (got.sequence_id, got.sequence_start, got.sequence_end) == (9, True, False)


def test_a_response_may_change_only_the_flags_of_the_sequence(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer(sequence_id=5, sequence_start=True)
    bench.fake("a").send(1, parameters={"sequence_end": True})
    got = bench.fake("b").seen[0]
    assert (got.sequence_id, got.sequence_start, got.sequence_end) == (5, False, True)


@pytest.mark.parametrize("batch", [0, 8])
def test_clients_see_the_ensembles_dims_and_steps_its_reshape(start: Start, batch: int) -> None:
    reshaped = "data_type: TYPE_FP32 dims: [ -1 ] reshape { shape: [ 1, -1, 1 ] }"
    config = parse(
        f'name: "e" platform: "ensemble" max_batch_size: {batch} input {{ name: "X" {reshaped} }} '
        f'output {{ name: "Y" {reshaped} }} ensemble_scheduling {{ {step("a", "IN=X", "OUT=Y")} }}'
    )
    bench = start(config, model("a", batch=batch, dims="1, -1, 1"))
    lead = (1,) if batch else ()
    bench.infer({"X": tensor(1, 2, 3).reshaped((*lead, 3))})
    assert bench.fake("a").requests[0].inputs["IN"].shape == (*lead, 1, 3, 1)
    bench.fake("a").send(OUT=tensor(4, 5).reshaped((*lead, 1, 2, 1)))
    assert bench.response.outputs["Y"].shape == (*lead, 2)
