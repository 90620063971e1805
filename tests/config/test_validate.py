"""Every text of the validation catalogue, exactly, with the place of the problem and the line that mends it."""

import logging

import pytest
from hypothesis import given, settings

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.validate import Problem, find_problems, validate
from halimede.core.errors import InvalidArgumentError
from tests.config.strategies import configs

IN = 'name: "i" data_type: TYPE_FP32 dims: [ 4 ]'
OUT = 'name: "o" data_type: TYPE_FP32 dims: [ 4 ]'
INPUT, OUTPUT = f"input {{ {IN} }}", f"output {{ {OUT} }}"
INPUTS = INPUT + INPUT.replace('"i"', '"j"')
OUTPUTS = OUTPUT + OUTPUT.replace('"o"', '"p"')
SHAPE_TENSOR = INPUT.replace("}", "is_shape_tensor: true }")
BASE = 'name: "m" backend: "identity"'
BATCHING = f"{BASE} max_batch_size: 8 {INPUT} {OUTPUT}"
PLAIN = f"{BASE} {INPUT} {OUTPUT}"
ENSEMBLE = f'name: "m" platform: "ensemble" {INPUT} {OUTPUT}'
ONE_STEP = (
    "step { "
    + 'model_name: "x" model_version: -1 input_map { key: "a" value: "i" } output_map { key: "b" value: "o" } }'
)

