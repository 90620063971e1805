"""Ragged batches as a backend sees them: gathered flat, with tensors that tell how, and cut apart again."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.backends.ragged import batch_input_values
from halimede.config.model_config_pb2 import TYPE_FP32, TYPE_INT32, BatchInput, DataType
from halimede.core.datatypes import BF16, BYTES, FP16, INT64, Datatype
from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Tensor
from tests.backends.helpers import floats, request, strings, wire
from tests.backends.test_batch import batch_of, signature_of

RAGGED = 'input { name: "A" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }'
GRID = 'input { name: "A" data_type: TYPE_FP32 dims: [-1, -1] allow_ragged_batch: true }'
OUT = 'output { name: "X" data_type: TYPE_FP32 dims: [-1] }'
SCATTERED = 'batch_output { target_name: "X" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "A" }'


def made(kind: str, datatype: str = "TYPE_INT32", source: str = "A", target: str = "T") -> str:
    return f'batch_input {{ kind: {kind} target_name: "{target}" data_type: {datatype} source_input: "{source}" }}'


def ones(*shape: int) -> InferRequest:
    return request({"A": np.ones(shape, np.float32)})


KINDS = {
    "BATCH_ELEMENT_COUNT": ([6], [6, 4, 0]),
    "BATCH_ACCUMULATED_ELEMENT_COUNT": ([6], [6, 10, 10]),
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": ([0, 6], [0, 6, 10, 10]),
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": ([0] * 6, [0] * 6),
    "BATCH_ITEM_SHAPE": ([[2, 3]], [[2, 3], [1, 2], [1, 2], [0, 7]]),
    "BATCH_ITEM_SHAPE_FLATTEN": ([2, 3], [2, 3, 1, 2, 1, 2, 0, 7]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("datatype", "dtype"), [("TYPE_INT32", np.int32), ("TYPE_FP32", np.float32)])
def test_each_kind_tells_one_request_and_several_how_they_are_joined(
    kind: str, datatype: str, dtype: type
) -> None:
    signature = signature_of(GRID + OUT + made(kind, datatype))
    alone, together = KINDS[kind]
    one = batch_of(signature, ones(1, 2, 3)).gather()
    assert (one["T"].tolist(), one["A"].shape) == (alone, (6,))
    several = batch_of(signature, ones(1, 2, 3), ones(2, 1, 2), ones(1, 0, 7)).gather()
    assert (several["T"].tolist(), several["A"].shape) == (together, (10,))
    assert one["T"].dtype == several["T"].dtype == dtype


def test_requests_without_any_element_are_counted_too() -> None:
    for kind, expected in {
        "BATCH_ELEMENT_COUNT": [0, 0],
        "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": [0, 0, 0],
        "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": [],
        "BATCH_ITEM_SHAPE": [[0], [0]],
    }.items():
        gathered = batch_of(signature_of(RAGGED + OUT + made(kind)), ones(1, 0), ones(1, 0)).gather()
        assert (gathered["T"].tolist(), gathered["A"].shape) == (expected, (0,))
    nobody = batch_of(signature_of(GRID + OUT + made("BATCH_ITEM_SHAPE")), ones(0, 2, 0)).gather()
    assert nobody["T"].shape == (0, 2)
    numbers = RAGGED.replace("dims: [-1]", "dims: [1] reshape { shape: [] }") + OUT + made("BATCH_ITEM_SHAPE")
    assert batch_of(signature_of(numbers), ones(2, 1), ones(1, 1)).gather()["T"].shape == (3, 0)


@pytest.mark.parametrize(
    ("datatype", "dtype", "largest"), [(TYPE_FP32, "FP32", 2**24), (TYPE_INT32, "INT32", 2**31 - 1)]
)
def test_a_count_that_the_datatype_cannot_hold_is_an_error_and_not_a_wrong_count(
    datatype: DataType, dtype: str, largest: int
) -> None:
    made = BatchInput(kind=BatchInput.BATCH_ACCUMULATED_ELEMENT_COUNT, target_name=["T"], data_type=datatype)
    assert batch_input_values(made, [(largest - 1,), (1,)]).tolist() == [largest - 1, largest]
    with pytest.raises(InternalError) as caught:
        batch_input_values(made, [(largest,), (1,)])
    assert caught.value.message.startswith(
        f"batch input 'T' would have to hold {largest + 1}, which {dtype} cannot"
    )


def test_several_ragged_inputs_stand_beside_others_and_have_each_their_counts() -> None:
    text = (
        RAGGED
        + 'input { name: "B" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }'
        + 'input { name: "C" data_type: TYPE_FP32 dims: [2] }'
        + OUT
        + made("BATCH_ELEMENT_COUNT")
        + made("BATCH_ACCUMULATED_ELEMENT_COUNT", "TYPE_FP32", "B", "U")
    )
    first = request({"A": floats([1, 2, 3]), "B": floats([4]), "C": floats([5, 6])})
    second = request({"A": floats([7], [8]), "B": floats([9, 10], [11, 12]), "C": floats([13, 14], [15, 16])})
    gathered = {
        name: array.tolist() for name, array in batch_of(signature_of(text), first, second).gather().items()
    }
    assert gathered == {
        "A": [1, 2, 3, 7, 8],
        "B": [4, 9, 10, 11, 12],
        "C": [[5, 6], [13, 14], [15, 16]],
        "T": [3, 2],
        "U": [1, 5],
    }


VALUES = {
    FP16: (np.array([[1.5, -2]], np.float16), np.array([[3]], np.float16)),
    BF16: (np.array([[1, 2]], BF16.numpy), np.array([[3]], BF16.numpy)),
    INT64: (np.array([[2**40, -1]], np.int64), np.array([[3]], np.int64)),
    BYTES: (strings([b"one", b""]), strings([b"\xff\0"])),
}


@pytest.mark.parametrize("datatype", VALUES, ids=str)
def test_ragged_inputs_have_any_datatype(datatype: Datatype) -> None:
    text = (RAGGED + OUT).replace("TYPE_FP32", datatype.config_name) + SCATTERED + made("BATCH_ELEMENT_COUNT")
    first, second = VALUES[datatype]
    empty = np.zeros((1, 0), first.dtype)
    batch = batch_of(
        signature_of(text), *[request({"A": wire(each, datatype)}) for each in (first, empty, second)]
    )
    gathered = batch.gather()
    assert gathered["A"].tolist() == [*first[0].tolist(), *second[0].tolist()]
    assert gathered["T"].tolist() == [2, 0, 1]
    batch.scatter({"X": gathered["A"]})
    answers = [response.outputs["X"] for response in batch.responses]
    assert [answer.array.tolist() for answer in answers] == [first.tolist(), [[]], second.tolist()]
    assert bytes(answers[0].data) == bytes(Tensor.from_array(datatype, first).data)


def test_one_request_is_not_copied_and_several_are_joined_once_and_cut_as_views() -> None:
    signature = signature_of(RAGGED + OUT + SCATTERED)
    alone = batch_of(signature, ones(2, 3))
    sent = alone.requests[0].inputs["A"].data
    flat = alone.gather()["A"]
    assert flat.shape == (6,)
    assert np.shares_memory(flat, np.frombuffer(sent, np.float32))
    alone.scatter({"X": flat})
    assert np.shares_memory(alone.responses[0].outputs["X"].array, flat)
    several = batch_of(signature, ones(1, 3), ones(1, 0), ones(2, 1))
    flat = several.gather()["A"]
    several.scatter({"X": flat})
    answers = [response.outputs["X"] for response in several.responses]
    assert [answer.shape for answer in answers] == [(1, 3), (1, 0), (2, 1)]
    for answer in (answers[0], answers[2]):
        assert np.shares_memory(answer.array, flat)
        assert np.shares_memory(np.frombuffer(answer.data, np.float32), flat)


@pytest.mark.parametrize(
    ("dims", "array", "shapes"),
    [
        ("dims: [-1, 2]", (5, 2), [(1, 3, 2), (2, 1, 2)]),  # as many vectors as there were elements
        ("dims: [4]", (12,), [(1, 4), (2, 4)]),  # only the rows are the input's
        ("dims: [-1, 2] reshape { shape: [-1, 2, 1] }", (5, 2, 1), [(1, 3, 2), (2, 1, 2)]),
        ("dims: [1, -1] reshape { shape: [-1] }", (5,), [(1, 1, 3), (2, 1, 1)]),
    ],
)
def test_fixed_dims_of_a_scattered_output_stay_and_variable_ones_are_the_inputs(
    dims: str, array: tuple[int, ...], shapes: list[tuple[int, ...]]
) -> None:
    text = f'{RAGGED} output {{ name: "X" data_type: TYPE_FP32 {dims} }} {SCATTERED}'
    values = np.arange(np.prod(array), dtype=np.float32).reshape(array)
    batch = batch_of(signature_of(text), ones(1, 3), ones(2, 1))
    batch.scatter({"X": values})
    answers = [response.outputs["X"] for response in batch.responses]
    assert [answer.shape for answer in answers] == shapes
    assert [value for answer in answers for value in answer.array.reshape(-1)] == values.reshape(-1).tolist()
    alone = batch_of(signature_of(text), ones(1, 3))
    alone.scatter({"X": values.reshape(-1)[: np.prod(shapes[0])]})
    assert alone.responses[0].outputs["X"].shape == shapes[0]


def test_variable_dims_are_those_of_the_input_after_its_reshape() -> None:
    text = (
        'input { name: "A" data_type: TYPE_FP32 dims: [-1, 1] reshape { shape: [-1] } allow_ragged_batch: true }'
        + OUT
        + SCATTERED
    )
    batch = batch_of(signature_of(text), ones(1, 3, 1), ones(2, 1, 1))
    batch.scatter({"X": batch.gather()["A"]})
    assert [response.outputs["X"].shape for response in batch.responses] == [(1, 3), (2, 1)]


def test_requests_get_the_outputs_that_they_want() -> None:
    text = RAGGED + OUT + OUT.replace('"X"', '"Y"').replace("[-1]", "[1]") + SCATTERED
    both, one, other = (
        InferRequest("m", {"A": wire(floats([1, 2]))}, lambda response, final: None, outputs=outputs)
        for outputs in ((), ("X",), ("Y",))
    )
    batch = batch_of(signature_of(text), both, one, other)
    batch.scatter({"X": np.arange(6, dtype=np.float32), "Y": floats([7], [8], [9])})
    answers = [
        {name: tensor.array.tolist() for name, tensor in response.outputs.items()}
        for response in batch.responses
    ]
    assert answers == [{"X": [[0, 1]], "Y": [[7]]}, {"X": [[2, 3]]}, {"Y": [[9]]}]


@pytest.mark.parametrize("requests", [[(2, 3)], [(1, 2), (2, 3)]])
def test_a_request_of_two_rows_to_a_model_with_one_row_a_request_is_a_clients_mistake(
    requests: list[tuple[int, ...]],
) -> None:
    batch = batch_of(signature_of(RAGGED + OUT), *[ones(*shape) for shape in requests])
    with pytest.raises(InvalidArgumentError) as caught:
        batch.scatter({"X": np.zeros((len(requests), 1), np.float32)})
    assert caught.value.message == (
        "the request has 2 rows, and output 'X' of the model, whose inputs are ragged, has one row for each request; "
        "send a request for each row"
    )


@pytest.mark.parametrize("text", [RAGGED, RAGGED.replace("true", "false")])
def test_other_numbers_of_rows_than_those_of_requests_are_the_models_mistake(text: str) -> None:
    batch = batch_of(signature_of(text + OUT), ones(2, 3), ones(2, 3))
    with pytest.raises(InternalError) as caught:
        batch.scatter({"X": np.zeros((3, 1), np.float32)})
    assert caught.value.message == (
        "output 'X' has shape [3, 1], which does not fit a batch of 4: its first dimension should be 4"
    )


@pytest.mark.parametrize(
    ("size", "requests", "message"),
    [
        (4, [(1, 3), (2, 1)], "of 2 requests, it should have 5"),
        (6, [(1, 3), (2, 1)], "of 2 requests, it should have 5"),
        (2, [(1, 3)], "of 1 request, it should have 3"),
    ],
)
def test_elements_that_are_not_those_of_the_requests_are_an_error(
    size: int, requests: list[tuple[int, ...]], message: str
) -> None:
    batch = batch_of(signature_of(RAGGED + OUT + SCATTERED), *[ones(*shape) for shape in requests])
    with pytest.raises(InternalError) as caught:
        batch.scatter({"X": np.zeros(size, np.float32)})
    assert caught.value.message == (
        f"output 'X' has shape [{size}], which is {size} elements; scattered with the shapes of input 'A' {message}"
    )


@pytest.mark.parametrize("shape", [(1, 3), (2, 3)])
def test_a_model_without_batching_gets_flat_inputs_too(shape: tuple[int, ...]) -> None:
    signature = signature_of(
        GRID + OUT.replace("[-1]", "[-1, -1]") + SCATTERED + made("BATCH_ELEMENT_COUNT"), 0
    )
    batch = batch_of(signature, ones(*shape))
    gathered = batch.gather()
    assert (gathered["A"].shape, gathered["T"].tolist()) == ((np.prod(shape),), [np.prod(shape)])
    batch.scatter({"X": gathered["A"]})
    assert batch.responses[0].outputs["X"].shape == shape


@pytest.mark.parametrize("more", [made("BATCH_ELEMENT_COUNT"), SCATTERED])
def test_an_optional_input_that_tensors_are_made_from_cannot_be_left_out(more: str) -> None:
    text = RAGGED.replace("dims", "optional: true dims") + OUT + more
    text += 'input { name: "B" data_type: TYPE_FP32 dims: [1] }'
    batch = batch_of(signature_of(text), request({"B": floats([1])}))
    with pytest.raises(
        InvalidArgumentError, match="input 'A' cannot be left out: batch_input or batch_output"
    ):
        batch.scatter({"X": batch.gather()["B"]})


def test_an_optional_ragged_input_is_joined_if_requests_have_it() -> None:
    text = RAGGED.replace("dims", "optional: true dims") + OUT
    signature = signature_of(text + 'input { name: "B" data_type: TYPE_FP32 dims: [1] }')
    without = [request({"B": floats([1])}), request({"B": floats([2])})]
    assert batch_of(signature, *without).gather().keys() == {"B"}
    given = [request({"A": floats([1, 2]), "B": floats([1])}), request({"A": floats([3]), "B": floats([2])})]
    assert batch_of(signature, *given).gather()["A"].tolist() == [1, 2, 3]


SHAPES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(SHAPES)
def test_what_a_model_is_told_leads_it_to_the_elements_of_each_request(
    shapes: list[tuple[int, int, int]],
) -> None:
    text = (
        GRID
        + OUT.replace("[-1]", "[-1, -1]")
        + SCATTERED
        + made("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", target="BOUNDS")
        + made("BATCH_ITEM_SHAPE", target="ITEMS")
    )
    sent = [np.full(shape, number, np.float32) for number, shape in enumerate(shapes)]
    batch = batch_of(signature_of(text, 16), *[request({"A": array}) for array in sent])
    gathered = batch.gather()
    flat, bounds = gathered["A"], gathered["BOUNDS"].tolist()
    parts = [flat[start:end].tolist() for start, end in pairwise(bounds)]
    assert parts == [array.reshape(-1).tolist() for array in sent]
    items = [int(np.prod(item)) for item in gathered["ITEMS"]]
    assert (len(items), sum(items)) == (batch.size, flat.size)
    batch.scatter({"X": flat})
    for array, response in zip(sent, batch.responses, strict=True):
        assert np.array_equal(response.outputs["X"].array, array)
