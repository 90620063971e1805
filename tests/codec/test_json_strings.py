import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.codec.json_strings import json_of_texts
from halimede.core.string_layout import MIN_ELEMENTS
from halimede.core.tensors import encode_bytes


@given(st.lists(st.text(max_size=9), min_size=1, max_size=9))
@settings(max_examples=200)
def test_strings_are_written_as_orjson_writes_them_or_left_to_it(some: list[str]) -> None:
    texts = some * MIN_ELEMENTS
    written = json_of_texts(encode_bytes(texts), len(texts))
    assert written in {None, orjson.dumps(texts)}


@given(
    st.lists(st.text(st.characters(min_codepoint=32, exclude_characters='"\\', exclude_categories=["Cs"])))
)
@settings(max_examples=100)
def test_strings_without_escapes_are_written(some: list[str]) -> None:
    texts = [*some, "ü", ""] * MIN_ELEMENTS
    assert json_of_texts(encode_bytes(texts), len(texts)) == orjson.dumps(texts)


@pytest.mark.parametrize("element", [b'"', b"\\", b"\n", b"\x1f", b"\0", b"\xff", "ü".encode()[:1]])
def test_strings_that_need_more_than_quotes_are_left_to_others(element: bytes) -> None:
    elements = [b"a"] * MIN_ELEMENTS
    assert json_of_texts(encode_bytes([*elements, b"b"]), MIN_ELEMENTS + 1) is not None
    assert json_of_texts(encode_bytes([*elements, element]), MIN_ELEMENTS + 1) is None


def test_halves_of_a_character_are_not_put_together() -> None:
    first, second = "ü".encode()[:1], "ü".encode()[1:]
    elements = [first, second] * MIN_ELEMENTS
    assert json_of_texts(encode_bytes(elements), len(elements)) is None
