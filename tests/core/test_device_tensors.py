from typing import Any

import numpy as np
import pytest

from halimede.core.datatypes import BF16, FP32
from halimede.core.device_tensors import CPU, CUDA, DeviceTensor, device_name
from halimede.core.errors import InternalError, OutOfMemoryError
from halimede.core.tensors import Array, Tensor


class Elements:
    """Memory that only DLPack's names are known of."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        raise AssertionError("nobody asked for it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 1


class Copies:
    """Copies to the host, counted."""

    def __init__(self, array: Array) -> None:
        self.count = 0
        self._array = array

    def __call__(self) -> Array:
        self.count += 1
        return self._array.copy()


def tensor(copies: Copies, shape: tuple[int, ...] = (2, 3)) -> DeviceTensor:
    return DeviceTensor(FP32, shape, Elements(), copies, "output 'OUT' of model 'a'")


def test_shape_and_size_are_known_without_a_copy() -> None:
    made = tensor(copies := Copies(np.zeros((2, 3), np.float32)))
    assert (made.shape, made.byte_size, made.device, copies.count) == ((2, 3), 24, (CUDA, 1), 0)
    assert made.reshaped((6,)).byte_size == 24
    assert copies.count == 0


def test_it_is_copied_once_however_often_it_is_read_and_under_whatever_shape() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = tensor(copies := Copies(array))
    flat = made.reshaped((6,))
    assert isinstance(flat, DeviceTensor)
    assert flat.elements is made.elements
    np.testing.assert_array_equal(made.array, array)
    np.testing.assert_array_equal(flat.array, array.reshape(6))
    assert bytes(made.data) == bytes(flat.reshaped((3, 2)).data) == array.tobytes()
    assert copies.count == 1


def test_bf16_is_read_as_its_bits() -> None:
    bits = np.array([16256, 16384], np.uint16)
    made = DeviceTensor(BF16, (2,), Elements(), lambda: bits, "it")
    assert made.byte_size == 4
    assert bytes(made.data) == bits.tobytes()


def test_being_shared_survives_another_shape() -> None:
    made = tensor(Copies(np.zeros(6, np.float32)))
    made.shared = True
    assert made.reshaped((6,)).shared


def test_a_copy_that_fails_says_whose_it_was_and_where() -> None:
    def lost() -> Array:
        raise RuntimeError("unspecified launch failure")

    made = DeviceTensor(FP32, (1,), Elements(), lost, "output 'OUT' of model 'a'")
    for read in (lambda: made.array, lambda: made.data):
        with pytest.raises(InternalError) as caught:
            read()
        assert caught.value.message == (
            "output 'OUT' of model 'a' cannot be copied from cuda:1 to the host: unspecified launch failure"
        )


def test_an_error_of_ours_stays_what_it_is() -> None:
    def full() -> Array:
        raise OutOfMemoryError("no room")

    with pytest.raises(OutOfMemoryError, match="no room"):
        _ = DeviceTensor(FP32, (1,), Elements(), full, "it").array


@pytest.mark.parametrize(
    ("device", "name"), [((CPU, 0), "cpu:0"), ((CUDA, 3), "cuda:3"), ((10, 1), "device type 10:1")]
)
def test_devices_have_names(device: tuple[int, int], name: str) -> None:
    assert device_name(device) == name


def test_ordinary_tensors_are_on_the_host() -> None:
    assert not isinstance(Tensor.from_array(FP32, np.zeros(1, np.float32)), DeviceTensor)
