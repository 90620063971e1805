"""Wrong and unusual configurations, each loaded explicitly and unloaded."""

from tests.conformance.asking import config, get, gone, index, infer, load, loaded, tensor, unload
from tests.conformance.case import Case, case
from tests.conformance.differences import (
    BYTE_ORDER_MARK,
    FILE_OUTSIDE,
    NAME_TWICE,
    NEGATIVE_COUNT,
    OUTSIDE_THE_REPOSITORY,
    VERSION_ZERO,
    Difference,
)
from tests.conformance.sources import CONFIG, IDENTITY, IO
from tests.conformance.steps import Files, Step

BATCHING = 'backend: "python" max_batch_size: 8' + IO
LABELLED = IO.replace("dims: [-1] }]\n", "dims: [-1] }]\n", 1).replace(
    '"OUT" data_type: TYPE_INT32 dims: [-1]',
    '"OUT" data_type: TYPE_INT32 dims: [-1] label_filename: "none.txt"',
)


def io(what: str, members: str) -> str:
    """A configuration whose input or output has those members."""
    other = 'output [{ name: "OUT" data_type: TYPE_INT32 dims: [-1] }]'
    if what == "output":
        other = 'input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }]'
    return f'backend: "python" {what} [{{ {members} }}] {other}'


def batcher(members: str, size: int = 8) -> str:
    """A configuration with a dynamic batcher."""
    return f'backend: "python" max_batch_size: {size} {IO} dynamic_batching {{ {members} }}'


