"""The JSON document of a configuration."""

import orjson
from google.protobuf import text_format
from hypothesis import given, settings

from halimede.config.document import config_document
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import parse_json, parse_text
from tests.config.strategies import configs


def test_document_has_defaults_and_leaves_out_what_is_unset() -> None:
    assert config_document(ModelConfig(name="m")) == {
        "name": "m",
        "platform": "",
        "backend": "",
        "runtime": "",
        "max_batch_size": 0,
        "input": [],
        "output": [],
        "batch_input": [],
        "batch_output": [],
        "instance_group": [],
        "default_model_filename": "",
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {},
        "model_warmup": [],
    }


def test_64_bit_integers_that_triton_writes_as_text_are_text() -> None:
    config = parse_text(
        """
        instance_group { secondary_devices { device_id: 9007199254740993 } }
        optimization { cuda { graph_spec { input { key: "x" value { dim: [ -1, 2 ] } } } } }
        """,
        "m",
    )
    document = config_document(config)
    assert document["instance_group"][0]["secondary_devices"] == [
        {"kind": "KIND_NVDLA", "device_id": "9007199254740993"}
    ]
    assert document["optimization"]["cuda"]["graph_spec"][0]["input"] == {"x": {"dim": ["-1", "2"]}}
    assert parse_json(orjson.dumps(document).decode()) == config


def test_document_spells_enums_and_keeps_64_bit_integers_as_numbers() -> None:
    config = parse_text(
        """
        input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4294967296 ] reshape { } }
        dynamic_batching { max_queue_delay_microseconds: 18446744073709551615
                           priority_queue_policy { key: 2 value { timeout_action: DELAY } } }
        parameters { key: "b" value { string_value: "2" } }
        parameters { key: "a" value { string_value: "1" } }
        """,
        "m",
    )
    document = config_document(config)
    assert document["input"] == [
        {
            "name": "x",
            "data_type": "TYPE_FP32",
            "format": "FORMAT_NONE",
            "dims": [-1, 4294967296],
            "reshape": {"shape": []},
            "is_shape_tensor": False,
            "allow_ragged_batch": False,
            "optional": False,
            "is_non_linear_format_io": False,
        }
    ]
    assert document["dynamic_batching"] == {
        "preferred_batch_size": [],
        "max_queue_delay_microseconds": 18446744073709551615,
        "preserve_ordering": False,
        "priority_levels": 0,
        "default_priority_level": 0,
        "priority_queue_policy": {
            "2": {
                "timeout_action": "DELAY",
                "default_timeout_microseconds": 0,
                "allow_timeout_override": False,
                "max_queue_size": 0,
            }
        },
    }
    assert document["parameters"] == {"a": {"string_value": "1"}, "b": {"string_value": "2"}}
    assert "sequence_batching" not in document


def test_unset_members_of_a_choice_are_left_out() -> None:
    config = parse_text('model_warmup { name: "w" inputs { key: "x" value { zero_data: false } } }', "m")
    assert config_document(config)["model_warmup"][0]["inputs"]["x"] == {
        "data_type": "TYPE_INVALID",
        "dims": [],
        "zero_data": False,
    }


def test_floats_are_written_as_short_as_they_are_exact() -> None:
    config = parse_text("sequence_batching { direct { minimum_slot_utilization: 0.1 } }", "m")
    assert config_document(config)["sequence_batching"]["direct"]["minimum_slot_utilization"] == 0.1


@given(configs())
@settings(max_examples=100, deadline=None)
def test_document_read_back_is_the_same_configuration(config: ModelConfig) -> None:
    assert parse_json(orjson.dumps(config_document(config))) == config


@given(configs())
@settings(max_examples=50, deadline=None)
def test_printed_text_read_back_is_the_same_configuration(config: ModelConfig) -> None:
    assert parse_text(text_format.MessageToString(config), "m") == config
