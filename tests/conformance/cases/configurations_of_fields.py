"""Configurations once more: sequence batchers that are refused, further fields, values as text, and directories."""

from tests.conformance.case import Case, case
from tests.conformance.cases.configurations import BATCHING, tried, written
from tests.conformance.differences import TEXT_IN_CONFIGURATION, UNKNOWN_ENUM, Difference
from tests.conformance.sources import CONFIG, IDENTITY
from tests.conformance.steps import Files

START = (
    'control_input [{ name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] }]'
)
BAD = "kind: CONTROL_SEQUENCE_START"


def sequences(members: str, more: str = "") -> str:
    """A configuration with a sequence batcher."""
    return f"{BATCHING} sequence_batching {{ {members} }} {more}"


def control(members: str) -> str:
    """A sequence batcher with a control input of those controls."""
    return sequences(f'control_input [{{ name: "C" control [{{ {members} }}] }}]')


def group(members: str) -> str:
    """A configuration with an instance group."""
    return f"{CONFIG} instance_group [{{ {members} }}]"


TEXTS: dict[str, str] = {
    "sequences: oldest preferred": sequences(
        "oldest { max_candidate_sequences: 4 preferred_batch_size: [2, 9] max_queue_delay_microseconds: 3 }"
    ),
    "sequences: oldest preferred 0": sequences(
        "oldest { max_candidate_sequences: 4 preferred_batch_size: [0] }"
    ),
    "sequences: both strategies": sequences("direct { } oldest { }"),
    "sequences: slot utilization too high": sequences("direct { minimum_slot_utilization: 1.5 }"),
    "sequences: slot utilization below 0": sequences("direct { minimum_slot_utilization: -0.5 }"),
    "sequences: and dynamic batching": sequences("", "dynamic_batching { }"),
    "sequences: response cache": sequences("", "response_cache { enable: true }"),
    "control: no name": sequences(f"control_input [{{ control [{{ {BAD} int32_false_true: [0, 1] }}] }}]"),
    "control: the name twice": sequences(START + START.replace("_START", "_READY")),
    "control: the kind twice": sequences(START + START.replace('"START"', '"AGAIN"')),
    "control: no values": control(BAD),
    "control: one value": control(f"{BAD} fp32_false_true: [0]"),
    "control: three values": control(f"{BAD} bool_false_true: [false, true, false]"),
    "control: two kinds of values": control(f"{BAD} int32_false_true: [0, 1] fp32_false_true: [0, 1]"),
    "control: id of another datatype": control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"),
    "control: id without datatype": control("kind: CONTROL_SEQUENCE_CORRID"),
    "control: id with values": control(
        "kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 int32_false_true: [0, 1]"
    ),
    "optimization: graph": CONFIG + "optimization { graph { level: -1 } gather_kernel_buffer_threshold: 7 }",
    "optimization: cuda": CONFIG
    + 'optimization { cuda { graphs: true busy_wait_events: true output_copy_stream: true graph_spec [{ batch_size: 1 input { key: "X" value { dim: [1, -1] } } graph_lower_bound { batch_size: 1 input { key: "X" value { dim: 1 } } } }] } }',
    "optimization: accelerators": CONFIG
    + 'optimization { execution_accelerators { gpu_execution_accelerator [{ name: "tensorrt" parameters { key: "b" value: "1" } parameters { key: "a" value: "2" } }] cpu_execution_accelerator [{ name: "none" }] } }',
    "optimization: output memory": CONFIG + "optimization { output_pinned_memory { } }",
    "instances: profile": group('profile: ["0"]'),
    "instances: one passive": group("kind: KIND_CPU }, { kind: KIND_CPU passive: true"),
    "instances: names": group('name: "same" kind: KIND_CPU }, { name: "same" kind: KIND_CPU'),
    "instances: an unknown kind": group("kind: KIND_TPU"),
    "instances: a kind by number": group("kind: 7"),
    "instances: a rate limiter": group(
        'kind: KIND_CPU rate_limiter { resources [{ name: "r" global: true count: 1 }, { name: "r" count: 3 }] priority: 4294967295 }'
    ),
    "instances: gpus of KIND_MODEL": group("kind: KIND_MODEL gpus: [0]"),
    "instances: two unknown gpus": group("kind: KIND_GPU gpus: [0, 1]"),
    "instances: a gpu below 0": group("kind: KIND_GPU gpus: [-1]"),
    "instances: two secondary devices": group(
        "kind: KIND_CPU secondary_devices [{ device_id: -3 }, { device_id: 9007199254740993 }]"
    ),
    "file names by compute capability": CONFIG + 'cc_model_filenames { key: "7.5" value: "other.py" }',
    "version policy: a version below 0": CONFIG + "version_policy { specific { versions: [-1, 1] } }",
    "version policy: a version twice": CONFIG + "version_policy { specific { versions: [1, 1] } }",
    "policy of a priority: texts": BATCHING
    + "dynamic_batching { priority_levels: 11 default_priority_level: 2 priority_queue_policy { key: 10 value { default_timeout_microseconds: 18446744073709551615 } } priority_queue_policy { key: 2 value { } } }",
    "priority levels of 64 bits": BATCHING
    + "dynamic_batching { priority_levels: 18446744073709551615 default_priority_level: 18446744073709551614 }",
    "a queue delay of 64 bits": BATCHING
    + "dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }",
    "preferred sizes twice": BATCHING + "dynamic_batching { preferred_batch_size: [4, 2, 4] }",
    "text: dims one by one": CONFIG.replace("dims: [-1]", "dims: -1 dims: 2"),
    "text: a comma at the end": CONFIG.replace("dims: [-1]", "dims: [-1,]"),
    "text: dims as text": CONFIG.replace("dims: [-1]", 'dims: ["1"]'),
    "text: dims as floats": CONFIG.replace("dims: [-1]", "dims: [1.0]"),
    "text: dims in octal and hexadecimal": CONFIG.replace("dims: [-1]", "dims: [010, 0x10]"),
    "text: dims too large": CONFIG.replace("dims: [-1]", "dims: [9223372036854775808]"),
    "text: largest dims": CONFIG.replace("dims: [-1]", "dims: [9223372036854775807]"),
    "text: a batch size too large": CONFIG + "max_batch_size: 2147483648",
    "text: a batch size that is a float": CONFIG + "max_batch_size: 1.5",
    "text: a batch size that is a word": CONFIG + "max_batch_size: four",
    "text: an unsigned below 0": CONFIG + "version_policy { latest { num_versions: -1 } }",
    "text: a boolean t": CONFIG + "model_transaction_policy { decoupled: t }",
    "text: a boolean True": CONFIG + "model_transaction_policy { decoupled: True }",
    "text: a boolean 1": CONFIG + "model_transaction_policy { decoupled: 1 }",
    "text: a boolean 2": CONFIG + "model_transaction_policy { decoupled: 2 }",
    "text: a boolean yes": CONFIG + "model_transaction_policy { decoupled: yes }",
    "text: an enum in quotes": CONFIG.replace("TYPE_INT32", '"TYPE_INT32"', 1),
    "text: an enum in small letters": CONFIG.replace("TYPE_INT32", "type_int32", 1),
    "text: an enum with an unknown number": CONFIG.replace("TYPE_INT32", "99", 1),
    "text: a message without colon": CONFIG + "dynamic_batching: { }",
    "text: a scalar without colon": CONFIG + "max_batch_size 0",
    "text: an unknown escape": CONFIG + r'parameters { key: "a" value { string_value: "\q" } }',
    "text: escapes": CONFIG + r'parameters { key: "a" value { string_value: "\x41\102\n\u00e4\"" } }',
    "text: a string that does not end": CONFIG + 'parameters { key: "a',
    "text: strings side by side": CONFIG + 'parameters { key: "a" value { string_value: "one" " two" } }',
    "text: a string of bytes": CONFIG + r'parameters { key: "a" value { string_value: "\xff" } }',
    "text: a key twice": CONFIG
    + 'parameters { key: "a" value { string_value: "1" } } parameters { key: "a" value { string_value: "2" } }',
    "text: a list of messages": CONFIG
    + 'parameters [{ key: "a" value { string_value: "1" } }, { key: "b" value { string_value: "2" } }]',
    "text: JSON": '{"backend": "python"}',
    "text: a list for a single value": CONFIG + "max_batch_size: [0]",
    "text: a field by its number": CONFIG + "4: 0",
    "text: an extension": CONFIG + "[a.b]: 1",
    "text: a message twice": CONFIG + "optimization { eager_batching: true } optimization { priority: 1 }",
}
REPOSITORIES: dict[str, dict[str, str | bytes | None]] = {
    "a version that is a file": {"config.pbtxt": CONFIG, "1": ""},
    "a version of 64 bits": {"config.pbtxt": CONFIG, "9223372036854775807/model.py": IDENTITY},
    "versions 2 and 10": {"config.pbtxt": CONFIG, "2/model.py": IDENTITY, "10/model.py": IDENTITY},
    "three versions, all": {
        "config.pbtxt": CONFIG + "version_policy { all { } }",
        "1/model.py": IDENTITY,
        "2/model.py": IDENTITY,
        "3/model.py": IDENTITY,
    },
    "two versions, an empty policy": {
        "config.pbtxt": CONFIG + "version_policy { }",
        "1/model.py": IDENTITY,
        "2/model.py": IDENTITY,
    },
    "three versions, two": {
        "config.pbtxt": CONFIG + "version_policy { latest { num_versions: 2 } }",
        "1/model.py": IDENTITY,
        "2/model.py": IDENTITY,
        "3/model.py": IDENTITY,
    },
    "a configuration that is no UTF-8": {
        "config.pbtxt": b"\xff\xfe" + CONFIG.encode(),
        "1/model.py": IDENTITY,
    },
    "another directory": {"config.pbtxt": CONFIG, "1/model.py": IDENTITY, "notes/readme.md": "x"},
    "a file of another model": {
        "config.pbtxt": 'backend: "python"',
        "1/model.onnx": "",
        "1/model.py": IDENTITY,
    },
}
MEANT: dict[str, Difference] = {
    "instances: a kind by number": UNKNOWN_ENUM,
    "text: an enum with an unknown number": UNKNOWN_ENUM,
    "text: a string of bytes": TEXT_IN_CONFIGURATION,
}
FIRST = 1000

CASES: list[Case] = [
    *(
        written(number, name, text, MEANT.get(name))
        for number, (name, text) in enumerate(TEXTS.items(), FIRST)
    ),
    *(
        case(
            f"directory: {name}",
            Files(f"directory_{number}", dict(files)),
            *tried(f"directory_{number}"),
            differs=MEANT.get(name),
        )
        for number, (name, files) in enumerate(REPOSITORIES.items(), FIRST)
    ),
]