TEXTS: dict[str, str] = {
    "nonsense": "nonsense",
    "an unknown field": CONFIG + "unknown: 3",
    "an unknown field of an input": io("input", 'name: "X" data_type: TYPE_INT32 dims: [1] unknown: 3'),
    "a string for a number": CONFIG + 'max_batch_size: "3"',
    "an unknown datatype": io("input", 'name: "X" data_type: TYPE_INT33 dims: [1]'),
    "a brace too many": CONFIG + "}",
    "a brace missing": CONFIG + "dynamic_batching {",
    "an empty file": "",
    "another name": 'name: "other"' + CONFIG,
    "no backend": IO,
    "an empty backend": 'backend: ""' + IO,
    "an unknown backend": 'backend: "unknown"' + IO,
    "an unknown platform": 'platform: "unknown"' + IO,
    "platform and backend that do not match": 'platform: "onnxruntime_onnx" backend: "python"' + IO,
    "a negative batch size": 'backend: "python" max_batch_size: -1' + IO,
    "no inputs": 'backend: "python" output [{ name: "OUT" data_type: TYPE_INT32 dims: [-1] }]',
    "no outputs": 'backend: "python" input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }]',
    "nothing but the backend": 'backend: "python"',
    **{
        f"{what}: {name}": io(what, members)
        for what in ("input", "output")
        for name, members in {
            "no name": "data_type: TYPE_INT32 dims: [1]",
            "no datatype": 'name: "X" dims: [1]',
            "no dims": 'name: "X" data_type: TYPE_INT32',
            "dims 0": 'name: "X" data_type: TYPE_INT32 dims: [0]',
            "dims -2": 'name: "X" data_type: TYPE_INT32 dims: [-2]',
            "an empty reshape": 'name: "X" data_type: TYPE_INT32 dims: [1] reshape { shape: [] }',
            "a reshape of another size": 'name: "X" data_type: TYPE_INT32 dims: [4] reshape { shape: [2, 3] }',
            "a reshape of 0": 'name: "X" data_type: TYPE_INT32 dims: [4] reshape { shape: [0, 3] }',
            "a reshape with other variable dims": 'name: "X" data_type: TYPE_INT32 dims: [-1, 2] reshape { shape: [-1, -1] }',
            "a reshape of variable dims": 'name: "X" data_type: TYPE_INT32 dims: [-1, 2] reshape { shape: [2, -1] }',
            "a shape tensor": 'name: "X" data_type: TYPE_INT32 dims: [1] is_shape_tensor: true',
            "a non-linear format": 'name: "X" data_type: TYPE_INT32 dims: [1] is_non_linear_format_io: true',
        }.items()
    },
    "NHWC of two dims": io("input", 'name: "X" data_type: TYPE_INT32 dims: [2, 2] format: FORMAT_NHWC'),
    "NCHW of two dims": io("input", 'name: "X" data_type: TYPE_INT32 dims: [2, 2] format: FORMAT_NCHW'),
    "an input twice": CONFIG + 'input [{ name: "X" data_type: TYPE_INT32 dims: [1] }]',
    "an output twice": CONFIG + 'output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]',
    "a ragged input without batching": io(
        "input", 'name: "X" data_type: TYPE_INT32 dims: [1] allow_ragged_batch: true'
    ),
    "an optional input": io("input", 'name: "X" data_type: TYPE_INT32 dims: [1] optional: true'),
    "a datatype BF16": io("input", 'name: "X" data_type: TYPE_BF16 dims: [1]'),
    "labels that are not there": 'backend: "python"' + LABELLED,
    "labels outside": 'backend: "python"' + LABELLED.replace("none.txt", "../add_sub/labels.txt"),
    "an instance count 0": CONFIG + "instance_group [{ count: 0 kind: KIND_CPU }]",
    "a negative instance count": CONFIG + "instance_group [{ count: -1 kind: KIND_CPU }]",
    "two instances": CONFIG + "instance_group [{ count: 2 }]",
    "two groups": CONFIG
    + 'instance_group [{ count: 1 kind: KIND_CPU }, { name: "second" count: 1 kind: KIND_CPU }]',
    "KIND_GPU": CONFIG + "instance_group [{ count: 1 kind: KIND_GPU }]",
    "KIND_GPU and gpus": CONFIG + "instance_group [{ count: 1 kind: KIND_GPU gpus: [0] }]",
    "KIND_CPU and gpus": CONFIG + "instance_group [{ count: 1 kind: KIND_CPU gpus: [0] }]",
    "KIND_MODEL": CONFIG + "instance_group [{ count: 1 kind: KIND_MODEL }]",
    "KIND_AUTO and gpus": CONFIG + "instance_group [{ count: 1 kind: KIND_AUTO gpus: [0] }]",
    "a host policy": CONFIG + 'instance_group [{ count: 1 kind: KIND_CPU host_policy: "one" }]',
    "a secondary device": CONFIG
    + "instance_group [{ count: 1 kind: KIND_CPU secondary_devices [{ kind: KIND_NVDLA device_id: 0 }] }]",
    "version policy latest 0": CONFIG + "version_policy { latest { num_versions: 0 } }",
    "version policy latest 2": CONFIG + "version_policy { latest { num_versions: 2 } }",
    "version policy specific and absent": CONFIG + "version_policy { specific { versions: [4] } }",
    "version policy specific and partly absent": CONFIG + "version_policy { specific { versions: [1, 4] } }",
    "version policy specific and empty": CONFIG + "version_policy { specific { } }",
    "version policy all": CONFIG + "version_policy { all { } }",
    "version policy empty": CONFIG + "version_policy { }",
    "two version policies": CONFIG + "version_policy { all { } latest { num_versions: 1 } }",
    "dynamic batching": batcher(""),
    "dynamic batching without a batch size": batcher("", 0),
    "preferred size 0": batcher("preferred_batch_size: [0]"),
    "preferred size -1": batcher("preferred_batch_size: [-1]"),
    "preferred size too large": batcher("preferred_batch_size: [4, 9]"),
    "preferred sizes": batcher("preferred_batch_size: [2, 4] max_queue_delay_microseconds: 100"),
    "default priority without levels": batcher("default_priority_level: 1"),
    "default priority 0": batcher("priority_levels: 2"),
    "default priority too high": batcher("priority_levels: 2 default_priority_level: 3"),
    "priorities": batcher("priority_levels: 2 default_priority_level: 1"),
    "policy of an unknown priority": batcher(
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { max_queue_size: 1 } }"
    ),
    "policy of priority 0": batcher(
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value { max_queue_size: 1 } }"
    ),
    "ordering with priorities": batcher(
        "preserve_ordering: true priority_levels: 2 default_priority_level: 1"
    ),
    "ordering with delay": batcher(
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 100 }"
    ),
    "ordering with delay of a priority": batcher(
        "preserve_ordering: true priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 1 value { timeout_action: DELAY } }"
    ),
    "a queue policy": batcher(
        "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 100 allow_timeout_override: true max_queue_size: 3 }"
    ),
    "an unknown timeout action": batcher("default_queue_policy { timeout_action: LATER }"),
    "decoupled": CONFIG + "model_transaction_policy { decoupled: true }",
    "not decoupled": CONFIG + "model_transaction_policy { decoupled: false }",
    "an empty transaction policy": CONFIG + "model_transaction_policy { }",
    "response cache": CONFIG + "response_cache { enable: true }",
    "response cache and decoupled": CONFIG
    + "response_cache { enable: true } model_transaction_policy { decoupled: true }",
    "ensemble scheduling of a Python model": CONFIG
    + 'ensemble_scheduling { step [{ model_name: "add_sub" model_version: -1 }] }',
    "parameters": CONFIG
    + 'parameters { key: "a" value { string_value: "b" } } parameters { key: "c" value { string_value: "" } } parameters { key: "d" value { } }',
    "a model file": CONFIG + 'default_model_filename: "model.py"',
    "a model file outside": CONFIG + 'default_model_filename: "../../add_sub/1/model.py"',
    "a runtime": CONFIG + 'runtime: "model.py"',
    "the runtime of Python models": CONFIG + 'runtime: "libtriton_python.so"',
    "a runtime that is not there": CONFIG + 'runtime: "libtriton_other.so"',
    "an execution environment that is not there": CONFIG
    + 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "none.tar.gz" } }',
    "FORCE_CPU_ONLY_INPUT_TENSORS no": CONFIG
    + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
    "FORCE_CPU_ONLY_INPUT_TENSORS yes": CONFIG
    + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "yes" } }',
    "FORCE_CPU_ONLY_INPUT_TENSORS maybe": CONFIG
    + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "maybe" } }',
    "optimization": CONFIG
    + "optimization { priority: PRIORITY_MAX input_pinned_memory { enable: false } eager_batching: true }",
    "a rate limiter": CONFIG
    + 'instance_group [{ kind: KIND_CPU rate_limiter { resources [{ name: "r" count: 2 }] priority: 2 } }]',
    "operations": CONFIG + 'model_operations { op_library_filename: ["lib.so"] }',
    "metric tags": CONFIG + 'metric_tags { key: "a" value: "b" }',
    "batch input without batching": CONFIG
    + 'batch_input [{ kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_FP32 source_input: "X" }]',
    "batch input of another datatype": BATCHING
    + 'batch_input [{ kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_INT64 source_input: "X" }]',
    "batch input without source": BATCHING
    + 'batch_input [{ kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_INT32 }]',
    "batch input of an unknown source": BATCHING
    + 'batch_input [{ kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_INT32 source_input: "Q" }]',
    "batch input of two sources": BATCHING
    + 'batch_input [{ kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_INT32 source_input: ["X", "X"] }]',
    "batch input without target": BATCHING
    + 'batch_input [{ kind: BATCH_ELEMENT_COUNT data_type: TYPE_INT32 source_input: "X" }]',
    "batch output of an unknown target": BATCHING
    + 'batch_output [{ target_name: "Q" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }]',
    "batch output of an unknown source": BATCHING
    + 'batch_output [{ target_name: "OUT" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "Q" }]',
    "batch output without source": BATCHING
    + 'batch_output [{ target_name: "OUT" kind: BATCH_SCATTER_WITH_INPUT_SHAPE }]',
    "batch output twice": BATCHING
    + 'batch_output [{ target_name: "OUT" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }, { target_name: "OUT" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }]',
    "comments": "# a comment\n" + CONFIG + "# another",
    "commas and semicolons": 'backend: "python"; input: { name: "X", data_type: TYPE_INT32; dims: -1 }, output < name: "OUT" data_type: TYPE_INT32 dims: [-1] >',
    "enums as numbers": CONFIG.replace("TYPE_INT32", "8"),
    "a name with quotes of both kinds": "name: '@' \"\"" + CONFIG,
    "a byte order mark": "\ufeff" + CONFIG,
    "a field twice": 'backend: "python" backend: "python"' + IO,
    "model warm-up without inputs": CONFIG + 'model_warmup [{ name: "w" batch_size: 1 }]',
    "model warm-up of an unknown input": CONFIG
    + 'model_warmup [{ name: "w" batch_size: 1 inputs { key: "Q" value { data_type: TYPE_INT32 dims: [1] zero_data: true } } }]',
}
REPOSITORIES: dict[str, dict[str, str | bytes | None]] = {
    "no configuration": {"1/model.py": IDENTITY},
    "no version": {"config.pbtxt": CONFIG},
    "version 0": {"config.pbtxt": CONFIG, "0/model.py": IDENTITY},
    "version 01": {"config.pbtxt": CONFIG, "01/model.py": IDENTITY},
    "version v1": {"config.pbtxt": CONFIG, "v1/model.py": IDENTITY},
    "versions 1 and 02": {"config.pbtxt": CONFIG, "1/model.py": IDENTITY, "02/model.py": IDENTITY},
    "labels that are there": {
        "config.pbtxt": 'backend: "python"' + LABELLED,
        "none.txt": "a\nb\n",
        "1/model.py": IDENTITY,
    },
}


