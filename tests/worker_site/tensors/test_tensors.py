import copy
import gc
import pickle
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from halimede_worker.errors import TritonModelException
from halimede_worker.messages.memory import Memory, Outgoing, segment_of
from halimede_worker.messages.wire import Channel
from halimede_worker.tensors import strings
from halimede_worker.tensors.tensors import EncodedTensor, Tensor, decode_tensor, encode_tensor

LARGE = 100_000
"""Elements that do not fit inside a message."""

DTYPES = st.sampled_from([np.dtype(kind) for kind in "?bBhHiIqQefd"])
ARRAYS = st_numpy.arrays(DTYPES, st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))


class Ends:
    """Both ends of a socket between two processes' memories, in one process."""

    def __init__(self) -> None:
        self.sockets = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server = Channel(self.sockets[0], Memory())
        self.worker = Channel(self.sockets[1], Memory())
        self.worker.memory._made = 1000  # segments of two processes have numbers of their own  # noqa: SLF001 - what the package does itself
        self.last: EncodedTensor = ("", 0, (), b"", False)

    def receive(self, tensor: Tensor, shared: bool = False) -> Tensor:
        """The tensor as a worker gets it that a server sent it to."""
        return self._pass(tensor, self.server, self.worker, shared)

    def answer(self, tensor: Tensor) -> Tensor:
        """The tensor as a server gets it that a worker sent it to."""
        return self._pass(tensor, self.worker, self.server, False)

    def _pass(self, tensor: Tensor, sender: Channel, receiver: Channel, shared: bool) -> Tensor:
        outgoing = Outgoing(sender.memory)
        encoded = encode_tensor(tensor, outgoing)
        sender.send((1, (*encoded[:4], shared)), outgoing.fresh)
        self.last = receiver.receive(timeout=10)[1]
        return decode_tensor(self.last, receiver.memory)


@pytest.fixture
def ends() -> Iterator[Ends]:
    pair = Ends()
    yield pair
    for end in pair.sockets:
        end.close()


def objects(elements: list[Any]) -> np.ndarray:
    return strings.array_of(elements)


# What a model makes


def test_a_tensor_has_the_name_shape_and_array_that_it_was_made_of() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    tensor = Tensor("OUT", array)
    assert tensor.name() == "OUT"
    assert tensor.shape() == [2, 3]
    assert tensor.as_numpy() is array
    assert tensor.triton_dtype() == 8
    assert tensor.is_cpu() is True
    assert tensor.__dlpack_device__() == (1, 0)


def test_a_name_may_be_bytes_and_any_kind_of_text() -> None:
    assert Tensor(b"OUT", np.zeros(1)).name() == "OUT"
    assert Tensor("näme", np.zeros(1)).name() == "näme"
    name = Tensor(np.str_("OUT"), np.zeros(1)).name()
    assert type(name) is str
    assert name == "OUT"


