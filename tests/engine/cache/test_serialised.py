import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.datatypes import BF16, BYTES, FP32, INT64
from halimede.core.requests import InferResponse, RepeatingResponse
from halimede.core.tensors import Tensor
from halimede.engine.cache.entries import Entry
from halimede.engine.cache.serialised import deserialise, serialise

RESPONSE = InferResponse(
    {
        "A": Tensor.from_array(FP32, np.arange(6, dtype=np.float32).reshape(2, 3)),
        "ß": Tensor.from_array(BYTES, np.array([b"", b"x\x00\xff"], np.object_)),
        "empty": Tensor(INT64, (0, 4), b""),
        "scalar": Tensor(BF16, (), b"\x80\x3f"),
    },
    {"text": "é", "number": 2**60, "share": math.inf, "flag": True},
)
VALUE = serialise(Entry.of(RESPONSE, set(), 1 << 30))


def test_a_response_is_the_same_afterwards() -> None:
    again = deserialise(VALUE).response()
    assert list(again.outputs) == list(RESPONSE.outputs)
    for name, tensor in RESPONSE.outputs.items():
        other = again.outputs[name]
        assert (other.datatype, other.shape, bytes(other.data)) == (
            tensor.datatype,
            tensor.shape,
            bytes(tensor.data),
        )
    assert again.parameters == RESPONSE.parameters
    assert again.outputs["ß"].array.tolist() == [b"", b"x\x00\xff"]


def test_outputs_of_one_name_and_no_outputs_are_the_same_afterwards() -> None:
    twice = [("OUT", Tensor(FP32, (1,), bytes(4))), ("OUT", Tensor(FP32, (2,), bytes(8)))]
    again = deserialise(serialise(Entry.of(RepeatingResponse(twice), set(), 1 << 30))).response()
    assert [(name, tensor.shape) for name, tensor in again.tensors()] == [("OUT", (1,)), ("OUT", (2,))]
    assert deserialise(serialise(Entry.of(InferResponse(), set(), 1 << 30))).response().outputs == {}


@pytest.mark.parametrize("length", range(0, len(VALUE), 7))
def test_what_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="not a response"):
        deserialise(VALUE[:length])


def test_what_is_longer_is_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        deserialise(VALUE + b"x")


@given(st.binary(max_size=60), st.integers(0, len(VALUE) - 1))
def test_rubbish_is_refused_or_a_response(rubbish: bytes, place: int) -> None:
    value = VALUE[:place] + rubbish + VALUE[place + len(rubbish) :]
    try:
        response = deserialise(value).response()
    except ValueError:
        return
    for tensor in response.outputs.values():
        assert tensor.array.shape == tensor.shape
