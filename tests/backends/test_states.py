"""What an instance keeps for sequences, under batches that a model of a few lines runs."""

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.backends.devices import staying
from halimede.backends.execution import execute
from halimede.backends.states import SequenceStates
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.errors import InternalError, InvalidArgumentError, OutOfMemoryError
from halimede.core.requests import InferResponse
from halimede.core.sequences import ENDED
from halimede.core.tensors import Array
from tests.backends.helpers import floats
from tests.backends.sequences import Step, batch_of, values

TENSORS = """
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
STATES = """
    state { input_name: "B_IN" output_name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] }
    state { input_name: "A_IN" output_name: "STEPS" data_type: TYPE_INT32 dims: [ 2 ] }
"""
Compute = Callable[[dict[str, Array]], dict[str, Array]]


def signature_of(text: str, size: int = 64) -> Signature:
    config = parse_text(f'name: "m" backend: "b" max_batch_size: {size} {text}', "test")
    normalise(config)
    return Signature.from_config(config)


def sums(inputs: dict[str, Array]) -> dict[str, Array]:
    """OUTPUT is the sum, which is kept, as is the number of steps; a value below 0 fails, 1000 leaves the sum as is."""
    values = inputs["INPUT"]
    if (values < 0).any():
        raise InvalidArgumentError("a value is below 0")
    total = inputs["B_IN"] + values
    outputs = {"OUTPUT": total, "SUM": total, "STEPS": inputs["A_IN"] + 1}
    if (values == 1000).any():
        del outputs["SUM"]
    return outputs


class Model(Instance):
    """An instance that computes a function."""

    def __init__(
        self, text: str = STATES, compute: Compute = sums, *, size: int = 64, repeatable: bool = False
    ) -> None:
        self.repeatable = repeatable
        self.signature = signature_of(f"{TENSORS} sequence_batching {{ {text} }}", size)
        initial = {
            name: np.zeros([max(1, dim) for dim in spec.input.dims], spec.input.datatype.numpy)
            for name, spec in self.signature.states.items()
        }
        self.kept = self.states = SequenceStates(self.signature, initial)
        self.given: dict[str, Array] = {}
        self._compute = compute

    def execute(self, batch: Batch) -> None:
        self.given = batch.gather()
        batch.scatter(self._compute({**self.given}))

    def run(self, *steps: Step) -> list[InferResponse]:
        batch = batch_of(self.signature, *steps)
        execute(self, batch)
        return list(batch.responses)

    def outputs(self, *steps: Step) -> list[object]:
        return [values(response)["OUTPUT"] for response in self.run(*steps)]


def add(key: int, value: float, *, start: bool = False) -> Step:
    return Step(key, {"INPUT": floats([value])}, start=start)


def begin(model: Model, count: int, value: float = 1) -> None:
    model.outputs(*[add(key, value, start=True) for key in range(1, count + 1)])


def test_the_same_sequences_in_the_same_order_take_what_was_computed_uncopied() -> None:
    model = Model()
    made: list[Array] = []

    def remember(inputs: dict[str, Array]) -> dict[str, Array]:
        outputs = sums(inputs)
        made.append(outputs["SUM"])
        return outputs

    model._compute = remember  # noqa: SLF001 - the fake's own computation, of this package
    begin(model, 8)
    model.outputs(*[add(key, 1) for key in range(1, 9)])
    assert model.given["B_IN"] is not made[0]
    assert np.shares_memory(model.given["B_IN"], made[0])
    model.outputs(*[add(key, 1) for key in range(3, 7)])  # and so do some of them
    assert np.shares_memory(model.given["B_IN"], made[1])
    assert model.given["B_IN"].tolist() == [[2]] * 4
    model.outputs(add(2, 1), add(1, 1))
    assert not np.shares_memory(model.given["B_IN"], made[1])


def test_states_are_paired_by_their_names_and_not_by_their_order() -> None:
    model = Model()
    begin(model, 1, 5)
    model.outputs(add(1, 1))
    assert model.given["B_IN"].tolist() == [[5]]
    assert model.given["A_IN"].tolist() == [[1, 1]]


def test_an_output_that_the_model_does_not_give_leaves_its_state_unchanged() -> None:
    model = Model()
    begin(model, 1, 5)
    model.outputs(add(1, 1000))
    model.outputs(add(1, 1))
    assert model.given["B_IN"].tolist() == [[5]]
    assert model.given["A_IN"].tolist() == [[2, 2]]


def test_null_requests_take_zeros_and_leave_nothing() -> None:
    model = Model()
    begin(model, 2, 5)
    assert model.outputs(add(0, 1), add(2, 1), add(0, 1), add(1, 1)) == [[[1]], [[6]], [[1]], [[6]]]
    assert model.outputs(add(0, 1), add(1, 1)) == [[[1]], [[7]]]


def test_a_batch_without_a_response_that_fits_changes_nothing() -> None:
    model = Model()
    begin(model, 1, 5)
    batch = batch_of(model.signature, add(1, 1))
    model._compute = lambda inputs: {"OUTPUT": np.zeros((3, 1), np.float32), "SUM": inputs["B_IN"] + 100}  # noqa: SLF001 - the fake's own computation, of this package
    execute(model, batch)
    assert batch.failed
    model._compute = sums  # noqa: SLF001 - the fake's own computation, of this package
    assert model.outputs(add(1, 1)) == [[[6]]]


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_batch_that_fails_changes_no_state_and_one_that_is_repeated_changes_each_once(
    repeatable: bool,
) -> None:
    model = Model(repeatable=repeatable)
    begin(model, 2, 5)
    good, bad = model.run(add(1, 1), add(2, -1))
    assert (good.error is None) is repeatable
    assert bad.error is not None
    assert model.outputs(add(1, 1), add(2, 1)) == [[[7 if repeatable else 6]], [[6]]]


def test_a_start_that_fails_leaves_nothing_of_the_sequence_before_it() -> None:
    model = Model()
    begin(model, 1, 5)
    (failed,) = model.run(add(1, -1, start=True))
    assert failed.error is not None
    assert model.outputs(add(1, 1)) == [[[1]]]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (
            np.zeros((1, 2), np.float32),
            "state output 'SUM' of the model has shape [1, 2], but the configuration says",
        ),
        (np.zeros((2, 1), np.float32), "state output 'SUM' of the model has shape [2, 1]"),
        (
            np.zeros((1, 1), np.int8),
            "state output 'SUM' of the model is of int8, but the configuration says TYPE_FP32",
        ),
    ],
)
def test_a_state_that_is_not_as_configured_is_an_error(wrong: Array, error: str) -> None:
    model = Model(compute=lambda inputs: {"OUTPUT": inputs["INPUT"], "SUM": wrong})
    (response,) = model.run(add(1, 1, start=True))
    assert isinstance(response.error, InternalError)
    assert error in response.error.message


def test_a_state_that_clients_see_does_not_stay_on_a_device() -> None:
    model = Model()
    listed = 'output { name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] }'
    signature = signature_of(f"{TENSORS} {listed} sequence_batching {{ {STATES} }}")
    batch = batch_of(signature, add(1, 1))
    batch.requests[0].on_device = ("OUTPUT", "SUM")
    assert staying(batch) == {"OUTPUT", "SUM"}
    batch.states = model.kept
    assert staying(batch) == {"OUTPUT"}


# Memory

LARGE = 'state { input_name: "B_IN" output_name: "SUM" data_type: TYPE_FP32 dims: [ 16384 ] }'
ROW = 4 * 16384


def large(inputs: dict[str, Array]) -> dict[str, Array]:
    return {"OUTPUT": inputs["INPUT"], "SUM": inputs["B_IN"] + 1}


def test_states_of_sequences_that_rest_hold_no_more_than_twice_their_own_memory() -> None:
    model = Model(LARGE, large)
    begin(model, 32)
    assert model.kept.byte_size == 32 * ROW
    for last in range(31, 0, -1):  # one more rests each time
        model.outputs(*[add(key, 1) for key in range(1, last + 1)])
        assert model.kept.byte_size <= 2 * 32 * ROW
    for key in range(1, 33):
        assert len(model.outputs(add(key, 1))) == 1
        assert model.given["B_IN"][0, 0] == 33 - key
        model.end_sequence(key, key, ENDED)
    assert model.kept.byte_size == 0


def test_what_is_held_for_a_sequence_is_given_back_when_it_ends() -> None:
    model = Model(LARGE, large)
    begin(model, 1)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        begin(model, 32)
        assert tracemalloc.get_traced_memory()[0] - before > 30 * ROW
        for key in range(1, 33):
            model.end_sequence(key, key, ENDED)
        model.given.clear()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < ROW
    finally:
        tracemalloc.stop()


def test_any_number_of_sequences_one_after_the_other_leaves_nothing_behind() -> None:
    model = Model()
    kept = model.kept

    def serve(first: int, count: int) -> None:
        for key in range(first, first + count):
            requests = [add(key, 1, start=True).request()]
            kept.gather(requests)
            one, two = np.ones((1, 1), np.float32), np.ones((1, 2), np.int32)
            kept.keep(requests, kept.take({"SUM": one, "STEPS": two}, 1))
            kept.end(key)

    serve(1, 100)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        serve(1000, 20_000)
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
    finally:
        tracemalloc.stop()
    assert kept.byte_size == 0


def test_a_state_for_which_there_is_no_room_fails_its_request_and_no_other() -> None:
    model = Model(LARGE, large)
    model.kept.admit = lambda more: model.kept.byte_size + more <= 2 * ROW
    first, second, third = model.run(*[add(key, 1, start=True) for key in (1, 2, 3)])
    assert (first.error, second.error) == (None, None)
    assert isinstance(third.error, OutOfMemoryError)
    assert (
        f"the state of sequence 3 takes {ROW} bytes more, which are beyond the memory" in third.error.message
    )
    assert model.outputs(add(1, 1), add(2, 1)) == [[[1]], [[1]]]
    good, lost = model.run(add(1, 1), add(3, 1))
    assert good.error is None
    assert isinstance(lost.error, InvalidArgumentError)
    assert "the state of sequence 3 of model 'm' is lost" in lost.error.message
    assert "START" in lost.error.message
    model.end_sequence(2, 2, ENDED)
    assert model.outputs(add(3, 1, start=True)) == [[[1]]]
    assert model.outputs(add(3, 1)) == [[[1]]]


def test_a_sequence_whose_state_cannot_grow_keeps_the_one_that_it_had() -> None:
    def grow(inputs: dict[str, Array]) -> dict[str, Array]:
        grown = np.concatenate([inputs["B_IN"], inputs["INPUT"]], 1)
        return {"OUTPUT": grown, "SUM": grown}

    model = Model('state { input_name: "B_IN" output_name: "SUM" data_type: TYPE_FP32 dims: [ -1 ] }', grow)
    assert model.outputs(add(1, 1, start=True)) == [[[0, 1]]]
    model.kept.admit = lambda more: False
    (response,) = model.run(add(1, 2))
    assert isinstance(response.error, OutOfMemoryError)
    model.kept.admit = None
    assert model.outputs(add(1, 3)) == [[[0, 1, 3]]]
    # null requests have states of the shape of the others
    assert model.outputs(add(0, 9), add(1, 4), add(0, 9)) == [[[0, 0, 0, 9]], [[0, 1, 3, 4]], [[0, 0, 0, 9]]]


class _NoMemory:
    """In place of numpy's `concatenate`."""

    def __call__(self, arrays: object) -> Array:
        raise MemoryError