NO_DELAY = "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"
ONE_ELEMENT = (
    "initial_state field for state input 's' must contain exactly one or zero element. Found 2 elements."
)
GPU_9 = (
    "instance group m_0 of model m specifies invalid or unsupported gpu id 9. GPUs with at least the minimum "
    "required CUDA compute compatibility of 6.000000 are: 0, 1"
)
NOT_READY = (
    "output 'o' for ensemble 'm' is not written: at least one of its depending tensors, 't', is not connected"
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


def tensor_cases() -> list[tuple[str, str, str, str]]:
    """The same rules for inputs and outputs."""
    cases = []
    for kind in ("input", "output"):
        named = f"model {kind} 't'"
        for entry, message, where, mend in (
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
            cases.append((text, message, f"{kind}[0].{where}", mend))
        entry = 'name: "t" data_type: TYPE_FP32 dims: [ 1 ] reshape { }'
        text = tensors(of_input=entry, mbs=0) if kind == "input" else tensors(of_output=entry, mbs=0)
        message = (
            f"{named} cannot have empty reshape for non-batching model as scalar tensors are not supported"
        )
        cases.append((text, message, f"{kind}[0].reshape", "reshape { shape: [ 1 ] }"))
        one = f'{kind} {{ name: "t" data_type: TYPE_FP32 dims: 1 }} '
        message = f"model {kind} 't' is specified more than once"
        cases.append((f"{BASE} {one}{one}", message, f"{kind}[1].name", 'name: "t_1"'))
    return cases


def controls(text: str) -> str:
    return f"{PLAIN} sequence_batching {{ {text} }}"


def control(text: str, name: str = "c") -> str:
    return controls(f'control_input {{ name: "{name}" control {{ {text} }} }}')


def state(initial: str, dims: str = "[ 2, -1 ]", more: str = "") -> str:
    return controls(f'state {{ input_name: "s" data_type: TYPE_FP32 dims: {dims} {initial} }} {more}')


def initial(name: str = 'name: "n"', datatype: str = "TYPE_FP32", dims: str = "[ 2, 3 ]") -> str:
    return f"initial_state {{ {name} data_type: {datatype} dims: {dims} zero_data: true }}"


def ensemble(steps: str, inputs: str = INPUT, outputs: str = OUTPUT) -> str:
    return f'name: "m" platform: "ensemble" {inputs} {outputs} ensemble_scheduling {{ {steps} }}'


def step(inputs: dict[str, str], outputs: dict[str, str], model: str = 'model_name: "x"') -> str:
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
    return f"step {{ {model} model_version: -1 {' '.join(maps)} }}"


FALSE_TRUE = "int32_false_true: [ 0, 1 ]"
START = f"kind: CONTROL_SEQUENCE_START {FALSE_TRUE}"
METRIC = 'metric_identifier { family: "nv_inference_first_response_histogram_ms" }'
BUCKETS = "histogram_options { buckets: [ 1 ] }"

CASES = [
    # platform
    ('name: "m"', "must specify 'platform' or 'backend' for 'm'", "backend", 'backend: "onnxruntime"'),
    (
        f'{ENSEMBLE} backend: "x" ensemble_scheduling {{ {ONE_STEP} }}',
        "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        "backend",
        'platform: "ensemble"',
    ),
    (
        'name: "m" backend: "ensemble"',
        "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        "backend",
        'platform: "ensemble"',
    ),
    (f"{BASE} max_batch_size: -1", "'max_batch_size' must be non-negative value for m", "max_batch_size", "max_batch_size: 0"),
    # inputs and outputs
    *tensor_cases(),
    (
        tensors('name: "t" data_type: TYPE_FP32 dims: [ 4, 4 ] format: FORMAT_NHWC'),
        "model input NHWC/NCHW require 3 dims",
        "input[0].format",
        "format: FORMAT_NONE",
    ),
    # dynamic batching
    (
        f"{BATCHING} dynamic_batching {{ preferred_batch_size: [ 0, 2 ] }}",
        "dynamic batching preferred size must be positive for m",
        "dynamic_batching.preferred_batch_size",
        "preferred_batch_size: [2]",
    ),
    (
        f"{BATCHING} dynamic_batching {{ preferred_batch_size: [ 4, 16 ] }}",
        "dynamic batching preferred size must be <= max batch size for m",
        "dynamic_batching.preferred_batch_size",
        "max_batch_size: 16",
    ),
    (
        f"{BATCHING} dynamic_batching {{ priority_levels: 2 }}",
        "default priority level must be in range [1, 2] for m",
        "dynamic_batching.default_priority_level",
        "default_priority_level: 1",
    ),
    (
        f"{BATCHING} dynamic_batching {{ priority_levels: 2 default_priority_level: 3 }}",
        "default priority level must be in range [1, 2] for m",
        "dynamic_batching.default_priority_level",
        "default_priority_level: 1",
    ),
    (
        f"{BATCHING} dynamic_batching {{ priority_levels: 2 default_priority_level: 1 "
        "priority_queue_policy { key: 3 value { } } }",
        "priority queue policy must have priority level in range [1, 2] for m",
        "dynamic_batching.priority_queue_policy[3]",
        "priority_levels: 3",
    ),
    (
        f"{BATCHING} dynamic_batching {{ priority_levels: 2 default_priority_level: 1 preserve_ordering: true }}",
        "Only one priority level is allowed when 'preserve_ordering' is true for m",
        "dynamic_batching.priority_levels",
        "preserve_ordering: false",
    ),
    (
        f"{BATCHING} dynamic_batching {{ preserve_ordering: true "
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 } }",
        NO_DELAY,
        "dynamic_batching.default_queue_policy.timeout_action",
        "timeout_action: REJECT",
    ),
    (
        f"{BATCHING} dynamic_batching {{ preserve_ordering: true priority_levels: 1 default_priority_level: 1 "
        "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }",
        NO_DELAY,
        "dynamic_batching.priority_queue_policy[1].timeout_action",
        "timeout_action: REJECT",
    ),
    # sequence batching
    *(
        (
            controls(
                f'control_input {{ name: "a" control {{ kind: {kind} {FALSE_TRUE} }} }} '
                f'control_input {{ name: "b" control {{ kind: {kind} {FALSE_TRUE} }} }}'
            ),
            f"sequence batching specifies multiple {kind} tensors for m",
            "sequence_batching.control_input[1].control[0]",
            None,
        )
        for kind in ("CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_END")
    ),
    (
        controls(
            f'control_input {{ name: "a" control {{ {START} }} }} '
            f'control_input {{ name: "a" control {{ kind: CONTROL_SEQUENCE_END {FALSE_TRUE} }} }}'
        ),
        "sequence batching control tensor 'a' is specified for multiple control kinds for m",
        "sequence_batching.control_input[1].name",
        'name: "a_1"',
    ),
    (
        control(START, ""),
        "sequence batching control tensor must have a name for m",
        "sequence_batching.control_input[0].name",
        'name: "START"',
    ),
    (
        control("kind: CONTROL_SEQUENCE_END"),
        "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
        "CONTROL_SEQUENCE_END for m",
        "sequence_batching.control_input[0].control[0]",
        "int32_false_true: [ 0, 1 ]",
    ),
    (
        control(f"{START} fp32_false_true: [ 0, 1 ]"),
        "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
        "'bool_false_true' for CONTROL_SEQUENCE_START for m",
        "sequence_batching.control_input[0].control[0].fp32_false_true",
        "int32_false_true: [ 0, 1 ]",
    ),
    *(
        (
            control(f"kind: CONTROL_SEQUENCE_READY {name}: [ {values} ]"),
            f"sequence batching control '{name}' must have exactly 2 entries for CONTROL_SEQUENCE_READY for m",
            f"sequence_batching.control_input[0].control[0].{name}",
            f"{name}: [ {mend} ]",
        )
        for name, values, mend in (
            ("int32_false_true", "1", "0, 1"),
            ("fp32_false_true", "0, 1, 2", "0, 1"),
            ("bool_false_true", "true", "false, true"),
        )
    ),
    (
        control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"),
        "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, "
        "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
        "sequence_batching.control_input[0].control[0].data_type",
        "data_type: TYPE_UINT64",
    ),
    (
        control(f"kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 {FALSE_TRUE}"),
        "sequence batching must not specify 'int32_false_true' for CONTROL_SEQUENCE_CORRID for m; "
        "its value is the sequence's id",
        "sequence_batching.control_input[0].control[0].int32_false_true",
        None,
    ),
    (
        f"{BATCHING} sequence_batching {{ oldest {{ preferred_batch_size: -1 }} }}",
        "sequence batching preferred batch size must be positive for m",
        "sequence_batching.oldest.preferred_batch_size",
        "remove preferred_batch_size",
    ),
    (
        f"{BATCHING} sequence_batching {{ oldest {{ preferred_batch_size: 9 }} }}",
        "sequence batching preferred batch size must be <= max batch size for m",
        "sequence_batching.oldest.preferred_batch_size",
        "max_batch_size: 9",
    ),
    (
        controls("direct { minimum_slot_utilization: 1.5 }"),
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
        "sequence_batching.direct.minimum_slot_utilization",
        "minimum_slot_utilization: 1.0",
    ),
    # implicit state
    (state(initial() * 2), ONE_ELEMENT, "sequence_batching.state[0].initial_state[1]", "remove all but one initial_state"),
    (
        state(initial(datatype="TYPE_INT32")),
        "The data type used for 'initial_state' field of state 's' does not match the state data type.",
        "sequence_batching.state[0].initial_state[0].data_type",
        "data_type: TYPE_FP32",
    ),
    (
        state(initial(name="")),
        "Field 'name' must be set when using initial_state for state input 's'.",
        "sequence_batching.state[0].initial_state[0].name",
        'name: "s initial state"',
    ),
    (
        state(initial(), more='state { input_name: "s" data_type: TYPE_FP32 dims: 1 }'),
        "State input name 's' specified more than once.",
        "sequence_batching.state[1].input_name",
        'input_name: "s_1"',
    ),
    (
        state(initial(dims="[ 2 ]")),
        "Number of dimensions in 'initial_state' field for state input 's' must be 2, as in its 'dims' field, not 1.",
        "sequence_batching.state[0].initial_state[0].dims",
        "dims: [2, 1]",
    ),
    (
        state(initial(dims="[ 2, -1 ]")),
        "'initial_state' field for state input 's' contains variable dimensions; the size of what a sequence "
        "begins with must be given.",
        "sequence_batching.state[0].initial_state[0].dims",
        "dims: [2, 1]",
    ),
    (
        state(initial(dims="[ 3, 3 ]")),
        "'initial_state' dims [3, 3] of state input 's' do not match its 'dims' [2, -1].",
        "sequence_batching.state[0].initial_state[0].dims",
        "dims: [2, 1]",
    ),
    # cache
    (
        f"{PLAIN} response_cache {{ enable: true }} sequence_batching {{ }}",
        "Response Cache does not currently support model m with sequence batching scheduler. "
        "Please disable the response cache.",
        "response_cache",
        "response_cache { enable: false }",
    ),
    (
        f"{PLAIN} response_cache {{ enable: true }} model_transaction_policy {{ decoupled: true }}",
        "Response Cache does not currently support model m with 'decoupled' transaction policy. "
        "Please disable the response cache.",
        "response_cache",
        "response_cache { enable: false }",
    ),
    # ensembles
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
        None,
    ),
    (
        ensemble(step({}, {"b": "o"})),
        "must specify 'input_map' in step 0 of ensemble 'm'",
        "ensemble_scheduling.step[0].input_map",
        None,
    ),
    (
        ensemble(step({"a": "i"}, {"b": "o"}) + step({"a": "i"}, {})),
        "must specify 'output_map' in step 1 of ensemble 'm'",
        "ensemble_scheduling.step[1].output_map",
        None,
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
    # instance groups
    (
        f"{PLAIN} instance_group {{ kind: KIND_CPU gpus: 0 }}",
        "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs",
        "instance_group[0].gpus",
        "kind: KIND_GPU",
    ),
    (
        f'{PLAIN} instance_group {{ name: "g" kind: KIND_GPU }}',
        "instance group g of model m has kind KIND_GPU but no GPUs are available",
        "instance_group[0].kind",
        "kind: KIND_CPU",
    ),
    # batch inputs and outputs
    (
        f'{BATCHING} batch_input {{ kind: BATCH_ITEM_SHAPE target_name: "n" data_type: TYPE_FP32 }}',
        "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 0",
        "batch_input[0].source_input",
        'source_input: "i"',
    ),
    (
        f'{BATCHING} batch_input {{ data_type: TYPE_FP32 source_input: "z" }}',
        "unknown source input name 'z'",
        "batch_input[0].source_input[0]",
        'source_input: "i"',
    ),
    (
        f'{BATCHING} batch_input {{ data_type: TYPE_INT64 source_input: "i" }}',
        "batch input data type must be TYPE_INT32 or TYPE_FP32",
        "batch_input[0].data_type",
        "data_type: TYPE_FP32",
    ),
    (
        f'{BATCHING} batch_output {{ target_name: "o" source_input: [ "i", "i" ] }}',
        "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 2",
        "batch_output[0].source_input",
        'source_input: "i"',
    ),
    (
        f'{BATCHING} batch_output {{ target_name: "o" source_input: "z" }}',
        "unknown source input name 'z'",
        "batch_output[0].source_input[0]",
        'source_input: "i"',
    ),
    (
        f'{BATCHING} batch_output {{ target_name: "z" source_input: "i" }}',
        "unknown target output name 'z'",
        "batch_output[0].target_name[0]",
        'target_name: "o"',
    ),
    (
        f'{BATCHING} batch_output {{ target_name: [ "o", "o" ] source_input: "i" }}',
        "target output name 'o' can only be specified once",
        "batch_output[0].target_name[1]",
        'remove target_name: "o"',
    ),
    # metrics
    (
        f"{PLAIN} model_metrics {{ metric_control {{ {BUCKETS} }} }}",
        "metric control must specify 'metric_identifier'",
        "model_metrics.metric_control[0].metric_identifier",
        METRIC,
    ),
    (
        f"{PLAIN} model_metrics {{ metric_control {{ metric_identifier {{ }} {BUCKETS} }} }}",
        "metric identifier must specify non-empty 'family'",
        "model_metrics.metric_control[0].metric_identifier.family",
        'family: "nv_inference_first_response_histogram_ms"',
    ),
    (
        f"{PLAIN} model_metrics {{ metric_control {{ {METRIC} }} }}",
        "metric control must specify 'histogram_options'",
        "model_metrics.metric_control[0].histogram_options",
        "histogram_options { buckets: [ 100, 500, 2000, 5000 ] }",
    ),
    (
        f"{PLAIN} model_metrics {{ metric_control {{ {METRIC} histogram_options {{ }} }} }}",
        "histogram options must specify non-empty 'buckets'",
        "model_metrics.metric_control[0].histogram_options.buckets",
        "buckets: [ 100, 500, 2000, 5000 ]",
    ),
    # warm-up
    (
        f'{PLAIN} model_warmup {{ batch_size: 1 inputs {{ key: "i" value {{ dims: [ 2, -1 ] }} }} }}',
        "warmup setting expects all variable-size dimensions are specified for input 'i'",
        'model_warmup[0].inputs["i"].dims',
        "dims: [2, 1]",
    ),
    # values that the text form lets pass
    (
        f"{PLAIN} optimization {{ priority: 9 }}",
        "'priority' must be one of PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, not 9",
        "optimization.priority",
        "priority: PRIORITY_DEFAULT",
    ),
    (
        f"{PLAIN} dynamic_batching {{ priority_queue_policy {{ key: 1 value {{ timeout_action: 7 }} }} }}",
        "'timeout_action' must be one of REJECT, DELAY, not 7",
        "dynamic_batching.priority_queue_policy[1].timeout_action",
        "timeout_action: REJECT",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "where", "mend"), CASES, ids=[case[1][:60] for case in CASES])