def tried(name: str) -> tuple[Step, ...]:
    """Load the model, look at it from all sides, and unload it."""
    call = infer(name, tensor("X", "INT32", [1, 2]))
    steps = (
        load(name),
        index(name),
        get(f"/v2/models/{name}/ready"),
        config(name),
        get(f"/v2/models/{name}"),
        call,
    )
    return (*steps, unload(name), gone(name), index(name))


MEANT = {
    "a negative instance count": NEGATIVE_COUNT,
    "an input twice": NAME_TWICE,
    "a model file outside": FILE_OUTSIDE,
    "a byte order mark": BYTE_ORDER_MARK,
    "version 0": VERSION_ZERO,
    "an output twice": NAME_TWICE,
    "batch output twice": NAME_TWICE,
    "labels outside": OUTSIDE_THE_REPOSITORY,
}


def written(number: int, name: str, text: str, differs: Difference | None = None) -> Case:
    """The case of a configuration's text; `@` in it is the model's name."""
    model = f"configured_{number}"
    return case(
        name,
        *loaded(
            model,
            text.replace("@", model),
            IDENTITY,
            index(model),
            config(model),
            get(f"/v2/models/{model}"),
            infer(model, tensor("X", "INT32", [1, 2])),
        ),
        index(model),
        differs=differs,
    )


CASES: list[Case] = [
    *(written(number, name, text, MEANT.get(name)) for number, (name, text) in enumerate(TEXTS.items())),
    *(
        case(
            f"directory: {name}",
            Files(f"directory_{number}", dict(files)),
            *tried(f"directory_{number}"),
            differs=MEANT.get(name),
        )
        for number, (name, files) in enumerate(REPOSITORIES.items())
    ),
]
