"""Batches of requests of different lengths, which are filled up to the longest."""

import numpy as np
import pytest

from halimede.core.requests import InferRequest
from tests.backends.helpers import floats, request, strings
from tests.backends.test_batch import batch_of, signature_of

MODEL = """
    dynamic_batching { }
    input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }
    input { name: "B" data_type: TYPE_FP32 dims: [ -1 ] }
    input { name: "C" data_type: TYPE_STRING dims: [ 1 ] }
    output { name: "X" data_type: TYPE_FP32 dims: [ -1, 2 ] }
    output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
    output { name: "Z" data_type: TYPE_STRING dims: [ -1 ] }
    parameters { key: "dynamic_batching.max_tokens" value { string_value: "100" } }
    parameters { key: "dynamic_batching.pad_with" value { string_value: "B=-1" } }
"""


def of_length(length: int, rows: int = 1) -> InferRequest:
    a = np.arange(rows * length * 2, dtype=np.float32).reshape(rows, length, 2) + 1
    return request({"A": floats(*a), "B": floats(*a[:, :, 0]), "C": strings(*[[b"c"]] * rows)})


def test_inputs_are_filled_up_to_the_longest() -> None:
    batch = batch_of(signature_of(MODEL), of_length(1), of_length(3, rows=2), of_length(2))
    gathered = batch.gather()
    assert gathered["A"].shape == (4, 3, 2)
    assert gathered["A"][0].tolist() == [[1, 2], [0, 0], [0, 0]]
    assert gathered["A"][2].tolist() == [[7, 8], [9, 10], [11, 12]]
    assert gathered["B"].tolist() == [[1, -1, -1], [1, 3, 5], [7, 9, 11], [1, 3, -1]]
    assert gathered["C"].tolist() == [[b"c"]] * 4


def test_outputs_are_cut_to_the_lengths_of_the_requests() -> None:
    batch = batch_of(signature_of(MODEL), of_length(1), of_length(3, rows=2), of_length(2))
    gathered = batch.gather()
    words = np.array([[b"%d%d" % (row, column) for column in range(3)] for row in range(4)], object)
    batch.scatter({"X": gathered["A"], "Y": gathered["B"][:, :1], "Z": words})
    first, second, third = (response.outputs for response in batch.responses)
    assert first["X"].array.tolist() == [[[1, 2]]]
    assert second["X"].array.tolist() == of_length(3, rows=2).inputs["A"].array.tolist()
    assert third["X"].array.tolist() == [[[1, 2], [3, 4]]]
    assert [each["Y"].array.tolist() for each in (first, second, third)] == [[[1]], [[1], [7]], [[1]]]
    assert [each["Z"].shape for each in (first, second, third)] == [(1, 1), (2, 3), (1, 2)]
    assert third["Z"].array.tolist() == [[b"30", b"31"]]


def test_requests_of_one_length_are_joined_as_ever() -> None:
    batch = batch_of(signature_of(MODEL), of_length(2), of_length(2))
    gathered = batch.gather()
    assert gathered["B"].tolist() == [[1, 3], [1, 3]]
    batch.scatter({"X": gathered["A"]})
    assert [response.outputs["X"].shape for response in batch.responses] == [(1, 2, 2)] * 2


def test_variable_output_of_another_length_is_left_as_it_is() -> None:
    batch = batch_of(signature_of(MODEL), of_length(1), of_length(3))
    batch.gather()
    batch.scatter({"X": np.zeros((2, 5, 2), np.float32)})
    assert [response.outputs["X"].shape for response in batch.responses] == [(1, 5, 2)] * 2


@pytest.mark.parametrize("rows", [1, 3])
def test_output_with_wrong_rows_is_an_error(rows: int) -> None:
    batch = batch_of(signature_of(MODEL), of_length(1), of_length(3))
    with pytest.raises(Exception, match="does not fit a batch of 2"):
        batch.scatter({"X": np.zeros((rows, 3, 2), np.float32)})
