"""What is said of inputs and outputs."""

import pytest

from tests.config.validate.helpers import BASE, INPUT, Case, assert_told, name_of, problems, tensors

SHAPE_TENSOR = INPUT.replace("}", "is_shape_tensor: true }")


def tensor_cases() -> list[Case]:
    """The same rules for inputs and outputs."""
    cases: list[Case] = []
    for kind in ("input", "output"):
        named = f"model {kind} 't'"
        for entry, message, where, fix in (
            ('name: "t" dims: 1', f"{named} must specify 'data_type'", "data_type", "data_type: TYPE_FP32"),
            (
                'name: "t" dims: 1 data_type: 99',
                f"{named} must specify 'data_type'",
                "data_type",
                "data_type: TYPE_FP32",
            ),
            (
                "data_type: TYPE_FP32 dims: 1",
                f"model {kind} must specify 'name'",
                "name",
                f'name: "{kind.upper()}0"',
            ),
            ('name: "t" data_type: TYPE_FP32', f"{named} must specify 'dims'", "dims", "dims: [ 1 ]"),
            (
                'name: "t" data_type: TYPE_FP32 reshape { shape: [ 2 ] }',
                f"{named} has different size for dims and reshape",
                "reshape",
                "reshape { shape: [ ] }",
            ),
            (
                'name: "t" data_type: TYPE_FP32 dims: [ 2, 0 ]',
                f"{named} dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
                "dims",
                "dims: [ 2, -1 ]",
            ),
            (
                'name: "t" data_type: TYPE_FP32 dims: [ 2 ] reshape { shape: [ 2, -2 ] }',
                f"{named} reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension",
                "reshape",
                "reshape { shape: [ 2, -1 ] }",
            ),
            (
                'name: "t" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 5 ] }',
                f"{named} has different size for dims and reshape",
                "reshape",
                "reshape { shape: [ 2, 3 ] }",
            ),
            (
                'name: "t" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ 2, -1 ] }',
                f"{named} has different size for dims and reshape",
                "reshape",
                "reshape { shape: [ 4, -1 ] }",
            ),
            (
                'name: "t" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ 4 ] }',
                f"{named} has different size for dims and reshape",
                "reshape",
                "reshape { shape: [ 4, -1 ] }",
            ),
            (
                'name: "t" data_type: TYPE_FP32 dims: [ -1, 4, -1 ] reshape { shape: [ 4, -1 ] }',
                f"{named} has different number of variable-size dimensions for dims and reshape",
                "reshape",
                "reshape { shape: [ -1, 4, -1 ] }",
            ),
            (
                'name: "t" data_type: TYPE_FP32 dims: [ 1 ] is_shape_tensor: true',
                "shape tensors are only supported for TensorRT platform",
                "is_shape_tensor",
                "is_shape_tensor: false",
            ),
            (
                'name: "t" data_type: TYPE_FP32 dims: [ 1 ] is_non_linear_format_io: true',
                "Non-linear IO format is only supported for the TensorRT platform",
                "is_non_linear_format_io",
                "is_non_linear_format_io: false",
            ),
        ):
            text = tensors(of_input=entry) if kind == "input" else tensors(of_output=entry)
            cases.append((text, f"{message} for m", f"{kind}[0].{where}", fix))
        entry = 'name: "t" data_type: TYPE_FP32 dims: [ 1 ] reshape { }'
        text = tensors(of_input=entry, mbs=0) if kind == "input" else tensors(of_output=entry, mbs=0)
        message = f"{named} cannot have empty reshape for non-batching model as scalar tensors are not supported for m"
        cases.append((text, message, f"{kind}[0].reshape", "reshape { shape: [ 1 ] }"))
        one = f'{kind} {{ name: "t" data_type: TYPE_FP32 dims: 1 }} '
        message = f"model {kind} 't' is specified more than once for m"
        cases.append((f"{BASE} {one}{one}", message, f"{kind}[1].name", 'name: "t_1"'))
    return cases


CASES: list[Case] = [
    *tensor_cases(),
    (
        tensors('name: "t" data_type: TYPE_FP32 dims: [ 4, 4 ] format: FORMAT_NHWC'),
        "model input NHWC/NCHW require 3 dims for m",
        "input[0].format",
        "format: FORMAT_NONE",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_problem_is_told_with_its_place_and_its_fix(case: Case) -> None:
    assert_told(case)


@pytest.mark.parametrize(
    "text",
    [
        tensors('name: "i" data_type: TYPE_FP32 dims: [ 1 ] reshape { }'),
        tensors('name: "i" data_type: TYPE_FP32 dims: [ 2, -1, 6 ] reshape { shape: [ 2, 1, -1, 2, 3 ] }'),
        tensors('name: "i" data_type: TYPE_BF16 dims: [ 3, -1, -1 ] format: FORMAT_NCHW'),
        f'name: "m" platform: "tensorrt_plan" backend: "tensorrt" {SHAPE_TENSOR}',
    ],
)
def test_what_is_right_is_not_complained_of(text: str) -> None:
    assert problems(text) == []
