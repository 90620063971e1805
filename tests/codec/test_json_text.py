import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.codec.json_text import NestingError, parse_json, parse_members
from halimede.core.errors import InvalidArgumentError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
@settings(max_examples=100)
def test_what_python_writes_is_read_nan_and_infinity_included(value: object) -> None:
    text = json.dumps(value)
    assert json.dumps(parse_json(text.encode())) == text


@given(st.binary(max_size=100) | st.text(alphabet='[]{}",:NaInfty-+0 \\u', max_size=60).map(str.encode))
@settings(max_examples=150)
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    text = refused = ""
    try:
        text = json.dumps(parse_json(data))
    except InvalidArgumentError as error:
        refused = error.message
    assert refused or json.dumps(parse_json(text.encode())) == text


@pytest.mark.parametrize("text", [b'{"a":[1]}', b'{"a":[NaN]}'])
def test_a_byte_order_mark_is_passed_over(text: bytes) -> None:
    assert str(parse_json(b"\xef\xbb\xbf" + text)) == str(parse_json(text))
    assert str(parse_members(b"\xef\xbb\xbf" + text)) == str(parse_members(text))


def test_more_than_one_byte_order_mark_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="failed to parse the request JSON buffer"):
        parse_json(b"\xef\xbb\xbf" * 2 + b"{}")


def test_short_and_signed_tokens_are_read() -> None:
    values = parse_json(b'[Inf, -Inf, +Infinity, NaN, -NaN, "NaN, \\"Inf", 1]')
    assert values[:3] == [math.inf, -math.inf, math.inf]
    assert all(map(math.isnan, values[3:5]))
    assert values[5:] == ['NaN, "Inf', 1]


@pytest.mark.parametrize(
    "text", [b"[1NaN]", b"[NaN5]", b"{NaN: 1}", b"[Nope]", b"NaN NaN", b'[NaN, "\\ud800"]']
)
def test_misplaced_tokens_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="failed to parse the request JSON buffer"):
        parse_json(text)


@pytest.mark.parametrize("data", [b"[" * 1_000_000, b'{"a":' * 1_000_000, b"[NaN," * 1_000_000])
def test_million_deep_json_is_refused_quickly(data: bytes) -> None:
    started = time.process_time()
    with pytest.raises(InvalidArgumentError):
        parse_json(data)
    assert time.process_time() - started < 3


def test_deep_json_is_called_too_deep() -> None:
    with pytest.raises(NestingError, match=r"JSON nesting depth exceeds maximum allowed limit \(100\)"):
        parse_json(b"[" * 5000 + b"]" * 5000)


def test_deep_json_with_tokens_does_not_exhaust_the_stack() -> None:
    with pytest.raises(NestingError):
        parse_json(b"[" * 1020 + b"NaN" + b"]" * 1020)