def test_problem_is_told_with_its_place_and_its_mend(
    text: str, message: str, where: str, mend: str | None
) -> None:
    (problem, *_) = [each for each in problems(text) if each.message == message]
    assert problem.where == where
    assert mend is None or problem.mend == mend


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        BATCHING,
        f"{BATCHING} dynamic_batching {{ preferred_batch_size: [ 1, 8 ] priority_levels: 2 default_priority_level: 2 "
        "priority_queue_policy { key: 2 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }",
        f"{BATCHING} dynamic_batching {{ preserve_ordering: true default_queue_policy {{ timeout_action: DELAY }} }}",
        tensors('name: "i" data_type: TYPE_FP32 dims: [ 1 ] reshape { }'),
        tensors('name: "i" data_type: TYPE_FP32 dims: [ 2, -1, 6 ] reshape { shape: [ 2, 1, -1, 2, 3 ] }'),
        tensors('name: "i" data_type: TYPE_BF16 dims: [ 3, -1, -1 ] format: FORMAT_NCHW'),
        f"{control(START)}",
        control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING"),
        controls("direct { minimum_slot_utilization: 0 }"),
        state(initial()),
        ensemble(ONE_STEP),
        # steps in another order than their tensors flow
        ensemble(step({"a": "t"}, {"b": "o"}) + step({"a": "i"}, {"b": "t"})),
        f"{PLAIN} instance_group {{ kind: KIND_MODEL gpus: 0 }}",
        f'{BATCHING} batch_input {{ target_name: "n" data_type: TYPE_INT32 source_input: "i" }} '
        'batch_output { target_name: "o" source_input: "i" }',
        f"{PLAIN} model_metrics {{ metric_control {{ {METRIC} {BUCKETS} }} }}",
        f'{PLAIN} model_warmup {{ batch_size: 0 inputs {{ key: "i" value {{ dims: -1 }} }} }}',
        f'name: "m" platform: "tensorrt_plan" backend: "tensorrt" {SHAPE_TENSOR}',
    ],
)
def test_what_is_right_is_not_complained_of(text: str) -> None:
    assert problems(text) == []


