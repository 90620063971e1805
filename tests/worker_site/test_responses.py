"""Responses: what models may put into them, and what of them travels."""

import json
from typing import Any

import numpy as np
import pytest

from halimede_worker.errors import TritonError, TritonModelException
from halimede_worker.messages.memory import Memory, Outgoing
from halimede_worker.responses import DROPPED, InferenceResponse, decode_response, encode_response
from halimede_worker.tensors.tensors import Tensor

FP32 = 11


def a_tensor(name: str, values: Any = (1.0, 2.0)) -> Tensor:
    return Tensor(name, np.array(values, np.float32))


def names(response: InferenceResponse) -> list[str]:
    return [output.name() for output in response.output_tensors()]


def encoded(response: InferenceResponse, *wanted: str) -> Any:
    return encode_response(response, wanted, Outgoing(Memory()))


# What models put into them


def test_response_is_empty_unless_something_is_put_into_it() -> None:
    response = InferenceResponse()
    assert response.output_tensors() == []
    assert response.has_error() is False
    assert response.error() is None
    assert response.parameters() == "{}"


def test_response_takes_its_arguments_in_order_or_by_name() -> None:
    tensor, error = a_tensor("OUT"), TritonError("x")
    for response in (
        InferenceResponse([tensor], error, {"a": 1}),
        InferenceResponse(output_tensors=(tensor,), error=error, parameters={"a": 1}),
    ):
        assert response.output_tensors() == [tensor]
        assert response.has_error() is True
        assert response.error() is error
        assert json.loads(response.parameters()) == {"a": 1}


def test_list_of_outputs_is_new_each_time_and_the_tensors_are_not() -> None:
    tensor = a_tensor("OUT")
    given = [tensor]
    response = InferenceResponse(given)
    response.output_tensors().clear()
    given.clear()
    assert response.output_tensors()[0] is tensor


@pytest.mark.parametrize(
    "arguments",
    [
        {"output_tensors": None},
        {"output_tensors": {"OUT": 1}},
        {"output_tensors": "OUT"},
        {"output_tensors": 5},
        {"output_tensors": [np.zeros(1)]},
        {"output_tensors": iter(())},
        {"error": "text"},
        {"error": ValueError("x")},
        {"error": 1},
        {"outputs": []},
    ],
)
def test_arguments_of_other_types_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        InferenceResponse(**arguments)


def test_output_that_is_none_is_refused() -> None:
    with pytest.raises(TritonModelException) as caught:
        InferenceResponse([a_tensor("OUT"), None])  # type: ignore[list-item]
    assert str(caught.value) == "Output tensor for inference response should not be empty."


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"many_elements": False},
        {"bool": True, "str": "Hello World!", "int": 1024},
        {"a": "1", "b": "2", "c": 3, "d": False, "e": 5, "f": "", "é": "\n"},
    ],
)
def test_parameters_come_back_as_json(parameters: dict[str, Any]) -> None:
    assert json.loads(InferenceResponse(parameters=parameters).parameters()) == parameters


@pytest.mark.parametrize("value", [[], (), "text", 5, True])
def test_parameters_that_are_no_dict_are_refused(value: Any) -> None:
    with pytest.raises(TritonModelException) as caught:
        InferenceResponse(parameters=value)
    assert str(caught.value) == f"Expect N8pybind114dictE, got {type(value)}"


@pytest.mark.parametrize("key", [1, b"k", None, 1.5])
def test_parameter_whose_name_is_no_text_is_refused(key: Any) -> None:
    with pytest.raises(TritonModelException) as caught:
        InferenceResponse(parameters={"good": 1, key: 1})
    assert str(caught.value) == f"Expect parameters keys to have type str, found type {type(key)}"


@pytest.mark.parametrize("value", [0.5, None, ["variable"], {"a": 1}, b"x"])
def test_parameter_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(TritonModelException) as caught:
        InferenceResponse(parameters={"good": 1, "bad": value})
    assert str(caught.value) == (
        f"Expect parameters values to have type bool/int/str, found type {type(value)}"
    )


def test_response_gets_no_attributes() -> None:
    with pytest.raises(AttributeError):
        InferenceResponse().note = 1  # type: ignore[attr-defined]


# What travels


def test_outputs_travel_in_their_order() -> None:
    outputs, parameters, error = encoded(InferenceResponse([a_tensor("B"), a_tensor("A", [3.0])]), "A", "B")
    assert [output[:4] for output in outputs] == [
        ("B", FP32, (2,), np.array([1.0, 2.0], np.float32).tobytes()),
        ("A", FP32, (1,), np.array([3.0], np.float32).tobytes()),
    ]
    assert (parameters, error) == ("", None)


def test_outputs_that_were_not_requested_leave_the_response_itself() -> None:
    response = InferenceResponse([a_tensor("A"), a_tensor("B"), a_tensor("C"), a_tensor("B")])
    outputs, _, _ = encoded(response, "B", "ABSENT")
    assert [output[0] for output in outputs if output[1] == FP32] == ["B", "B"]
    assert outputs[2:] == (("A", DROPPED, (), b"", False), ("C", DROPPED, (), b"", False))  # only their names
    assert names(response) == ["B", "B"]


def test_tensors_of_a_pruned_response_stay_in_the_list_that_was_given() -> None:
    given = [a_tensor("A"), a_tensor("B")]
    encoded(InferenceResponse(given), "B")
    assert [tensor.name() for tensor in given] == ["A", "B"]


def test_response_of_a_sender_travels_as_it_is() -> None:
    outputs, _, _ = encode_response(InferenceResponse([a_tensor("A")]), None, Outgoing(Memory()))
    assert [output[0] for output in outputs] == ["A"]


def test_error_wins_over_outputs() -> None:
    response = InferenceResponse([a_tensor("A")], TritonError("broken", TritonError.NOT_FOUND), {"p": True})
    assert encoded(response, "A") == ((), '{"p": true}', (2, "broken"))
    assert type(encoded(response, "A")[2][0]) is int


def test_response_comes_back_as_it_was_sent() -> None:
    message = encoded(InferenceResponse([a_tensor("A", [[1.0], [2.0]])], parameters={"p": 1}), "A")
    response = decode_response(message, Memory())
    [output] = response.output_tensors()
    assert output.name() == "A"
    assert output.as_numpy().tolist() == [[1.0], [2.0]]
    assert response.has_error() is False
    assert response.error() is None
    assert response.parameters() == '{"p": 1}'


def test_error_comes_back_as_it_was_sent() -> None:
    message = encoded(InferenceResponse(error=TritonError("broken", TritonError.CANCELLED)), "A")
    response = decode_response(message, Memory())
    error = response.error()
    assert error is not None
    assert (error.code(), error.message()) == (TritonError.CANCELLED, "broken")
    assert response.has_error() is True
    assert response.output_tensors() == []


def test_empty_response_without_parameters_has_none() -> None:
    assert decode_response(((), "", None), Memory()).parameters() == "{}"
