from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from halimede_worker import helpers
from halimede_worker.requests import InferenceRequest
from halimede_worker.responses import InferenceResponse
from halimede_worker.tensors.tensors import Tensor

CONFIG = {
    "input": [{"name": "A", "dims": [1]}, {"name": "B", "dims": [2]}],
    "output": [{"name": "C", "dims": [3]}],
}


def tensors() -> list[Tensor]:
    return [Tensor(name, np.zeros(1)) for name in ("A", "B", "A")]


def test_an_input_is_found_by_its_name() -> None:
    inputs = tensors()
    request = InferenceRequest(model_name="m", inputs=inputs, requested_output_names=[])
    assert helpers.get_input_tensor_by_name(request, "A") is inputs[0]
    assert helpers.get_input_tensor_by_name(request, "B") is inputs[1]
    assert helpers.get_input_tensor_by_name(request, "Z") is None


def test_an_output_is_found_by_its_name() -> None:
    outputs = tensors()
    response = InferenceResponse(outputs)
    assert helpers.get_output_tensor_by_name(response, "A") is outputs[0]
    assert helpers.get_output_tensor_by_name(response, "Z") is None


def test_stand_ins_for_requests_and_responses_will_do() -> None:
    found: Any = SimpleNamespace(name=lambda: "A")
    request: Any = SimpleNamespace(inputs=lambda: [found])
    response: Any = SimpleNamespace(output_tensors=lambda: [found])
    assert helpers.get_input_tensor_by_name(request, "A") is found
    assert helpers.get_output_tensor_by_name(response, "A") is found
    with pytest.raises(AttributeError, match="no attribute 'inputs'"):
        helpers.get_input_tensor_by_name(response, "A")
    with pytest.raises(AttributeError, match="no attribute 'output_tensors'"):
        helpers.get_output_tensor_by_name(request, "A")


def test_the_configuration_of_a_tensor_is_found_by_its_name() -> None:
    assert helpers.get_input_config_by_name(CONFIG, "B") is CONFIG["input"][1]
    assert helpers.get_input_config_by_name(CONFIG, "C") is None
    assert helpers.get_output_config_by_name(CONFIG, "C") is CONFIG["output"][0]
    assert helpers.get_output_config_by_name(CONFIG, "A") is None


def test_a_configuration_without_tensors_has_none_of_any_name() -> None:
    assert helpers.get_input_config_by_name({}, "A") is None
    assert helpers.get_output_config_by_name({}, "A") is None


@pytest.mark.parametrize(
    ("config", "decoupled"),
    [
        ({}, False),
        ({"model_transaction_policy": {"decoupled": True}}, True),
        ({"model_transaction_policy": {"decoupled": False}}, False),
    ],
)
def test_the_transaction_policy_says_whether_the_model_is_decoupled(
    config: dict[str, Any], decoupled: bool
) -> None:
    assert helpers.using_decoupled_model_transaction_policy(config) is decoupled


def test_a_transaction_policy_that_does_not_say_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        helpers.using_decoupled_model_transaction_policy({"model_transaction_policy": {}})