def test_gpus_that_are_not_there_are_told_with_those_that_are() -> None:
    (problem,) = problems(f"{PLAIN} instance_group {{ gpus: [ 1, 9 ] }}", gpus=(0, 1))
    assert problem == Problem("m", "instance_group[0].gpus[1]", GPU_9, "gpus: [ 0, 1 ]")
    assert problems(f"{PLAIN} instance_group {{ }}", gpus=(0, 1)) == []


def test_every_problem_is_told_at_once() -> None:
    found = problems(
        f"{BASE} max_batch_size: 4 input {{ }} output {{ name: 'o' dims: 0 }} "
        "dynamic_batching { preferred_batch_size: [ 0, 9 ] }"
    )
    assert [problem.where for problem in found] == [
        "dynamic_batching.preferred_batch_size",
        "dynamic_batching.preferred_batch_size",
        "input[0].name",
        "input[0].data_type",
        "input[0].dims",
        "output[0].data_type",
        "output[0].dims",
    ]


def test_unknown_metric_family_is_only_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = parse_text(
        f'{PLAIN} model_metrics {{ metric_control {{ metric_identifier {{ family: "f" }} {BUCKETS} }} }}', "m"
    )
    with caplog.at_level(logging.WARNING, "halimede"):
        validate(config)
    expected = "Metric family 'f' in 'metric_identifier' is not a customizable metric in Triton core."
    assert caplog.messages == [expected]


@given(configs())
@settings(max_examples=100, deadline=None)
def test_every_configuration_can_be_held_against_the_rules(config: ModelConfig) -> None:
    normalise(config, (0,))
    for problem in find_problems(config, (0,)):
        assert problem.message
        assert problem.where
