import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.datatypes import BF16, BYTES, FP32, INT64
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Tensor, decode_bytes, encode_bytes, encode_texts


def test_a_tensor_from_bytes_is_a_view_not_a_copy() -> None:
    data = bytearray(np.arange(4, dtype=np.float32).tobytes())
    tensor = Tensor(FP32, (2, 2), memoryview(data))
    array = tensor.array
    data[:4] = np.float32(9).tobytes()
    assert array.tolist() == [[9.0, 1.0], [2.0, 3.0]]


def test_a_tensor_from_an_array_is_a_view_not_a_copy() -> None:
    array = np.arange(4, dtype=np.int64)
    tensor = Tensor.from_array(INT64, array)
    array[0] = 7
    assert bytes(tensor.data) == array.tobytes()
    assert tensor.byte_size == 32


def test_an_array_that_is_not_contiguous_gives_its_elements_in_order() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert bytes(Tensor.from_array(FP32, array).data) == np.ascontiguousarray(array).tobytes()


def test_an_empty_tensor_has_no_bytes() -> None:
    assert len(Tensor.from_array(FP32, np.empty((0, 3), np.float32)).data) == 0


def test_a_scalar_has_bytes() -> None:
    assert bytes(Tensor.from_array(FP32, np.array(1.0, np.float32)).data) == np.float32(1).tobytes()


def test_bf16_is_held_as_its_bits() -> None:
    assert Tensor(BF16, (1,), b"\x80\x3f").array.tolist() == [0x3F80]


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_strings_come_back_as_they_went(elements: list[bytes]) -> None:
    assert decode_bytes(encode_bytes(elements)) == elements
    tensor = Tensor(BYTES, (len(elements),), encode_bytes(elements))
    assert bytes(Tensor.from_array(BYTES, tensor.array).data) == encode_bytes(elements)


@given(st.lists(st.text(max_size=5) | st.sampled_from([0, 200, 255, 1023, 1024]).map(lambda n: "x" * n)))
def test_texts_are_encoded_as_their_bytes_are(texts: list[str]) -> None:
    assert decode_bytes(encode_texts(texts)) == [text.encode() for text in texts]


@given(st.binary(max_size=40))
def test_arbitrary_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        elements = decode_bytes(data)
    except InvalidArgumentError:
        return
    assert encode_bytes(elements) == data


def test_a_cut_string_is_refused_with_what_is_there() -> None:
    with pytest.raises(InvalidArgumentError, match="expecting string of 5 bytes but only 2 bytes available"):
        decode_bytes(b"\x05\x00\x00\x00ab")
