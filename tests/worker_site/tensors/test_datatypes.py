from typing import Any

import numpy as np
import pytest

from halimede_worker.tensors import datatypes

TYPES = [
    (1, "TYPE_BOOL", np.bool_),
    (2, "TYPE_UINT8", np.uint8),
    (3, "TYPE_UINT16", np.uint16),
    (4, "TYPE_UINT32", np.uint32),
    (5, "TYPE_UINT64", np.uint64),
    (6, "TYPE_INT8", np.int8),
    (7, "TYPE_INT16", np.int16),
    (8, "TYPE_INT32", np.int32),
    (9, "TYPE_INT64", np.int64),
    (10, "TYPE_FP16", np.float16),
    (11, "TYPE_FP32", np.float32),
    (12, "TYPE_FP64", np.float64),
    (13, "TYPE_STRING", np.object_),
]


@pytest.mark.parametrize(("number", "name", "kind"), TYPES)
def test_each_datatype_has_a_number_a_name_and_a_numpy_type(number: int, name: str, kind: Any) -> None:
    assert datatypes.triton_to_numpy_type(number) is kind
    assert datatypes.numpy_to_triton_type(kind) == number
    assert datatypes.numpy_to_triton_type(np.dtype(kind)) == number
    assert datatypes.triton_string_to_numpy(name) is (bool if name == "TYPE_BOOL" else kind)
    assert datatypes.number_of(np.dtype(kind)) == number


def test_the_table_has_the_thirteen_names_that_numpy_has_types_for() -> None:
    assert list(datatypes.TRITON_STRING_TO_NUMPY) == [name for _, name, _ in TYPES]


def test_bytes_dtypes_are_bytes_tensors() -> None:
    assert datatypes.numpy_to_triton_type(np.bytes_) == 13
    assert datatypes.number_of(np.dtype("S7")) == 13


@pytest.mark.parametrize("name", ["TYPE_BF16", "FP32", ""])
def test_a_name_that_numpy_has_no_type_for_is_a_key_error(name: str) -> None:
    with pytest.raises(KeyError):
        datatypes.triton_string_to_numpy(name)


@pytest.mark.parametrize("number", [0, 14, 15, -1])
def test_a_number_that_numpy_has_no_type_for_gives_none(number: int) -> None:
    assert datatypes.triton_to_numpy_type(number) is None


@pytest.mark.parametrize("kind", [np.complex64, np.dtype(">f4"), np.str_, np.datetime64, None, "float32"])
def test_a_numpy_type_that_no_datatype_is_like_gives_none(kind: Any) -> None:
    assert datatypes.numpy_to_triton_type(kind) is None


def test_the_two_numpy_types_of_64_bit_integers_are_one_datatype() -> None:
    assert datatypes.number_of(np.dtype(np.longlong)) == 9
    assert datatypes.number_of(np.dtype(np.ulonglong)) == 5
