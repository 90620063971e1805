import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede_worker.tensors import strings

ELEMENTS = st.lists(st.binary(max_size=20) | st.binary(min_size=1000, max_size=1050))


def objects(elements: list[Any]) -> np.ndarray:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array


def framed(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


@given(ELEMENTS)
def test_elements_come_back_as_they_were(elements: list[bytes]) -> None:
    data = strings.encode(objects(elements))
    assert data == framed(*elements)
    assert strings.decode(data, len(elements)) == elements
    assert strings.deserialize_bytes_tensor(data).tolist() == elements


@given(st.integers(0, 12), st.lists(st.binary(min_size=12, max_size=12), min_size=2))
def test_elements_of_one_length_come_back_as_they_were(length: int, elements: list[bytes]) -> None:
    elements = [element[:length] for element in elements]
    data = strings.encode(objects(elements))
    assert data == framed(*elements)
    assert strings.decode(data, len(elements)) == elements


@given(st.lists(st.text() | st.none() | st.integers() | st.floats() | st.booleans() | st.binary()))
def test_what_is_no_bytes_is_encoded_as_its_text(elements: list[Any]) -> None:
    expected = [element if type(element) is bytes else str(element).encode() for element in elements]
    assert strings.decode(strings.encode(objects(elements)), len(elements)) == expected


@given(ELEMENTS, st.data())
def test_data_that_is_cut_off_is_never_taken_for_whole(elements: list[bytes], data: st.DataObject) -> None:
    whole = framed(*elements, b"last")
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ValueError, match="a BYTES tensor"):
        strings.decode(cut, len(elements) + 1)


@given(st.binary(max_size=40), st.integers(0, 4))
def test_any_data_is_decoded_to_what_encodes_to_it_or_refused(data: bytes, count: int) -> None:
    try:
        elements = strings.decode(data, count)
    except ValueError:
        return
    assert len(elements) == count
    assert framed(*elements) == data


def test_equal_first_lengths_do_not_hide_other_framing() -> None:
    data = framed(b"ab", b"abc", b"a")
    assert strings.decode(data, 3) == [b"ab", b"abc", b"a"]


def test_a_count_that_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="a BYTES tensor of 3 elements holds 2"):
        strings.decode(framed(b"a", b"bc"), 3)
    with pytest.raises(ValueError, match="a BYTES tensor of 1 elements holds 2"):
        strings.decode(framed(b"a", b"bc"), 1)
    with pytest.raises(ValueError, match="a BYTES tensor of 0 elements holds 1"):
        strings.decode(framed(b"a"), 0)


def test_an_element_that_is_cut_off_is_told_with_its_length() -> None:
    with pytest.raises(ValueError, match="ends inside an element: 2 of its 5 bytes are there"):
        strings.decode(framed(b"hello")[:-3], 1)
    with pytest.raises(ValueError, match="ends inside an element: 2 of its 4294967295 bytes are there"):
        strings.decode(b"\xff\xff\xff\xffab", 1)


def test_a_length_that_is_cut_off_is_told() -> None:
    with pytest.raises(ValueError, match="ends inside the length of an element"):
        strings.decode(framed(b"hello") + b"\0\0", 2)


def test_elements_are_encoded_in_c_order() -> None:
    array = objects([b"a", b"b", b"c", b"d"]).reshape(2, 2).T
    assert strings.encode(array) == framed(b"a", b"c", b"b", b"d")


def test_an_s_dtype_loses_the_nuls_at_the_end_and_objects_keep_them() -> None:
    assert strings.encode(np.array([b"a\0b\0", b"c"], "S4")) == framed(b"a\0b", b"c")
    assert strings.encode(objects([b"a\0b\0", b"c"])) == framed(b"a\0b\0", b"c")


def test_a_subclass_of_bytes_is_encoded_as_its_text_as_in_the_original() -> None:
    assert strings.encode(objects([np.bytes_(b"ab")])) == framed(b"b'ab'")


def test_data_may_be_a_view() -> None:
    data = framed(b"ab", b"cde")
    assert strings.decode(memoryview(data), 2) == [b"ab", b"cde"]
    assert strings.decode(bytearray(data), 2) == [b"ab", b"cde"]


def test_serialize_byte_tensor_gives_an_empty_tuple_for_no_elements_and_none_for_other_dtypes() -> None:
    assert strings.serialize_byte_tensor(np.empty((0, 2), np.object_)) == ()
    assert strings.serialize_byte_tensor(np.zeros(2)) is None
    assert strings.serialize_byte_tensor(objects([b"x", None])) == framed(b"x", b"None")


def test_deserialize_bytes_tensor_gives_a_flat_array_of_objects() -> None:
    array = strings.deserialize_bytes_tensor(framed(b"x", b"", b"yz"))
    assert array.dtype == np.object_
    assert array.shape == (3,)
    assert array.tolist() == [b"x", b"", b"yz"]
    assert strings.deserialize_bytes_tensor(b"").shape == (0,)


@pytest.mark.parametrize(
    ("data", "needed"),
    [
        (framed(b"x", b"yz")[:-1], "11 bytes for unpacking 2 bytes at offset 9"),
        (framed(b"x") + b"\x01", "9 bytes for unpacking 4 bytes at offset 5"),
    ],
)
def test_deserialize_bytes_tensor_refuses_what_is_cut_off(data: bytes, needed: str) -> None:
    with pytest.raises(struct.error, match=f"^unpack_from requires a buffer of at least {needed} "):
        strings.deserialize_bytes_tensor(data)
