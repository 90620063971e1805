import json
import math

import numpy as np
import pytest

from halimede.codec.json_pieces import PIECE_BYTES, PIECE_NUMBERS, PIECE_STRINGS
from halimede.core import datatypes
from halimede.core.datatypes import BY_NAME
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferResponse, ParameterValue
from halimede.core.tensors import Tensor
from halimede.frontends.http.codec.generate_reply import ReplyEncoder
from tests.frontends.grpc.service_fakes import FakeModel


def encoder(identifier: str = "") -> ReplyEncoder:
    return ReplyEncoder(FakeModel("m", version=3), identifier)  # type: ignore[arg-type]  # a fake


def at_once(response: InferResponse, identifier: str = "") -> bytes:
    """The object of a small response."""
    encoded = encoder(identifier).encode(response)
    assert isinstance(encoded, bytes)
    return encoded


def tensor(datatype: str, values: object) -> Tensor:
    found = BY_NAME[datatype]
    array = np.array(values, found.numpy)
    return Tensor(found, array.shape, None, array)


@pytest.mark.parametrize(
    ("datatype", "values", "expected"),
    [
        ("BYTES", [b"text"], "text"),
        ("BYTES", [[b"a"], [b"b"]], ["a", "b"]),
        ("BYTES", [], []),
        ("INT32", [[5]], 5),
        ("UINT64", [(1 << 64) - 1], (1 << 64) - 1),
        ("INT32", [[1, 2], [3, 4]], [1, 2, 3, 4]),
        ("FP32", [0.1], 0.10000000149011612),
        ("FP32", [0.1, 1], [0.10000000149011612, 1.0]),
        ("FP64", [0.1], 0.1),
        ("FP32", np.zeros((2, 0)), []),
        ("BOOL", [True], True),
        ("BOOL", [True, False], [True, False]),
    ],
)
def test_one_element_is_a_scalar_and_more_are_flat(datatype: str, values: object, expected: object) -> None:
    encoded = at_once(InferResponse({"OUT": tensor(datatype, values)}))
    assert json.loads(encoded) == {"model_name": "m", "model_version": "3", "OUT": expected}


def test_non_finite_numbers_are_bare_tokens() -> None:
    outputs = {"A": tensor("FP32", [math.nan]), "B": tensor("FP64", [-math.inf, 1])}
    assert at_once(InferResponse(outputs)).endswith(b'"A":NaN,"B":[-Infinity,1.0]}')


def test_the_identifier_is_told_if_there_is_one() -> None:
    reply = json.loads(at_once(InferResponse({"OUT": tensor("INT32", [1])}), '"7"'))
    assert reply == {"id": '"7"', "model_name": "m", "model_version": "3", "OUT": 1}


def test_response_parameters_stand_beside_the_outputs() -> None:
    parameters: dict[str, ParameterValue] = {
        "count": 3,
        "OUT": "no",
        "model_name": "no",
        "ok": True,
        "why": "x",
    }
    reply = at_once(InferResponse({"OUT": tensor("INT32", [1])}, parameters), "1")
    expected = {
        "id": "1",
        "model_name": "m",
        "model_version": "3",
        "OUT": 1,
        "count": 3,
        "ok": True,
        "why": "x",
    }
    assert json.loads(reply) == expected
    assert reply.count(b"model_name") == 1


def test_a_response_without_outputs_names_the_model() -> None:
    assert json.loads(at_once(InferResponse())) == {"model_name": "m", "model_version": "3"}


def test_an_event_stands_between_what_is_before_and_after() -> None:
    events = ReplyEncoder(FakeModel("m"), "", b"data: ", b"\n\n")  # type: ignore[arg-type]  # a fake
    assert events.encode(InferResponse()) == b'data: {"model_name":"m","model_version":"1"}\n\n'
    one = events.encode(InferResponse({"OUT": tensor("BYTES", [b"a\nb"])}))
    assert isinstance(one, bytes)
    assert one == b'data: {"model_name":"m","model_version":"1","OUT":"a\\nb"}\n\n'


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (Tensor(datatypes.FP16, (1,), b"\0\0"), "sending FP16 data via JSON is not supported"),
        (Tensor(datatypes.BF16, (2,), bytes(4)), "sending BF16 data via JSON is not supported"),
        (tensor("BYTES", [b"\xff"]), "not UTF-8"),
    ],
)
def test_outputs_without_json_form_are_errors(output: Tensor, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        at_once(InferResponse({"OUT": output}))


# large ones


def in_steps(response: InferResponse, before: bytes = b"", after: bytes = b"") -> tuple[bytes, int]:
    """The object of a large response, and in how many steps it was made."""
    model = FakeModel("m", version=3)
    steps = ReplyEncoder(model, "7", before, after).encode(response)  # type: ignore[arg-type]  # a fake
    assert not isinstance(steps, bytes)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return b"".join(end.value), count
        count += 1


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL"])
def test_an_object_with_many_numbers_is_made_in_steps(datatype: str) -> None:
    values = np.arange(5 * PIECE_NUMBERS).reshape(5, PIECE_NUMBERS) % 2
    outputs = {"A": tensor("INT32", [3]), "B": tensor(datatype, values), "C": tensor("BYTES", [b"x", b"y"])}
    encoded, steps = in_steps(
        InferResponse(outputs, parameters={"B": 1, "p": True, "id": "no"}), b"data: ", b"\n\n"
    )
    assert encoded.startswith(b"data: {")
    assert encoded.endswith(b"}\n\n")
    assert json.loads(encoded[6:]) == {
        "id": "7",
        "model_name": "m",
        "model_version": "3",
        "A": 3,
        "B": values.ravel().astype(BY_NAME[datatype].numpy).tolist(),
        "C": ["x", "y"],
        "p": True,
    }
    assert steps >= 5


def test_many_strings_and_one_long_string_are_made_in_steps() -> None:
    many = [b"%d" % number for number in range(3 * PIECE_STRINGS)]
    encoded, steps = in_steps(InferResponse({"OUT": tensor("BYTES", many)}))
    assert json.loads(encoded)["OUT"] == [text.decode() for text in many]
    assert steps >= 3
    for length in (PIECE_BYTES, 10 * PIECE_BYTES):
        text = ("]" + 'é"' * length).encode()
        data = len(text).to_bytes(4, "little") + text
        encoded, steps = in_steps(InferResponse({"OUT": Tensor(datatypes.BYTES, (1,), data)}))
        assert json.loads(encoded)["OUT"] == text.decode()
        assert steps >= len(text) // PIECE_BYTES


def test_more_json_than_a_response_may_have_is_refused() -> None:
    model, response = FakeModel("m"), InferResponse({"OUT": tensor("FP32", np.zeros(2 * PIECE_NUMBERS))})
    steps = ReplyEncoder(model, "", max_json=PIECE_NUMBERS).encode(response)  # type: ignore[arg-type]  # a fake
    assert not isinstance(steps, bytes)
    with pytest.raises(InvalidArgumentError, match="--http-max-output-size"):
        list(steps)
