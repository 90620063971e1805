"""What the parameters of a configuration say about batches that are closed by tokens."""

import pytest

from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.config.token_batching import TokenBatching
from tests.config.validate.helpers import problems

INPUTS = """
    input { name: "SEED" data_type: TYPE_INT32 dims: [ 1 ] }
    input { name: "IDS" data_type: TYPE_INT64 dims: [ -1 ] }
    input { name: "MASK" data_type: TYPE_INT64 dims: [ -1 ] }
"""
OUTPUT = 'output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }'
MODEL = f'name: "m" backend: "onnxruntime" max_batch_size: 8 dynamic_batching {{ }} {INPUTS} {OUTPUT}'


def parameters(**values: str) -> str:
    return "".join(
        f' parameters {{ key: "dynamic_batching.{key}" value {{ string_value: "{value}" }} }}'
        for key, value in values.items()
    )


def tokens(text: str) -> TokenBatching | None:
    assert problems(text) == []
    config = parse_text(text, "test")
    normalise(config)
    return Signature.from_config(config).tokens


def test_rows_close_batches_unless_there_is_a_limit_of_tokens() -> None:
    assert tokens(MODEL) is None


def test_first_variable_input_counts_and_all_are_filled_with_zeros() -> None:
    found = tokens(MODEL + parameters(max_tokens="100"))
    assert found == TokenBatching(100, 1.0, "IDS", padded=True, fill={"IDS": 0, "MASK": 0})


def test_all_can_be_said() -> None:
    text = MODEL + parameters(max_tokens="100", max_padding="0.25", tokens="MASK", pad_with="IDS=1")
    assert tokens(text) == TokenBatching(100, 0.25, "MASK", padded=True, fill={"IDS": 1, "MASK": 0})


def test_ragged_inputs_are_not_filled_up() -> None:
    text = MODEL.replace("dims: [ -1 ]", "dims: [ -1 ] allow_ragged_batch: true") + parameters(
        max_tokens="100"
    )
    assert tokens(text) == TokenBatching(100, 1.0, "IDS", padded=False, fill={})


def test_python_models_fill_up_by_themselves() -> None:
    text = MODEL.replace("onnxruntime", "python") + parameters(max_tokens="100")
    assert tokens(text) == TokenBatching(100, 1.0, "IDS", padded=True, fill={})


@pytest.mark.parametrize(
    ("text", "parameter", "message"),
    [
        (MODEL + parameters(max_tokens="0"), "max_tokens", "must be a whole number above 0, got '0'"),
        (MODEL + parameters(max_tokens="1.5"), "max_tokens", "must be a whole number above 0, got '1.5'"),
        (
            MODEL + parameters(max_padding="0.1"),
            "max_padding",
            "has no effect without 'dynamic_batching.max_tokens'",
        ),
        (
            MODEL + parameters(max_tokens="9", max_padding="10"),
            "max_padding",
            "must be a share from 0 to 1, got '10'",
        ),
        (
            MODEL + parameters(max_tokens="9", max_padding="nan"),
            "max_padding",
            "must be a share from 0 to 1, got 'nan'",
        ),
        (
            MODEL + parameters(max_tokens="9", maxpadding="1"),
            "maxpadding",
            (
                "is unknown; known are dynamic_batching.max_tokens, dynamic_batching.max_padding, "
                "dynamic_batching.tokens, dynamic_batching.pad_with"
            ),
        ),
        (
            MODEL.replace("dynamic_batching { }", "") + parameters(max_tokens="9"),
            "max_tokens",
            "has no effect without dynamic_batching { }",
        ),
        (
            MODEL.replace("dynamic_batching { }", "dynamic_batching { preferred_batch_size: 4 }")
            + parameters(max_tokens="9"),
            "max_tokens",
            "closes batches by tokens, so preferred_batch_size, which counts rows, cannot be set beside it",
        ),
        (
            MODEL.replace("max_batch_size: 8", "max_batch_size: 0") + parameters(max_tokens="9"),
            "max_tokens",
            "needs a max_batch_size above 0",
        ),
        (
            MODEL + parameters(max_tokens="9", tokens="SEED"),
            "tokens",
            (
                "names 'SEED', but only inputs whose first dimension is variable (dims: [ -1 ]) have tokens; "
                "the model has 'IDS', 'MASK'"
            ),
        ),
        (
            MODEL.replace("-1", "3") + parameters(max_tokens="9"),
            "max_tokens",
            "is set, but only inputs whose first dimension is variable (dims: [ -1 ]) have tokens; the model has none",
        ),
        (
            MODEL + parameters(max_tokens="9", pad_with="IDS"),
            "pad_with",
            "must be INPUT=INTEGER, several separated by commas, got 'IDS'",
        ),
        (
            MODEL + parameters(max_tokens="9", pad_with="SEED=1"),
            "pad_with",
            "names 'SEED', which is not filled up; inputs that are: 'IDS', 'MASK'",
        ),
        (
            MODEL.replace("TYPE_INT64", "TYPE_STRING") + parameters(max_tokens="9"),
            "tokens",
            "names 'IDS', which cannot be filled up: it has strings or a reshape",
        ),
    ],
)
def test_what_is_wrong_is_told(text: str, parameter: str, message: str) -> None:
    key = f"dynamic_batching.{parameter}"
    (problem,) = problems(text)
    assert problem.message == f"parameter '{key}' {message} for m"
    assert problem.where == f'parameters["{key}"].string_value'


@pytest.mark.parametrize("value", ["-1", "300"])
def test_value_that_the_datatype_does_not_have(value: str) -> None:
    text = MODEL.replace("TYPE_INT64", "TYPE_UINT8") + parameters(max_tokens="9", pad_with=f"IDS={value}")
    (problem,) = problems(text)
    assert problem.message.startswith(f"parameter 'dynamic_batching.pad_with' fills 'IDS' up with {value}, ")
