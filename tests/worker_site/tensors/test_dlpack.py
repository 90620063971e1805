import ctypes
import datetime
import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

from halimede_worker.errors import TritonModelException
from halimede_worker.messages.memory import Memory, Outgoing
from halimede_worker.tensors import dlpack
from halimede_worker.tensors.tensors import Tensor, decode_tensor, encode_tensor

DTYPES = "?bBhHiIqQefd"

NOT_SUPPORTED = (
    "Provided tensor is not supported. Tensor must be a DLPack capsule         or have `__dlpack__` and "
    "`__dlpack_device__` attributes"
)


def managed(capsule: Any) -> dlpack._DLManagedTensor:
    """The structure that the capsule holds, to change it as another library would have made it."""
    return dlpack._DLManagedTensor.from_address(dlpack._get_pointer(capsule, b"dltensor"))  # noqa: SLF001 - the structure is not the module's offer


def capsule_of(array: np.ndarray, **fields: int) -> Any:
    capsule = Tensor("A", array).to_dlpack()
    for field, value in fields.items():
        setattr(managed(capsule).tensor, field, value)
    return capsule


class Library:
    """A tensor of another library."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self.capsule = capsule
        self.device = device
        self.streams: list[Any] = []

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


# Tensors that leave


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_takes_a_tensor_without_a_copy(dtype: str) -> None:
    array = np.ones((2, 3), dtype)
    taken = np.from_dlpack(Tensor("A", array))
    assert taken.ctypes.data == array.ctypes.data
    assert (taken.dtype, taken.tolist()) == (array.dtype, array.tolist())


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 4, 1)])
def test_tensors_of_any_shape_can_be_taken(shape: tuple[int, ...]) -> None:
    assert np.from_dlpack(Tensor("A", np.zeros(shape))).shape == shape
    assert Tensor.from_dlpack("B", Tensor("A", np.zeros(shape))).as_numpy().shape == shape


def test_a_capsule_refers_to_its_tensor_once_until_it_is_dropped() -> None:
    tensor = Tensor("A", np.zeros(3))
    before = sys.getrefcount(tensor)
    capsule = tensor.to_dlpack()
    assert sys.getrefcount(tensor) == before + 1
    del capsule
    assert sys.getrefcount(tensor) == before


def test_a_capsule_that_was_consumed_refers_to_its_tensor_until_the_consumer_is_gone() -> None:
    tensor = Tensor("A", np.zeros(3))
    before = sys.getrefcount(tensor)
    capsule = tensor.to_dlpack()
    taken = Tensor.from_dlpack("B", capsule)
    array = taken.as_numpy()
    del capsule, taken
    assert sys.getrefcount(tensor) == before + 1
    del array
    assert sys.getrefcount(tensor) == before


def test_a_capsule_that_is_dropped_by_an_exception_leaves_the_exception_as_it_is() -> None:
    tensor = Tensor("A", np.zeros(3))
    before = sys.getrefcount(tensor)
    with pytest.raises(TypeError, match="has no len"):
        len(tensor.to_dlpack())
    assert sys.getrefcount(tensor) == before


def test_a_received_tensor_can_be_taken_and_written_to() -> None:
    received = decode_tensor(("A", 11, (2,), np.ones(2, np.float32).tobytes(), False), Memory())
    taken = Tensor.from_dlpack("B", received)
    taken.as_numpy()[0] = 5
    assert received.as_numpy().tolist() == [5, 1]
    assert encode_tensor(received, Outgoing(Memory()))[3] == np.array([5, 1], np.float32).tobytes()


def test_a_tensor_over_a_read_only_array_can_be_taken() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    assert np.from_dlpack(Tensor("A", array)).tolist() == [0, 0, 0]


def test_strings_cannot_be_taken() -> None:
    with pytest.raises(TritonModelException, match=r"^DLPack does not have support for string tensors\.$"):
        Tensor("A", np.array([b"x"], np.object_)).to_dlpack()


def test_bf16_leaves_and_arrives_as_it_is() -> None:
    received = decode_tensor(("A", 14, (2,), b"\x80\x3f\x00\x40", False), Memory())
    capsule = received.to_dlpack()
    assert (managed(capsule).tensor.code, managed(capsule).tensor.bits) == (4, 16)
    taken = Tensor.from_dlpack("B", capsule)
    assert (taken.triton_dtype(), taken.shape(), taken.is_cpu()) == (14, [2], True)
    assert encode_tensor(taken, Outgoing(Memory())) == ("B", 14, (2,), b"\x80\x3f\x00\x40", False)
    with pytest.raises(TritonModelException, match="BF16"):
        taken.as_numpy()


# Tensors that arrive


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_is_made_of_numpy_s_without_a_copy(dtype: str) -> None:
    array = np.ones((2, 3), dtype)
    tensor = Tensor.from_dlpack("A", array)
    assert (tensor.name(), tensor.shape(), tensor.is_cpu()) == ("A", [2, 3], True)
    assert tensor.as_numpy().ctypes.data == array.ctypes.data
    assert tensor.as_numpy().dtype == array.dtype
    assert tensor.as_numpy().tolist() == array.tolist()
    assert encode_tensor(tensor, Outgoing(Memory()))[3] == array.tobytes()


def test_what_was_taken_is_kept_as_long_as_its_array_and_no_longer() -> None:
    class Array(np.ndarray):
        """An array that can be watched."""

    source = np.arange(3).view(Array)
    gone = weakref.ref(source)
    array = Tensor.from_dlpack("A", source).as_numpy()
    del source
    gc.collect()
    assert gone() is not None
    assert array.tolist() == [0, 1, 2]
    del array
    assert gone() is None


def test_a_capsule_is_renamed_when_it_is_consumed() -> None:
    capsule = Tensor("A", np.zeros(3)).to_dlpack()
    Tensor.from_dlpack("B", capsule)
    assert "used_dltensor" in repr(capsule)


def test_a_capsule_cannot_be_consumed_twice() -> None:
    capsule = Tensor("A", np.zeros(3)).to_dlpack()
    Tensor.from_dlpack("B", capsule)
    with pytest.raises(TritonModelException, match=r"^The DLPack capsule was consumed already\."):
        Tensor.from_dlpack("C", capsule)


def test_an_empty_name_is_refused_before_anything_else() -> None:
    with pytest.raises(TritonModelException, match=r"^Tensor name cannot be an empty string\.$"):
        Tensor.from_dlpack("", object())
    with pytest.raises(TypeError):
        Tensor.from_dlpack(5, np.zeros(3))  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [None, 5, "x", [1.0], object()])
def test_what_is_no_tensor_is_refused(source: Any) -> None:
    with pytest.raises(TritonModelException) as caught:
        Tensor.from_dlpack("A", source)
    assert str(caught.value) == NOT_SUPPORTED


def test_a_capsule_of_something_else_is_refused() -> None:
    with pytest.raises(TritonModelException, match=r"must be 'dltensor', is 'datetime\.datetime_CAPI'"):
        Tensor.from_dlpack("A", datetime.datetime_CAPI)
    with pytest.raises(TritonModelException, match="must return a capsule, not <class 'int'>"):
        Tensor.from_dlpack("A", Library(5, (1, 0)))


def test_a_tensor_that_is_not_in_c_order_is_refused() -> None:
    with pytest.raises(
        TritonModelException,
        match=r"^DLPack tensor is not contiguous\. Only contiguous DLPack tensors that are stored in C-Order are "
        r"supported\.$",
    ):
        Tensor.from_dlpack("A", np.zeros((2, 3)).T)


def test_strides_of_dimensions_of_one_element_do_not_matter() -> None:
    assert Tensor.from_dlpack("A", np.zeros((4, 2))[::4]).shape() == [1, 2]


def test_a_tensor_on_another_device_is_refused() -> None:
    with pytest.raises(TritonModelException, match=r"^DLDevice type 8 is not support by Python backend\.$"):
        Tensor.from_dlpack("A", capsule_of(np.zeros(3), device_type=8))


@pytest.mark.parametrize("fields", [{"code": 5, "bits": 64}, {"lanes": 2}, {"bits": 4}])
def test_elements_of_no_datatype_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(TritonModelException, match=r"^DLPack dtype is not supported: code"):
        Tensor.from_dlpack("A", capsule_of(np.zeros(3), **fields))


def test_a_refused_capsule_still_gives_its_tensor_back() -> None:
    tensor = Tensor("A", np.zeros(3))
    before = sys.getrefcount(tensor)
    capsule = tensor.to_dlpack()
    managed(capsule).tensor.device_type = 8
    with pytest.raises(TritonModelException):
        Tensor.from_dlpack("B", capsule)
    del capsule
    assert sys.getrefcount(tensor) == before


def test_elements_begin_at_the_byte_offset() -> None:
    array = np.arange(4, dtype=np.int64)
    capsule = capsule_of(array, byte_offset=8)
    ctypes.memmove(managed(capsule).tensor.shape, (ctypes.c_int64 * 1)(3), 8)
    assert Tensor.from_dlpack("A", capsule).as_numpy().tolist() == [1, 2, 3]


def test_pinned_memory_is_memory_of_the_cpu() -> None:
    tensor = Tensor.from_dlpack("A", capsule_of(np.arange(3), device_type=3, device_id=1))
    assert tensor.is_cpu()
    assert tensor.__dlpack_device__() == (3, 1)
    assert tensor.as_numpy().tolist() == [0, 1, 2]


def test_a_tensor_on_a_gpu_is_handed_on_but_has_no_array_and_cannot_be_sent() -> None:
    library = Library(capsule_of(np.arange(3), device_type=2, device_id=1), (2, 1))
    tensor = Tensor.from_dlpack("A", library)
    assert library.streams == [1]  # it waits for what is still being computed
    assert (tensor.is_cpu(), tensor.shape(), tensor.triton_dtype()) == (False, [3], 9)
    assert tensor.__dlpack_device__() == (2, 1)
    with pytest.raises(
        TritonModelException, match=r"^Tensor is stored in GPU and cannot be converted to NumPy\.$"
    ):
        tensor.as_numpy()
    with pytest.raises(TritonModelException, match=r"^Tensor 'A' is stored in GPU and cannot be sent"):
        encode_tensor(tensor, Outgoing(Memory()))
    handed_on = managed(tensor.to_dlpack()).tensor
    assert (handed_on.device_type, handed_on.device_id) == (2, 1)
