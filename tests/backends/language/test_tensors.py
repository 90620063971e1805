"""The tensors of a model that generates text."""

import pytest
from google.protobuf import text_format

from halimede.backends.language import tensors
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.errors import InvalidArgumentError


def completed(text: str = "") -> ModelConfig:
    config = text_format.Parse('name: "m" backend: "transformers" ' + text, ModelConfig())
    tensors.complete(config)
    return config


def test_tensors_are_those_of_the_vllm_backend() -> None:
    config = completed()
    tensors.check(config)
    signature = Signature.from_config(config)
    assert signature.decoupled
    assert [name for name, spec in signature.inputs.items() if not spec.optional] == ["text_input"]
    assert list(signature.outputs) == [
        "text_output",
        "finish_reason",
        "num_input_tokens",
        "num_output_tokens",
        "logprobs",
        "cumulative_logprob",
        "prompt",
        "prompt_logprobs",
        "tool_calls",
        "stop_reason",
    ]


def test_a_configuration_may_list_some_of_them() -> None:
    listed = 'input { name: "text_input" data_type: TYPE_STRING dims: [1] }'
    config = completed(listed)
    tensors.check(config)
    assert len(config.input) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_batch_size: 4", "needs max_batch_size: 0, got 4"),
        (
            "model_transaction_policy { decoupled: false }",
            "needs model_transaction_policy { decoupled: true }",
        ),
        ('input { name: "text_input" data_type: TYPE_INT8 dims: [1] }', "no input 'text_input' like this"),
        ('input { name: "PROMPT" data_type: TYPE_STRING dims: [1] }', "no input 'PROMPT' like this"),
        ('input { name: "stream" data_type: TYPE_BOOL dims: [1] }', "needs the input 'text_input'"),
        (
            'output { name: "finish_reason" data_type: TYPE_STRING dims: [1] }',
            "needs the output 'text_output'",
        ),
    ],
)
def test_others_are_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        tensors.check(completed(text))
    assert told in caught.value.message
