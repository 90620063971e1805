"""Tensors of ensembles that are read but never written, and what they are taken to mean."""

import pytest

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import parse_text
from halimede.config.validate.misspelt_tensors import Correction, corrected, find_corrections
from tests.config.validate.helpers import problems
from tests.config.validate.test_ensembles import ensemble, step

INPUT = 'input { name: "image" data_type: TYPE_FP32 dims: 1 }'
OUTPUT = 'output { name: "label" data_type: TYPE_FP32 dims: 1 }'


def text(*steps: str, inputs: str = INPUT, outputs: str = OUTPUT) -> str:
    return ensemble(" ".join(steps), inputs, outputs)


def config(*steps: str, inputs: str = INPUT, outputs: str = OUTPUT) -> ModelConfig:
    return parse_text(text(*steps, inputs=inputs, outputs=outputs), "m")


MISSPELT_INPUT = (step({"a": "image"}, {"b": "pixels"}), step({"c": "pixles"}, {"d": "label"}))
MISSPELT_OUTPUT = (step({"a": "image"}, {"b": "pixels"}), step({"c": "pixels"}, {"d": "lable"}))


def test_tensor_that_is_read_under_a_similar_name_is_corrected_where_it_is_read() -> None:
    correction = Correction(1, "input_map", "c", "pixels")
    assert find_corrections(config(*MISSPELT_INPUT)) == {"pixles": correction, "pixels": correction}
    assert correction.where == 'ensemble_scheduling.step[1].input_map["c"]'
    assert correction.fix == 'input_map { key: "c" value: "pixels" }'


def test_output_that_is_written_under_a_similar_name_is_corrected_where_it_is_written() -> None:
    correction = Correction(1, "output_map", "d", "label")
    assert find_corrections(config(*MISSPELT_OUTPUT)) == {"label": correction, "lable": correction}


@pytest.mark.parametrize("steps", [MISSPELT_INPUT, MISSPELT_OUTPUT])
def test_configuration_is_right_after_its_corrections(steps: tuple[str, ...]) -> None:
    assert problems(text(*steps))
    right = text(*(each.replace("pixles", "pixels").replace("lable", "label") for each in steps))
    assert corrected(config(*steps)) == parse_text(right, "m")
    assert problems(right) == []


def test_first_of_several_steps_that_read_the_wrong_name_is_corrected() -> None:
    twice = step({"a": "image"}, {"b": "pixels"}), step({"z": "pixles", "c": "pixles"}, {"d": "label"})
    assert find_corrections(config(*twice))["pixles"] == Correction(1, "input_map", "c", "pixels")


def test_only_name_that_is_left_is_meant_even_if_it_is_not_similar() -> None:
    found = find_corrections(config(step({"a": "image"}, {"b": "x"}), step({"c": "1234"}, {"d": "label"})))
    assert found["1234"] == Correction(1, "input_map", "c", "x")


def test_similar_name_is_meant_if_several_are_left() -> None:
    steps = (
        step({"a": "image"}, {"b": "pixels", "c": "width"}),
        step({"d": "pixles", "e": "widht"}, {"f": "label"}),
    )
    assert find_corrections(config(*steps)) == dict.fromkeys(
        ["pixles", "pixels"], Correction(1, "input_map", "d", "pixels")
    ) | dict.fromkeys(["widht", "width"], Correction(1, "input_map", "e", "width"))


def test_no_name_is_meant_if_several_are_left_and_none_is_similar() -> None:
    steps = (
        step({"a": "image"}, {"b": "xxxx", "c": "yyyy"}),
        step({"d": "1234", "e": "5678"}, {"f": "label"}),
    )
    assert find_corrections(config(*steps)) == {}


def test_tensor_that_a_step_makes_from_the_wrong_name_is_not_meant_by_it() -> None:
    """Its maker would wait for itself."""
    assert find_corrections(config(step({"a": "labels"}, {"b": "label", "c": "labels2"}))) == {}


def test_name_that_is_right_is_never_corrected() -> None:
    assert find_corrections(config(step({"a": "image"}, {"b": "label"}))) == {}


def test_so_many_names_that_a_comparison_takes_long_are_not_compared() -> None:
    many = [step({"a": f"pixles{number}"}, {"b": f"pixels{number}"}) for number in range(500)]
    assert find_corrections(config(*many)) == {}
    assert find_corrections(config(*many[:3])) != {}
