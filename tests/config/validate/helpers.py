"""Configurations that are right, to be changed, and what is said of them."""

import pytest

from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.validate import Problem, find_problems, validate
from halimede.core.errors import InvalidArgumentError

Case = tuple[str, str, str, str | None]
"""A configuration, the text of its problem, the field, and the fix (None: some text)."""

IN = 'name: "i" data_type: TYPE_FP32 dims: [ 4 ]'
OUT = 'name: "o" data_type: TYPE_FP32 dims: [ 4 ]'
INPUT, OUTPUT = f"input {{ {IN} }}", f"output {{ {OUT} }}"
INPUTS = INPUT + INPUT.replace('"i"', '"j"')
OUTPUTS = OUTPUT + OUTPUT.replace('"o"', '"p"')
BASE = 'name: "m" backend: "identity"'
BATCHING = f"{BASE} max_batch_size: 8 {INPUT} {OUTPUT}"
PLAIN = f"{BASE} {INPUT} {OUTPUT}"
ENSEMBLE = f'name: "m" platform: "ensemble" {INPUT} {OUTPUT}'

ONE_STEP = (
    'step { model_name: "x" model_version: -1 '
    'input_map { key: "a" value: "i" } output_map { key: "b" value: "o" } }'
)


def problems(text: str, gpus: tuple[int, ...] = ()) -> list[Problem]:
    config = parse_text(text, "m")
    normalise(config, gpus)
    found = find_problems(config, gpus)
    assert all(problem.model == "m" for problem in found)
    if found:
        with pytest.raises(InvalidArgumentError) as caught:
            validate(config, gpus)
        assert caught.value.message == found[0].message
    else:
        validate(config, gpus)
    return found


def tensors(of_input: str = "", of_output: str = "", mbs: int = 8) -> str:
    return f"{BASE} max_batch_size: {mbs} input {{ {of_input or IN} }} output {{ {of_output or OUT} }}"


def assert_told(case: Case) -> None:
    """The problem of the case is told with its place and its fix."""
    text, message, where, fix = case
    (problem, *_) = [each for each in problems(text) if each.message == message]
    assert problem.where == where
    assert fix is None or problem.fix == fix


def name_of(case: Case) -> str:
    """A short name of the case, for reports."""
    return case[1][:60]
