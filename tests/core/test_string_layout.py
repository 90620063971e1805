import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.core.string_layout import MIN_ELEMENTS, layout_of, whole_elements
from halimede.core.tensors import encode_bytes

FEW = MIN_ELEMENTS
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9).map(str.encode)
LENGTHS = st.sampled_from([0, 1, 3, 255, 256, 257, 511, 512, 65_535]).map(lambda length: b"x" * length)


def starts(elements: list[bytes]) -> list[int]:
    """Where each element's length is, added up."""
    position, found = 0, []
    for element in elements:
        found.append(position)
        position += 4 + len(element)
    return found


@given(st.lists(TEXTS | LENGTHS, min_size=1, max_size=8))
@settings(max_examples=200)
def test_texts_are_found_whatever_their_lengths(some: list[bytes]) -> None:
    elements = some * FEW
    layout = layout_of(encode_bytes(elements), len(elements))
    assert layout is not None
    assert layout.starts.tolist() == starts(elements)


@given(st.lists(st.binary(max_size=6), min_size=FEW, max_size=FEW + 9), st.integers(-1, 1))
@settings(max_examples=200)
def test_what_is_found_in_arbitrary_strings_is_right(elements: list[bytes], more: int) -> None:
    layout = layout_of(encode_bytes(elements), len(elements) + more)
    assert layout is None or (more == 0 and layout.starts.tolist() == starts(elements))


@given(st.data())
@settings(max_examples=200)
def test_a_changed_byte_is_noticed_where_it_matters(data: st.DataObject) -> None:
    elements = data.draw(st.lists(TEXTS, min_size=FEW, max_size=FEW + 9))
    encoded = bytearray(encode_bytes(elements))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    layout = layout_of(bytes(encoded), len(elements))
    if layout is not None:
        at = 0
        for start in layout.starts.tolist():
            assert start == at
            at += 4 + struct.unpack_from("<I", encoded, at)[0]
        assert at == len(encoded)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 9])
def test_cut_strings_have_no_layout(cut: int) -> None:
    encoded = encode_bytes([b"text"] * FEW)
    assert layout_of(encoded, FEW) is not None
    assert layout_of(encoded[:-cut], FEW) is None
    assert layout_of(encoded[cut:], FEW) is None
    assert layout_of(encoded + b"\0" * cut, FEW) is None


def test_zeros_alone_are_empty_strings() -> None:
    layout = layout_of(bytes(4 * FEW), FEW)
    assert layout is not None
    assert layout.starts.tolist() == list(range(0, 4 * FEW, 4))
    assert layout_of(b"", FEW) is None
    assert layout_of(b"x" * 4 * FEW, FEW) is None


def test_lengths_beyond_two_bytes_are_left_to_others() -> None:
    elements = [b"x" * 70_000, *[b"y"] * FEW]
    assert layout_of(encode_bytes(elements), FEW + 1) is None


@given(st.lists(TEXTS | st.binary(max_size=6) | LENGTHS, min_size=1, max_size=4), st.data())
@settings(max_examples=200)
def test_whole_elements_are_right_wherever_they_are_cut(some: list[bytes], data: st.DataObject) -> None:
    elements = some * (2 * FEW)
    encoded = encode_bytes(elements)
    most = data.draw(st.integers(FEW, len(elements)))
    cut = data.draw(st.integers(0, len(encoded)))
    count, size = whole_elements(encoded[:cut], most)
    assert count <= most
    assert size == sum(4 + len(each) for each in elements[:count]) <= cut


def test_whole_elements_of_texts_are_all_that_fit() -> None:
    encoded = encode_bytes([b"text"] * 1000)
    assert whole_elements(encoded, 5000) == (1000, 8000)
    assert whole_elements(encoded, 100) == (100, 800)
    assert whole_elements(encoded[:-1], 5000) == (999, 7992)
    assert whole_elements(encode_bytes([b"text"] * 10), 5000) == (0, 0)