@pytest.mark.parametrize(
    "arguments", [(None, np.zeros(1)), (1, np.zeros(1)), ("\ud800", np.zeros(1)), ("A",), ()]
)
def test_a_name_that_is_no_text_is_a_type_error(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        Tensor(*arguments)


@pytest.mark.parametrize("array", [[1.0], np.float32(3), None, b"x", 1])
def test_what_is_no_array_is_a_type_error(array: Any) -> None:
    with pytest.raises(TypeError, match=r"array must be numpy\.ndarray, got"):
        Tensor("A", array)


def test_arguments_cannot_be_named() -> None:
    with pytest.raises(TypeError):
        Tensor(name="A", array=np.zeros(1))  # type: ignore[call-arg]


def test_an_empty_name_is_refused() -> None:
    for name in ("", b""):
        with pytest.raises(TritonModelException, match=r"^Tensor name cannot be an empty string\.$"):
            Tensor(name, np.zeros(1))


@pytest.mark.parametrize(
    "dtype",
    ["c8", "U3", "M8[s]", "m8[s]", ">f4", ">i8", "g", "f4,i4", "V3"],
    ids=lambda dtype: f"dtype {dtype}",
)
def test_a_dtype_that_no_datatype_is_like_is_refused(dtype: str) -> None:
    with pytest.raises(TritonModelException, match=r"^NumPy dtype is not supported\.$"):
        Tensor("A", np.zeros(2, dtype))


def test_longlong_is_a_64_bit_integer() -> None:
    assert Tensor("A", np.zeros(2, np.longlong)).triton_dtype() == 9
    assert Tensor("A", np.zeros(2, np.ulonglong)).triton_dtype() == 5


def test_an_array_that_is_not_contiguous_is_copied_in_c_order(ends: Ends) -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    tensor = Tensor("A", array)
    assert tensor.as_numpy().flags.c_contiguous
    assert tensor.as_numpy().tolist() == array.tolist()
    assert ends.receive(tensor).as_numpy().tolist() == array.tolist()


def test_an_array_is_read_when_the_tensor_is_sent(ends: Ends) -> None:
    array = np.zeros(2)
    tensor = Tensor("A", array)
    array[0] = 5
    assert ends.receive(tensor).as_numpy().tolist() == [5, 0]


def test_bytes_are_read_when_the_tensor_is_made(ends: Ends) -> None:
    array = objects([b"a", None])
    tensor = Tensor("A", array)
    array[0] = b"changed"
    assert tensor.as_numpy() is array
    assert ends.receive(tensor).as_numpy().tolist() == [b"a", b"None"]


def test_s_dtypes_are_bytes(ends: Ends) -> None:
    tensor = Tensor("A", np.array([[b"ab", b"c"]], "S3"))
    assert tensor.triton_dtype() == 13
    received = ends.receive(tensor).as_numpy()
    assert received.dtype == np.object_
    assert received.tolist() == [[b"ab", b"c"]]


def test_arrays_of_subclasses_send_their_elements(ends: Ends) -> None:
    masked = np.ma.array([1.0, 2.0], mask=[True, False])  # type: ignore[no-untyped-call, unused-ignore]
    assert ends.receive(Tensor("A", masked)).as_numpy().tolist() == [1.0, 2.0]
    large = np.ma.zeros(LARGE)  # type: ignore[no-untyped-call, unused-ignore]
    assert ends.receive(Tensor("A", large)).as_numpy().shape == (LARGE,)


def test_a_tensor_takes_no_attributes_and_no_copies() -> None:
    tensor = Tensor("A", np.zeros(1))
    with pytest.raises(AttributeError):
        tensor.extra = 1  # type: ignore[attr-defined]
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot pickle 'Tensor' object"):
            attempt(tensor)


# What a message carries


@given(array=ARRAYS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_array_arrives_as_it_was_sent(ends: Ends, array: np.ndarray) -> None:
    received = ends.receive(Tensor("näme", array))
    assert (received.name(), received.shape()) == ("näme", list(array.shape))
    decoded = received.as_numpy()
    assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
    assert decoded.tobytes() == array.tobytes()
    assert received.as_numpy() is decoded
    assert decoded.flags.carray
    assert decoded.flags.writeable


@given(
    array=st_numpy.arrays(
        np.object_,
        st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        elements=st.binary(),
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_arrive_as_they_were_sent(ends: Ends, array: np.ndarray) -> None:
    decoded = ends.receive(Tensor("A", array)).as_numpy()
    assert decoded.dtype == np.object_
    assert decoded.shape == array.shape
    assert decoded.tolist() == array.tolist()


@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])
def test_a_received_array_can_be_written_to_and_is_aligned(ends: Ends, size: int) -> None:
    received = ends.receive(Tensor("A", np.arange(size, dtype=np.float32)))
    array = received.as_numpy()
    array += 1
    assert received.as_numpy() is array
    assert array.ctypes.data % 16 == 0
    assert array.tolist() == list(range(1, size + 1))


def test_a_large_tensor_is_a_view_of_shared_memory_and_keeps_it(ends: Ends) -> None:
    received = ends.receive(Tensor("A", np.arange(LARGE)))
    number = ends.last[3][0]
    memory = ends.worker.memory
    assert memory.held([number]) == [number]  # before anyone asks for the elements
    array = received.as_numpy()
    assert not array.flags.owndata
    assert segment_of(array) is not None
    part = array[5:7]
    del received, array
    assert memory.held([number]) == [number]
    memory.forget([number])
    assert part.tolist() == [5, 6]
    del part


def test_shared_memory_is_free_once_nothing_views_it(ends: Ends) -> None:
    received = ends.receive(Tensor("A", np.arange(LARGE)))
    number = ends.last[3][0]
    received.as_numpy()
    del received
    assert ends.worker.memory.held([number]) == []


@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])
def test_an_array_outlives_its_tensor_and_later_messages(ends: Ends, size: int) -> None:
    array = ends.receive(Tensor("A", np.full(size, 7))).as_numpy()
    gc.collect()
    for other in range(3):
        ends.receive(Tensor("B", np.full(size, other))).as_numpy()
    assert array.tolist() == [7] * size


