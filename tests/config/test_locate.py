"""Lines of fields in a `config.pbtxt`."""

from google.protobuf import text_format
from hypothesis import given, settings

from halimede.config.locate import locate
from halimede.config.model_config_pb2 import ModelConfig
from tests.config.strategies import configs

TEXT = """\
# a comment
name: "m"  max_batch_size: 8
input [
  {
    name: "x" "y"
    dims: [ 1,
            -1 ]
  },
  { name: "z" }
]
input { name: "last" };
parameters {
  value: { string_value: "1" }
  key: "a.b[0]"
}
parameters < key: 'a.b[0]', value < string_value: "2" > >
dynamic_batching {
  priority_queue_policy { key: 1 value {
    timeout_action: DELAY } }
}
instance_group []
"""


def test_fields_are_found_on_their_lines() -> None:
    locations = locate(TEXT)
    assert locations.lines == {
        "name": 2,
        "max_batch_size": 2,
        "input": 3,
        "input[0]": 4,
        "input[0].name": 5,
        "input[0].dims": 6,
        "input[0].dims[0]": 6,
        "input[0].dims[1]": 7,
        "input[1]": 9,
        "input[1].name": 9,
        "input[2]": 11,
        "input[2].name": 11,
        "parameters": 12,
        'parameters["a.b[0]"]': 16,
        'parameters["a.b[0]"].string_value': 16,
        "dynamic_batching": 17,
        "dynamic_batching.priority_queue_policy": 18,
        "dynamic_batching.priority_queue_policy[1]": 18,
        "dynamic_batching.priority_queue_policy[1].timeout_action": 19,
        "instance_group": 21,
    }
    assert locations.repeated_keys == [('parameters["a.b[0]"]', 16)]


def test_missing_field_is_found_where_it_should_be() -> None:
    locations = locate(TEXT)
    assert locations.line("input[1].data_type") == 9
    assert locations.line('parameters["a.b[0]"].other') == 16
    assert locations.line("backend") == 0


@given(configs())
@settings(max_examples=50, deadline=None)
def test_every_accepted_text_can_be_searched(config: ModelConfig) -> None:
    text = text_format.MessageToString(config)
    locations = locate(text)
    assert all(1 <= line <= text.count("\n") for line in locations.lines.values())
    assert bool(locations.lines) == bool(text)
    assert not locations.repeated_keys
