import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.core.string_layout import MIN_ELEMENTS, layout_of
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
