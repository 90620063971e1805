"""Defaults written down."""

import pytest
from hypothesis import given, settings

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from tests.config.strategies import configs

PINNED = "optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'name: "m" backend: "identity"',
            (
                'name: "m" backend: "identity" version_policy { latest { num_versions: 1 } } '
                f'{PINNED} instance_group {{ name: "m" kind: KIND_CPU count: 1 }}'
            ),
        ),
        (
            'name: "m" max_batch_size: 8 dynamic_batching { } version_policy { all { } }',
            (
                'name: "m" max_batch_size: 8 dynamic_batching { preferred_batch_size: 8 } version_policy { all { } } '
                f'{PINNED} instance_group {{ name: "m" kind: KIND_CPU count: 1 }}'
            ),
        ),
        (
            'name: "m" version_policy { }',
            f'name: "m" version_policy {{ }} {PINNED} instance_group {{ name: "m" kind: KIND_CPU count: 1 }}',
        ),
        (
            'name: "m" dynamic_batching { }',
            (
                'name: "m" dynamic_batching { } version_policy { latest { num_versions: 1 } } '
                f'{PINNED} instance_group {{ name: "m" kind: KIND_CPU count: 1 }}'
            ),
        ),
        (
            'name: "m" max_batch_size: 4 sequence_batching { oldest { } }',
            (
                'name: "m" max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 1000000 '
                "oldest { preferred_batch_size: 4 } } version_policy { latest { num_versions: 1 } } "
                f'{PINNED} instance_group {{ name: "m" kind: KIND_CPU count: 1 }}'
            ),
        ),
        (
            'name: "m" sequence_batching { max_sequence_idle_microseconds: 5 }',
            (
                'name: "m" sequence_batching { max_sequence_idle_microseconds: 5 direct { } } '
                "version_policy { latest { num_versions: 1 } } "
                f'{PINNED} instance_group {{ name: "m" kind: KIND_CPU count: 1 }}'
            ),
        ),
        (
            'name: "m" platform: "ensemble" ensemble_scheduling { }',
            (
                'name: "m" platform: "ensemble" ensemble_scheduling { } model_transaction_policy { } '
                "version_policy { latest { num_versions: 1 } }"
            ),
        ),
        (
            (
                'name: "m" optimization { input_pinned_memory { } } instance_group { count: 3 } '
                'instance_group { name: "b" kind: KIND_MODEL }'
            ),
            (
                'name: "m" optimization { input_pinned_memory { } output_pinned_memory { enable: true } } '
                "version_policy { latest { num_versions: 1 } } "
                'instance_group { name: "m_0" count: 3 kind: KIND_CPU } '
                'instance_group { name: "b" kind: KIND_MODEL count: 1 }'
            ),
        ),
    ],
)
def test_defaults_are_written_down(text: str, expected: str) -> None:
    config = parse_text(text, "m")
    normalise(config)
    assert config == parse_text(expected, "m")


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorflow"])
@pytest.mark.parametrize("group", ["", "instance_group { kind: KIND_CPU }", "instance_group { count: 0 }"])
def test_backends_that_gain_by_it_get_two_cpu_instances(backend: str, group: str) -> None:
    config = parse_text(f'name: "m" backend: "{backend}" {group}', "m")
    normalise(config)
    assert config.instance_group[0].count == 2


def test_instances_go_to_the_gpus_there_are() -> None:
    config = parse_text('name: "m" backend: "onnxruntime"', "m")
    normalise(config, (0, 1))
    assert list(config.instance_group) == [
        parse_text('instance_group { name: "m" kind: KIND_GPU count: 1 gpus: [ 0, 1 ] }', "m").instance_group[
            0
        ]
    ]


def test_group_that_lists_gpus_keeps_them() -> None:
    config = parse_text('name: "m" instance_group { gpus: 1 }', "m")
    normalise(config, (0, 1))
    assert list(config.instance_group[0].gpus) == [1]


@given(configs())
@settings(max_examples=50, deadline=None)
def test_normal_form_of_the_normal_form_is_itself(config: ModelConfig) -> None:
    normalise(config, (0,))
    once = ModelConfig()
    once.CopyFrom(config)
    normalise(config, (0,))
    assert config == once
