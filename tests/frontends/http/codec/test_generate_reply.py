import json
import math

import numpy as np
import pytest

from halimede.core import datatypes
from halimede.core.datatypes import BY_NAME
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferResponse, ParameterValue
from halimede.core.tensors import Tensor
from halimede.frontends.http.codec.generate_reply import ReplyEncoder
from tests.frontends.grpc.service_fakes import FakeModel


def encoder(identifier: str = "") -> ReplyEncoder:
    return ReplyEncoder(FakeModel("m", version=3), identifier)  # type: ignore[arg-type]  # a fake


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
    encoded = encoder().encode(InferResponse({"OUT": tensor(datatype, values)}))
    assert json.loads(encoded) == {"model_name": "m", "model_version": "3", "OUT": expected}


def test_non_finite_numbers_are_bare_tokens() -> None:
    outputs = {"A": tensor("FP32", [math.nan]), "B": tensor("FP64", [-math.inf, 1])}
    assert encoder().encode(InferResponse(outputs)).endswith(b'"A":NaN,"B":[-Infinity,1.0]}')


def test_the_identifier_is_told_if_there_is_one() -> None:
    reply = json.loads(encoder('"7"').encode(InferResponse({"OUT": tensor("INT32", [1])})))
    assert reply == {"id": '"7"', "model_name": "m", "model_version": "3", "OUT": 1}


def test_response_parameters_stand_beside_the_outputs() -> None:
    parameters: dict[str, ParameterValue] = {
        "count": 3,
        "OUT": "no",
        "model_name": "no",
        "ok": True,
        "why": "x",
    }
    reply = encoder("1").encode(InferResponse({"OUT": tensor("INT32", [1])}, parameters))
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
    assert json.loads(encoder().encode(InferResponse())) == {"model_name": "m", "model_version": "3"}


def test_an_event_stands_between_what_is_before_and_after() -> None:
    events = ReplyEncoder(FakeModel("m"), "", b"data: ", b"\n\n")  # type: ignore[arg-type]  # a fake
    assert events.encode(InferResponse()) == b'data: {"model_name":"m","model_version":"1"}\n\n'
    one = events.encode(InferResponse({"OUT": tensor("BYTES", [b"a\nb"])}))
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
        encoder().encode(InferResponse({"OUT": output}))
