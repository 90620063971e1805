"""What is said of ensembles."""

import sys
from collections import Counter

import pytest

from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.validate import validate
from halimede.config.validate.ensembles import MAX_STEPS
from halimede.core.errors import InvalidArgumentError
from tests.config.validate.helpers import (
    ENSEMBLE,
    INPUT,
    INPUTS,
    ONE_STEP,
    OUTPUT,
    OUTPUTS,
    PLAIN,
    Case,
    assert_told,
    name_of,
    problems,
)

NOT_READY = (
    "output 'o' for ensemble 'm' is not written: at least one of its depending tensors, 't', is not connected"
)


def ensemble(steps: str, inputs: str = INPUT, outputs: str = OUTPUT) -> str:
    return f'name: "m" platform: "ensemble" {inputs} {outputs} ensemble_scheduling {{ {steps} }}'


def step(inputs: dict[str, str], outputs: dict[str, str], model: str = 'model_name: "x"') -> str:
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
    return f"step {{ {model} model_version: -1 {' '.join(maps)} }}"


CASES: list[Case] = [
    (
        ENSEMBLE,
        "ensemble scheduling must be set for ensemble m whose platform is ensemble",
        "ensemble_scheduling",
        None,
    ),
    (
        f"{PLAIN} ensemble_scheduling {{ {ONE_STEP} }}",
        "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
        "ensemble_scheduling",
        'platform: "ensemble"',
    ),
    (
        f"{ensemble(ONE_STEP)} instance_group {{ }}",
        "instance group should not be specified for ensemble 'm'",
        "instance_group",
        "remove instance_group",
    ),
    (
        f"{ensemble(ONE_STEP)} optimization {{ }}",
        "optimization should not be specified for ensemble 'm'",
        "optimization",
        "remove optimization",
    ),
    (
        f"{ensemble(ONE_STEP)} model_warmup {{ batch_size: 1 }}",
        "model_warmup can not be specified for ensemble 'm'",
        "model_warmup",
        "remove model_warmup",
    ),
    (ensemble(""), "must specify 'step' for ensemble 'm'", "ensemble_scheduling.step", None),
    (
        ensemble(step({"a": "i"}, {"b": "o"}, model="")),
        "must specify 'model_name' in step 0 of ensemble 'm'",
        "ensemble_scheduling.step[0].model_name",
        'model_name: "..."',
    ),
    (
        ensemble(step({}, {"b": "o"})),
        "must specify 'input_map' in step 0 of ensemble 'm'",
        "ensemble_scheduling.step[0].input_map",
        'input_map { key: "..." value: "..." }',
    ),
    (
        ensemble(step({"a": "i"}, {"b": "o"}) + step({"a": "i"}, {})),
        "must specify 'output_map' in step 1 of ensemble 'm'",
        "ensemble_scheduling.step[1].output_map",
        'output_map { key: "..." value: "..." }',
    ),
    (
        ensemble(step({"a": "i"}, {"b": "o"}) * 2),
        "ensemble tensor 'o' can appear in an output map only once for ensemble 'm' step 1",
        'ensemble_scheduling.step[1].output_map["b"]',
        'output_map { key: "b" value: "o_1" }',
    ),
    (
        ensemble(step({"a": "i"}, {"b": "o"}), inputs=INPUTS),
        "ensemble input 'j' for ensemble m' is not used",
        "input[1].name",
        'input_map { key: "..." value: "j" }',
    ),
    (
        ensemble(step({"a": "i"}, {"b": "o"}), outputs=OUTPUTS),
        "ensemble output 'p' for ensemble m' is not used",
        "output[1].name",
        'output_map { key: "..." value: "p" }',
    ),
    (
        ensemble(step({"a": "i"}, {"b": "o"}) + step({"a": "t"}, {"b": "t"})),
        "ensemble tensor 't' is unused in ensemble 'm'",
        'ensemble_scheduling.step[1].output_map["b"]',
        'remove output_map { key: "b" value: "t" }',
    ),
    (
        ensemble(step({"a": "i"}, {"b": "o", "c": "t"})),
        "ensemble tensor 't' is unused in ensemble 'm'",
        'ensemble_scheduling.step[0].output_map["c"]',
        'remove output_map { key: "c" value: "t" }',
    ),
    (
        ensemble(step({"a": "i", "b": "t"}, {"c": "o"})),
        NOT_READY,
        "output[0].name",
        'output_map { key: "..." value: "t" }',
    ),
    (
        ensemble(step({"a": "i", "b": "o"}, {"c": "p"}), outputs=OUTPUTS),
        "output 'o' for ensemble 'm' is not written",
        "output[0].name",
        'output_map { key: "..." value: "o" }',
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_problem_is_told_with_its_place_and_its_fix(case: Case) -> None:
    assert_told(case)


@pytest.mark.parametrize(
    "text",
    [
        ensemble(ONE_STEP),
        # steps in another order than their tensors flow
        ensemble(step({"a": "t"}, {"b": "o"}) + step({"a": "i"}, {"b": "t"})),
    ],
)
def test_what_is_right_is_not_complained_of(text: str) -> None:
    assert problems(text) == []


def chain(count: int) -> str:
    """An ensemble of so many steps, each of which reads what the one before it writes."""
    names = ["i", *(f"t{number}" for number in range(1, count)), "o"]
    return ensemble(" ".join(step({"a": names[n]}, {"b": names[n + 1]}) for n in range(count)))


def test_an_ensemble_may_have_so_many_steps_and_one_more_is_refused() -> None:
    assert not problems(chain(MAX_STEPS))
    (problem,) = problems(chain(MAX_STEPS + 1))
    assert problem.message == f"ensemble 'm' has {MAX_STEPS + 1} steps, and the maximum is {MAX_STEPS}"


def calls_to_check(text: str) -> int:
    """How many functions are called until a configuration is refused, of Python and of C."""
    config = parse_text(text, "m")
    normalise(config, ())
    calls: Counter[str] = Counter()
    sys.setprofile(lambda _frame, event, _argument: calls.update([event]))
    try:
        with pytest.raises(InvalidArgumentError, match="'o' for ensemble m' is not used"):
            validate(config)
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"]


def wide(tensors: int) -> str:
    """An ensemble of steps that read and write many tensors, most of which nobody needs."""
    steps = [
        step(
            {f"a{each}": f"t{number}_{each}" if number else "i" for each in range(tensors)},
            {f"b{each}": f"t{number + 1}_{each}" for each in range(tensors)},
        )
        for number in range(4)
    ]
    return ensemble("".join(steps))


def test_checks_of_many_tensors_take_time_in_proportion() -> None:
    assert calls_to_check(wide(160)) < 6 * calls_to_check(wide(40))
