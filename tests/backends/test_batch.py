import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.backends.batch import Batch
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.datatypes import BYTES, FP32
from halimede.core.errors import InternalError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Array, Tensor
from halimede.engine.validation import validate
from tests.backends.helpers import floats, request, strings, wire

PLAIN = """
    input { name: "A" data_type: TYPE_FP32 dims: [-1] }
    input { name: "B" data_type: TYPE_STRING dims: [1] }
    output { name: "X" data_type: TYPE_FP32 dims: [-1] }
    output { name: "Y" data_type: TYPE_STRING dims: [-1] }
"""
RAGGED = """
    input {{ name: "A" data_type: TYPE_FP32 dims: [-1, -1] allow_ragged_batch: true }}
    output {{ name: "X" data_type: TYPE_FP32 dims: [-1, -1] }}
    batch_input {{ kind: {kind} target_name: ["T", "U"] data_type: {datatype} source_input: "A" }}
    batch_output {{ target_name: "X" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "A" }}
"""


def signature_of(text: str, max_batch_size: int = 8) -> Signature:
    config = parse_text(f'name: "m" backend: "b" max_batch_size: {max_batch_size} {text}', "test")
    normalise(config)
    return Signature.from_config(config)


def batch_of(signature: Signature, *requests: InferRequest) -> Batch:
    for each in requests:
        validate(each, signature)
    return Batch(signature, list(requests), sum(each.batch_size for each in requests))


def plain(row: list[float], text: bytes, rows: int = 1, outputs: tuple[str, ...] = ()) -> InferRequest:
    return request({"A": floats(*[row] * rows), "B": strings(*[[text]] * rows)}, outputs)


def test_one_request_is_not_copied() -> None:
    data = wire(floats([1, 2]))
    batch = batch_of(signature_of(PLAIN), request({"A": data, "B": strings([b"x"])}))
    gathered = batch.gather()
    assert np.shares_memory(gathered["A"], np.frombuffer(data.data, np.uint8))
    assert gathered["A"].shape == (1, 2)
    batch.scatter({"X": gathered["A"]})
    assert batch.responses[0].outputs["X"].array is gathered["A"]
    assert 0 < batch.inputs_ns <= batch.outputs_ns


def test_requests_are_joined_row_after_row_without_padding() -> None:
    batch = batch_of(
        signature_of(PLAIN), plain([1, 2], b"one"), plain([3, 4], b"", rows=2), plain([5, 6], b"\xff\0")
    )
    gathered = batch.gather()
    assert batch.size == 4
    assert gathered["A"].tolist() == [[1, 2], [3, 4], [3, 4], [5, 6]]
    assert gathered["B"].tolist() == [[b"one"], [b""], [b""], [b"\xff\0"]]


def test_outputs_are_cut_back_to_their_requests() -> None:
    batch = batch_of(signature_of(PLAIN), plain([0], b""), plain([0], b"", rows=2))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    batch.scatter({"X": x, "Y": strings([b"a"], [b"b"], [b"c"])})
    first, second = (response.outputs for response in batch.responses)
    assert first["X"].array.tolist() == [[0, 1]]
    assert second["X"].array.tolist() == [[2, 3], [4, 5]]
    assert second["X"].shape == (2, 2)
    assert np.shares_memory(second["X"].array, x)
    assert first["Y"].array.tolist() == [[b"a"]]
    assert bytes(second["Y"].data) == b"\1\0\0\0b\1\0\0\0c"


def test_outputs_that_are_not_contiguous_are_cut_right() -> None:
    batch = batch_of(signature_of(PLAIN), plain([0], b""), plain([0], b""))
    batch.scatter({"X": np.array([[1, 2], [3, 4]], np.float32).T})
    assert [bytes(response.outputs["X"].data) for response in batch.responses] == [
        floats([1, 3]).tobytes(),
        floats([2, 4]).tobytes(),
    ]


def test_wanted_outputs_are_those_of_any_request_in_the_order_of_the_configuration() -> None:
    signature = signature_of(PLAIN)
    only_y, only_x, every = (plain([0], b"", outputs=names) for names in (("Y",), ("X",), ()))
    assert batch_of(signature, only_y).wanted() == ["Y"]
    assert batch_of(signature, only_y, only_x).wanted() == ["X", "Y"]
    assert batch_of(signature, only_y, every).wanted() == ["X", "Y"]


def test_each_request_gets_only_what_it_wants() -> None:
    batch = batch_of(signature_of(PLAIN), plain([0], b"", outputs=("Y",)), plain([0], b""))
    batch.scatter({"X": floats([1], [2]), "Y": strings([b"a"], [b"b"])})
    assert [list(response.outputs) for response in batch.responses] == [["Y"], ["X", "Y"]]
    single = batch_of(signature_of(PLAIN), plain([0], b"", outputs=("Y",)))
    single.scatter({"X": floats([1]), "Y": strings([b"a"])})
    assert list(single.responses[0].outputs) == ["Y"]