def test_no_memory_to_gather_states_is_an_error_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    begin(model, 2)
    monkeypatch.setattr(np, "concatenate", _NoMemory())
    found = model.run(add(2, 1), add(1, 1))
    monkeypatch.undo()
    assert all(isinstance(each.error, OutOfMemoryError) for each in found)
    assert model.outputs(add(2, 1), add(1, 1)) == [[[2]], [[2]]]


# Any order of events

Op = tuple[str, list[tuple[int, bool, float]]]

keys = st.integers(1, 6)
step = st.tuples(st.integers(0, 6), st.booleans(), st.sampled_from([1.0, 2.0, 3.0, 1000.0]))
batches = st.lists(step, min_size=1, max_size=7, unique_by=lambda each: each[0] or object())
operations = st.one_of(
    st.tuples(st.just("run"), batches),
    st.tuples(st.just("fail"), batches),
    st.tuples(st.just("end"), keys.map(lambda key: [(key, False, 0.0)])),
)


@given(st.lists(operations, max_size=30), st.booleans())
@settings(deadline=None)
def test_each_sequence_has_its_own_states_whatever_happens(ops: list[Op], repeatable: bool) -> None:
    model = Model(repeatable=repeatable)
    totals: dict[int, float] = {}
    counts: dict[int, int] = {}
    for kind, rows in ops:
        if kind == "end":
            model.end_sequence(rows[0][0], rows[0][0], ENDED)
            totals.pop(rows[0][0], None)
            counts.pop(rows[0][0], None)
            continue
        steps = [add(key, value, start=bool(key) and start) for key, start, value in rows]
        if kind == "fail":
            steps.append(add(99, -1, start=True))
        for key, start, _ in rows:
            if start:
                totals.pop(key, None)
                counts.pop(key, None)
        responses = model.run(*steps)
        if kind == "fail":
            assert responses.pop().error is not None
            if not repeatable or len(steps) == 1:
                assert all(response.error is not None for response in responses)
                continue
        alone = kind == "fail"  # each request has run by itself, and so decides for itself what it gives
        skips = [
            (alone and value == 1000) or (not alone and any(each[2] == 1000 for each in rows))
            for _, _, value in rows
        ]
        for (key, _, value), response, skipped in zip(rows, responses, skips, strict=True):
            total = totals.get(key, 0) + value
            assert values(response)["OUTPUT"] == [[total]]
            if key:
                counts[key] = counts.get(key, 0) + 1
                if not skipped:
                    totals[key] = total
    live = sum(4 for _ in totals) + sum(8 for _ in counts)
    assert model.kept.byte_size <= 2 * live
    for key, count in counts.items():
        model.outputs(add(key, 1))
        assert model.given["A_IN"].tolist() == [[count, count]]
        model.end_sequence(key, key, ENDED)
    for key in totals:
        model.end_sequence(key, key, ENDED)
    model.end_sequence(99, 99, ENDED)
    assert model.kept.byte_size == 0
