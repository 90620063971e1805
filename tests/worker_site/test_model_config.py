import json
import re
from typing import Any

import pytest

from halimede_worker.model_config import ModelConfig

INPUT = {"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}


def config(**fields: Any) -> ModelConfig:
    return ModelConfig(json.dumps({"name": "m", "max_batch_size": 0, "input": [], "output": [], **fields}))


def refused(text: str) -> Any:
    return pytest.raises(ValueError, match=f"^{re.escape(text)}$")


def test_as_dict_is_the_configuration_itself() -> None:
    completed = config()
    completed.as_dict()["parameters"] = {"k": {"string_value": "v"}}
    assert completed.as_dict()["parameters"] == {"k": {"string_value": "v"}}


def test_max_batch_size_may_grow_but_not_shrink() -> None:
    completed = config(max_batch_size=4)
    completed.set_max_batch_size(4)
    completed.set_max_batch_size(8)
    assert completed.as_dict()["max_batch_size"] == 8
    with refused(
        "configuration specified max_batch_size 8, but in auto-complete-config function for model 'm' "
        "specified max_batch_size 2"
    ):
        completed.set_max_batch_size(2)


def test_dynamic_batching_is_added_unless_it_is_there() -> None:
    completed = config()
    completed.set_dynamic_batching()
    assert completed.as_dict()["dynamic_batching"] == {}
    configured = config(dynamic_batching={"preferred_batch_size": [4]})
    configured.set_dynamic_batching()
    assert configured.as_dict()["dynamic_batching"] == {"preferred_batch_size": [4]}


@pytest.mark.parametrize("scheduler", ["sequence_batching", "ensemble_scheduling"])
def test_dynamic_batching_beside_another_scheduler_is_refused(scheduler: str) -> None:
    with refused(
        f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config function for "
        "model 'm' tries to set scheduling_choice as 'dynamic_batching'"
    ):
        config(**{scheduler: {}}).set_dynamic_batching()


def test_inputs_and_outputs_are_appended() -> None:
    completed = config()
    completed.add_input({**INPUT, "optional": True})
    completed.add_output(INPUT)
    assert completed.as_dict()["input"] == [{**INPUT, "optional": True}]
    assert completed.as_dict()["output"] == [INPUT]


def test_arguments_may_be_named() -> None:
    completed = config()
    completed.add_input(input=INPUT)
    completed.add_output(output=INPUT)
    completed.set_max_batch_size(max_batch_size=2)
    completed.set_model_transaction_policy(transaction_policy_dict={"decoupled": True})
    assert completed.as_dict()["model_transaction_policy"] == {"decoupled": True}


@pytest.mark.parametrize("kind", ["input", "output"])
def test_what_is_not_configured_is_filled_in(kind: str) -> None:
    completed = config(
        **{kind: [{"name": "IN", "data_type": "TYPE_INVALID", "dims": [], "label_filename": "l"}]}
    )
    getattr(completed, f"add_{kind}")(INPUT)
    assert completed.as_dict()[kind] == [{**INPUT, "label_filename": "l"}]


def test_an_input_that_agrees_with_the_configuration_is_merged() -> None:
    completed = config(input=[INPUT])
    completed.add_input({**INPUT, "optional": True})
    assert completed.as_dict()["input"] == [{**INPUT, "optional": True}]


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [("input", "'name', 'data_type', 'dims' and 'optional'"), ("output", "'name', 'data_type' and 'dims'")],
)
def test_properties_that_are_unknown_or_missing_are_refused(kind: str, allowed: str) -> None:
    add = getattr(config(), f"add_{kind}")
    function = "in auto-complete-config function for model 'm'"
    with refused(f"{kind} 'IN' {function} contains property other than {allowed}."):
        add({**INPUT, "is_shape_tensor_property": 1})
    with refused(f"{kind} {function} is missing 'name' property."):
        add({"data_type": "TYPE_FP32", "dims": [1]})
    with refused(f"{kind} 'IN' {function} is missing 'data_type' property."):
        add({"name": "IN", "dims": [1]})
    with refused(f"{kind} 'IN' {function} is missing 'dims' property."):
        add({"name": "IN", "data_type": "TYPE_FP32"})


@pytest.mark.parametrize("kind", ["input", "output"])
def test_what_contradicts_the_configuration_is_refused(kind: str) -> None:
    completed = config(**{kind: [INPUT]})
    add = getattr(completed, f"add_{kind}")
    with refused(
        f"unable to load model 'm', configuration expects datatype TYPE_FP32 for {kind} 'IN', model provides "
        "TYPE_INT8"
    ):
        add({**INPUT, "data_type": "TYPE_INT8"})
    with refused(
        "model 'm', tensor 'IN': the model expects dims [5] but the model configuration specifies dims [4]"
    ):
        add({**INPUT, "dims": [5]})
    assert completed.as_dict()[kind] == [INPUT]


def test_an_input_that_is_optional_in_one_place_only_is_refused() -> None:
    with refused(
        "model 'm', tensor 'IN': the model expects optional True but the model configuration specifies "
        "optional False"
    ):
        config(input=[{**INPUT, "optional": False}]).add_input({**INPUT, "optional": True})


def test_the_output_of_a_model_cannot_be_optional() -> None:
    with refused(
        "output 'IN' in auto-complete-config function for model 'm' contains property other than 'name', "
        "'data_type' and 'dims'."
    ):
        config().add_output({**INPUT, "optional": True})


def test_the_transaction_policy_is_set_once() -> None:
    completed = config()
    completed.set_model_transaction_policy({})
    assert completed.as_dict()["model_transaction_policy"] == {}
    completed.set_model_transaction_policy({"decoupled": True})
    completed.set_model_transaction_policy({"decoupled": True})
    assert completed.as_dict()["model_transaction_policy"] == {"decoupled": True}
    with refused(
        "trying to change decoupled property in auto-complete-config for model 'm', which is already set to 'True'."
    ):
        completed.set_model_transaction_policy({"decoupled": False})
    with refused(
        "model transaction property in auto-complete-config function for model 'm' contains property other than "
        "'decoupled'."
    ):
        completed.set_model_transaction_policy({"coupled": True})