@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("shape", [(5, 1), (), (0, 2)])
def test_output_with_other_rows_than_the_batch_is_an_error(requests: int, shape: tuple[int, ...]) -> None:
    batch = batch_of(signature_of(PLAIN), *[plain([0], b"") for _ in range(requests)])
    with pytest.raises(InternalError) as caught:
        batch.scatter({"X": np.zeros(shape, np.float32)})
    assert caught.value.message == (
        f"output 'X' has shape {list(shape)}, which does not fit a batch of {requests}: "
        f"its first dimension should be {requests}"
    )


def test_model_without_batching_gets_and_gives_whole_tensors() -> None:
    batch = batch_of(
        signature_of(PLAIN, 0),
        request({"A": np.array([1, 2], np.float32), "B": np.array([b"x"], np.object_)}),
    )
    assert batch.size == 1
    assert batch.gather()["A"].tolist() == [1, 2]
    batch.scatter({"X": np.array([1, 2, 3], np.float32)})
    assert batch.responses[0].outputs["X"].shape == (3,)


def test_reshape_holds_for_variable_sizes_in_batches() -> None:
    signature = signature_of(
        """
        input { name: "A" data_type: TYPE_FP32 dims: [-1, 4] reshape { shape: [-1, 2, 2] } }
        output { name: "X" data_type: TYPE_FP32 dims: [4, -1] reshape { shape: [2, 2, -1] } }
        """
    )
    array = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    batch = batch_of(signature, request({"A": array}), request({"A": array}))
    gathered = batch.gather()
    assert gathered["A"].shape == (2, 3, 2, 2)
    batch.scatter({"X": np.zeros((2, 2, 2, 3), np.float32)})
    assert [response.outputs["X"].shape for response in batch.responses] == [(1, 4, 3)] * 2


def ragged(*shape: int) -> InferRequest:
    return request({"A": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BATCH_ELEMENT_COUNT", [6, 4]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", [6, 10]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 6, 10]),
        ("BATCH_ITEM_SHAPE", [[2, 3], [1, 2], [1, 2]]),
        ("BATCH_ITEM_SHAPE_FLATTEN", [2, 3, 1, 2, 1, 2]),
    ],
)
@pytest.mark.parametrize("datatype", ["TYPE_INT32", "TYPE_FP32"])
def test_batch_inputs_tell_how_ragged_inputs_are_made_up(
    kind: str, expected: list[object], datatype: str
) -> None:
    signature = signature_of(RAGGED.format(kind=kind, datatype=datatype))
    gathered = batch_of(signature, ragged(1, 2, 3), ragged(2, 1, 2)).gather()
    assert gathered["A"].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert gathered["T"].tolist() == expected
    assert gathered["U"] is gathered["T"]
    assert gathered["T"].dtype == (np.int32 if datatype == "TYPE_INT32" else np.float32)


def test_largest_element_count_is_a_shape() -> None:
    signature = signature_of(RAGGED.format(kind="BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", datatype="TYPE_FP32"))
    assert batch_of(signature, ragged(1, 2, 3), ragged(1, 1, 2)).gather()["T"].shape == (6,)


@pytest.mark.parametrize("requests", [1, 2])
def test_batch_outputs_are_cut_along_the_inputs_shape(requests: int) -> None:
    signature = signature_of(RAGGED.format(kind="BATCH_ELEMENT_COUNT", datatype="TYPE_INT32"))
    batch = batch_of(signature, *[ragged(1, 2, 3), ragged(2, 1, 2)][:requests])
    flat = batch.gather()["A"]
    assert flat.ndim == 1
    batch.scatter({"X": flat})
    shapes = [response.outputs["X"].shape for response in batch.responses]
    assert shapes == [(1, 2, 3), (2, 1, 2)][:requests]
    with pytest.raises(InternalError, match="output 'X' has shape"):
        batch.scatter({"X": flat[:-1]})


def fp32_tensor(rows: int, values: list[float]) -> Tensor:
    array = np.array([values] * rows, np.float32).reshape(rows, len(values))
    return Tensor(FP32, array.shape, array.tobytes())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), max_size=4),
    st.binary(max_size=6),
)
def test_scattering_what_was_gathered_gives_every_request_its_own_back(
    rows: list[int], values: list[float], text: bytes
) -> None:
    signature = signature_of(PLAIN, 16)
    requests = [
        request({"A": fp32_tensor(count, values), "B": strings(*[[text + bytes([count])]] * count)})
        for count in rows
    ]
    batch = batch_of(signature, *requests)
    gathered: dict[str, Array] = batch.gather()
    batch.scatter({"X": gathered["A"], "Y": gathered["B"]})
    for each, response in zip(requests, batch.responses, strict=True):
        assert response.outputs["X"].shape == each.inputs["A"].shape
        assert bytes(response.outputs["X"].data) == bytes(each.inputs["A"].data)
        assert response.outputs["Y"].datatype is BYTES
        assert bytes(response.outputs["Y"].data) == bytes(each.inputs["B"].data)
