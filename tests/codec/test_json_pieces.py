"""Large outputs as JSON in pieces: the same as whole, and never more than may be."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.codec import json_pieces as module
from halimede.codec.json_pieces import (
    PIECE_BYTES,
    PIECE_NUMBERS,
    PIECE_STRINGS,
    is_large,
    json_pieces,
)
from halimede.codec.json_tensors import json_from_tensor
from halimede.core.datatypes import BOOL, BYTES, FP32, FP64, INT8, INT64, UINT64, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Tensor, encode_bytes

MANY = 1 << 30


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PIECE_NUMBERS", 4), ("PIECE_STRINGS", 3), ("PIECE_BYTES", 8)):
        monkeypatch.setattr(module, name, value)


def whole(tensor: Tensor) -> Any:
    return orjson.loads(orjson.dumps(json_from_tensor("OUT", tensor), option=orjson.OPT_SERIALIZE_NUMPY))


@pytest.mark.parametrize("datatype", [BOOL, INT8, INT64, UINT64, FP32, FP64])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9])
@pytest.mark.usefixtures("small_pieces")
def test_numbers_are_those_of_the_whole(datatype: Datatype, count: int) -> None:
    tensor = Tensor.from_array(datatype, np.arange(count).reshape(1, count).astype(datatype.numpy))
    text = b"".join(json_pieces("OUT", tensor, MANY))
    assert orjson.loads(text) == whole(tensor)


@pytest.mark.usefixtures("small_pieces")
def test_numbers_that_json_lacks_are_named_in_any_piece() -> None:
    values = np.array([1, 2, 3, 4, np.nan, 6, np.inf, 8, 9], np.float32)
    text = b"".join(json_pieces("OUT", Tensor.from_array(FP32, values), MANY))
    assert text == b"[1.0,2.0,3.0,4.0,NaN,6.0,Infinity,8.0,9.0]"


@pytest.mark.parametrize("encoded", [True, False])
@given(st.lists(st.text(max_size=12), min_size=1, max_size=12))
def test_strings_are_those_of_the_whole(encoded: bool, texts: list[str]) -> None:
    tensor = Tensor.from_array(BYTES, np.array([text.encode() for text in texts], np.object_))
    if encoded:
        tensor = Tensor(BYTES, tensor.shape, tensor.data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_STRINGS", 3)
        patch.setattr(module, "PIECE_BYTES", 8)
        text = b"".join(json_pieces("OUT", tensor, MANY))
    assert orjson.loads(text) == texts


def test_no_piece_is_much_work() -> None:
    numbers = Tensor.from_array(FP32, np.random.default_rng(0).random(5 * PIECE_NUMBERS + 1, np.float32))
    strings = Tensor.from_array(BYTES, np.array([b"text"] * (5 * PIECE_STRINGS + 1), np.object_))
    long = Tensor.from_array(BYTES, np.array([b"x" * (5 * PIECE_BYTES + 1)], np.object_))
    assert long.data  # encoded, so that its size is known
    for tensor in (numbers, strings, long):
        assert is_large(tensor)
        pieces = list(json_pieces("OUT", tensor, MANY))
        assert len(pieces) >= 6
        assert max(map(len, pieces)) < 24 * PIECE_NUMBERS


@pytest.mark.usefixtures("small_pieces")
def test_what_is_larger_than_allowed_is_refused_with_what_would_be_right() -> None:
    tensor = Tensor.from_array(INT64, np.arange(100))
    size = len(b"".join(json_pieces("OUT", tensor, MANY)))
    assert len(b"".join(json_pieces("OUT", tensor, size))) == size
    with pytest.raises(InvalidArgumentError, match=f"may have {size - 1} bytes.*--http-max-output-size"):
        list(json_pieces("OUT", tensor, size - 1))
    with pytest.raises(InvalidArgumentError):  # at once
        next(json_pieces("OUT", tensor, 199))


@pytest.mark.parametrize("text", [b"\xff" * 4, b"\xff" * 20, "ü".encode() * 20 + b"\xc3"])
@pytest.mark.usefixtures("small_pieces")
def test_a_string_that_is_not_text_is_named(text: bytes) -> None:
    tensor = Tensor.from_array(BYTES, np.array([b"a", text, b"b"], np.object_))
    with pytest.raises(InvalidArgumentError, match="output 'OUT' has a string that is not UTF-8"):
        list(json_pieces("OUT", tensor, MANY))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=9))
def test_many_strings_are_those_of_the_whole(texts: list[str]) -> None:
    elements = [text.encode() for text in texts] * 100
    tensor = Tensor(BYTES, (len(elements),), encode_bytes(elements))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_STRINGS", 250)
        patch.setattr(module, "PIECE_BYTES", 2000)
        text = b"".join(json_pieces("OUT", tensor, MANY))
    assert orjson.loads(text) == texts * 100
