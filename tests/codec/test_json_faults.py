import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from halimede.codec.json_faults import find_fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"", "The document is empty. at 0"),
        (b"  ", "The document is empty. at 2"),
        (b"{", "Missing a name for object member. at 1"),
        (b"{'a':1}", "Missing a name for object member. at 1"),
        (b'{"a":1,}', "Missing a name for object member. at 7"),
        (b'{"a" 1}', "Missing a colon after a name of object member. at 5"),
        (b'{"a":1 "b":2}', "Missing a comma or '}' after an object member. at 7"),
        (b'{"a":01}', "Missing a comma or '}' after an object member. at 6"),
        (b"[1", "Missing a comma or ']' after an array element. at 2"),
        (b'{"a":[1 2]}', "Missing a comma or ']' after an array element. at 8"),
        (b'{"a":}', "Invalid value. at 5"),
        (b'{"a":', "Invalid value. at 5"),
        (b'{"a":-}', "Invalid value. at 6"),
        (b'{"a":[1,}', "Invalid value. at 8"),
        (b'{"a":tru}', "Invalid value. at 8"),
        (b"nope", "Invalid value. at 1"),
        (b"\xff\xfe{", "Invalid value. at 0"),
        (b'{"a":1.}', "Miss fraction part in number. at 7"),
        (b'{"a":1e}', "Miss exponent in number. at 7"),
        (b'{"a":1e999}', "Number too big to be stored in double. at 5"),
        (b'{"a":"x', "Missing a closing quotation mark in string. at 7"),
        (b'{"a":"\x01"}', "Invalid escape character in string. at 6"),
        (rb'{"a":"\q"}', "Invalid escape character in string. at 6"),
        (rb'{"a":"\u12g4"}', "Incorrect hex digit after \\u escape in string. at 6"),
        (rb'{"a":"\ud800"}', "The surrogate pair in string is invalid. at 6"),
        (b"{}x", "The document root must not be followed by other values. at 2"),
    ],
)
def test_a_fault_is_told_with_its_place(text: bytes, fault: str) -> None:
    assert find_fault(text) == fault


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES, st.integers(0, 100))
@settings(max_examples=150)
@example([], 1)
def test_json_has_no_fault_and_a_piece_of_it_has_one(value: object, cut: int) -> None:
    text = json.dumps([value]).encode()
    assert find_fault(text) is None
    assert find_fault(text[: min(cut, len(text) - 1)]) is not None


def test_a_fault_far_behind_is_not_looked_for() -> None:
    assert find_fault(b"[" + b"1," * 100_000 + b"x]") is None
    assert find_fault(b"[" * 100_000) is None
