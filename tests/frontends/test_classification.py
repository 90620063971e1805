import numpy as np
import pytest

from halimede.core.datatypes import BF16, BOOL, BYTES, FP16, FP32, INT8, UINT64, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Array, Tensor
from halimede.frontends.classification import classify, classify_in_steps, takes_steps


def tensor(datatype: Datatype, values: object) -> Tensor:
    return Tensor.from_array(datatype, np.array(values, dtype=datatype.numpy))


def elements(array: Array) -> object:
    return [text.decode() for text in array.reshape(-1)]


def test_classes_come_highest_first_with_index_and_label() -> None:
    classes = classify(tensor(FP32, [[0.1, 0.7, 0.2]]), 2, ["cat", "dog", "emu"], batched=True)
    assert classes.datatype is BYTES
    assert classes.shape == (1, 2)
    assert elements(classes.array) == ["0.700000:1:dog", "0.200000:2:emu"]


def test_each_row_of_a_batch_is_classified() -> None:
    classes = classify(tensor(INT8, [[1, -128, 3], [-1, -2, 127]]), 1, [], batched=True)
    assert classes.shape == (2, 1)
    assert elements(classes.array) == ["3:2", "127:2"]


def test_output_without_batch_is_one_row() -> None:
    classes = classify(tensor(FP32, [[1, 2], [4, 3]]), 9, ["a"], batched=False)
    assert classes.shape == (4,)
    assert elements(classes.array) == ["4.000000:2", "3.000000:3", "2.000000:1", "1.000000:0:a"]


def test_an_empty_label_is_none() -> None:
    classes = classify(tensor(INT8, [1, 2]), 2, ["a", ""], batched=False)
    assert elements(classes.array) == ["2:1", "1:0:a"]


def test_largest_unsigned_integers_are_ordered() -> None:
    classes = classify(tensor(UINT64, [0, 2**64 - 1, 2**63]), 3, [], batched=False)
    assert elements(classes.array) == [f"{2**64 - 1}:1", f"{2**63}:2", "0:0"]


def test_equal_values_come_in_order_of_index_and_nan_last() -> None:
    classes = classify(tensor(FP32, [1, float("nan"), 1, float("inf")]), 4, [], batched=False)
    assert elements(classes.array) == ["inf:3", "1.000000:0", "1.000000:2", "nan:1"]


def test_few_classes_of_many_are_the_highest() -> None:
    values = np.random.default_rng(1).permutation(10_000)
    classes = classify(tensor(FP32, values), 3, [], batched=False)
    best = [f"{value:f}:{list(values).index(value)}" for value in (9999, 9998, 9997)]
    assert elements(classes.array) == best


def test_empty_output_has_no_classes() -> None:
    assert classify(tensor(FP32, np.empty((2, 0))), 3, [], batched=True).shape == (2, 0)
    assert classify(tensor(FP32, np.empty(0)), 3, [], batched=False).shape == (0,)


@pytest.mark.parametrize("datatype", [FP16, BF16, BOOL, BYTES])
def test_types_without_order_are_refused(datatype: Datatype) -> None:
    text = f"class result not available for output due to unsupported type '{datatype}'"
    with pytest.raises(InvalidArgumentError, match=text):
        classify(tensor(datatype, [0]), 1, [], batched=False)


def test_more_classes_than_are_soon_written_are_refused() -> None:
    rows = np.zeros((200, 1000))
    assert classify(tensor(FP32, rows), 500, [], batched=True).shape == (200, 500)
    message = "classification of 200 rows gives 100200 classes, and the maximum is 100000"
    with pytest.raises(InvalidArgumentError, match=message):
        classify(tensor(FP32, rows), 501, [], batched=True)


def test_huge_output_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="classification output tensor too large"):
        classify(tensor(INT8, np.zeros(1_000_001)), 1, [], batched=False)


@pytest.mark.parametrize(("shape", "count"), [((1, 100_000), 100_000), ((100_000, 1), 1), ((1000, 1000), 5)])
def test_many_classes_are_found_in_steps(shape: tuple[int, int], count: int) -> None:
    output = tensor(FP32, np.arange(shape[0] * shape[1]).reshape(shape))
    assert takes_steps(output, count)
    steps, taken = classify_in_steps(output, count, [], batched=True), 0
    try:
        while True:
            next(steps)
            taken += 1
    except StopIteration as end:
        classes = end.value.array
    assert taken >= classes.size // 5000
    last = shape[1] - 1
    assert classes.shape == (shape[0], min(count, shape[1]))
    assert classes[0, 0] == b"%f:%d" % (last, last)
    assert classes[-1, 0] == b"%f:%d" % (shape[0] * shape[1] - 1, last)


def test_few_classes_are_found_at_once() -> None:
    assert not takes_steps(tensor(FP32, np.zeros((8, 1000))), 5)
    assert not takes_steps(tensor(FP32, np.zeros((1, 1000))), 1000)