def test_what_others_read_is_copied_before_it_can_be_written_to(ends: Ends) -> None:
    first = ends.receive(Tensor("A", np.zeros(LARGE)), shared=True)
    second = decode_tensor(ends.last, ends.worker.memory)
    first.as_numpy()[0] = 1
    assert second.as_numpy()[0] == 0
    assert segment_of(first.as_numpy()) is None


def test_elements_at_an_odd_address_are_copied(ends: Ends) -> None:
    ends.receive(Tensor("A", np.arange(LARGE, dtype=np.uint8)))
    name, datatype, _, (number, begin, length), shared = ends.last
    encoded = (name, datatype, (length - 1,), (number, begin + 1, length - 1), shared)
    array = decode_tensor(encoded, ends.worker.memory).as_numpy()
    assert array.ctypes.data % 16 == 0
    assert array.tolist() == np.arange(LARGE, dtype=np.uint8)[1:].tolist()


# What is passed on


@pytest.mark.parametrize(
    "array", [np.arange(3), np.arange(LARGE), objects([b"a", b"bc"]), objects([b"a" * 9] * LARGE)]
)
def test_a_tensor_that_nobody_looked_at_goes_as_it_came(ends: Ends, array: np.ndarray) -> None:
    received = ends.receive(Tensor("A", array))
    payload = ends.last[3]
    back = ends.answer(received)
    assert ends.last[3] == payload  # the same bytes, or the same piece of shared memory
    assert received._array is None  # noqa: SLF001 - what the package does itself
    assert back.as_numpy().tolist() == array.tolist()


def test_a_large_array_that_came_in_shared_memory_goes_back_in_it(ends: Ends) -> None:
    array = ends.receive(Tensor("A", np.zeros(LARGE))).as_numpy()
    payload = ends.last[3]
    array[0] = 1
    back = ends.answer(Tensor("B", array))
    assert ends.last[3] == payload
    assert back.as_numpy()[0] == 1


@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])
def test_what_the_model_wrote_into_an_input_is_passed_on(ends: Ends, size: int) -> None:
    received = ends.receive(Tensor("A", np.zeros(size)))
    received.as_numpy()[0] = 5
    assert ends.answer(received).as_numpy()[0] == 5


@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])
def test_what_the_model_wrote_into_bytes_is_passed_on(ends: Ends, size: int) -> None:
    received = ends.receive(Tensor("A", objects([b"a"] * size)))
    received.as_numpy()[0] = "chängéd"
    assert ends.answer(received).as_numpy()[0] == "chängéd".encode()


def test_bf16_is_passed_on_though_numpy_has_nothing_like_it(ends: Ends) -> None:
    received = decode_tensor(("A", 14, (2,), b"\x80\x3f\x00\x40", False), Memory())
    assert received.shape() == [2]
    with pytest.raises(
        TritonModelException,
        match=r"^Tensor dtype is BF16 and cannot be converted to NumPy\. Use to_dlpack\(\) and from_dlpack\(\) ",
    ):
        received.as_numpy()
    ends.answer(received)
    assert ends.last == ("A", 14, (2,), b"\x80\x3f\x00\x40", False)


def test_bytes_of_bad_framing_are_told_with_the_name_of_the_tensor() -> None:
    received = decode_tensor(("A", 13, (2,), b"\x01\0\0\0a", False), Memory())
    with pytest.raises(TritonModelException, match=r"^Tensor 'A': a BYTES tensor of 2 elements holds 1$"):
        received.as_numpy()
