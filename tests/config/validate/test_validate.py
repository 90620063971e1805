"""What is said of a configuration as a whole, and of what is no tensor, sequence or ensemble."""

import logging

import pytest
from hypothesis import given, settings

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.validate import Problem, find_problems, validate, validate_settings
from halimede.core.errors import InvalidArgumentError
from tests.config.strategies import configs
from tests.config.validate.helpers import (
    BASE,
    BATCHING,
    ENSEMBLE,
    ONE_STEP,
    OUTPUT,
    PLAIN,
    Case,
    assert_told,
    name_of,
    problems,
)

NO_DELAY = "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"
GPU_9 = (
    "instance group m_0 of model m specifies invalid or unsupported gpu id 9. GPUs with at least the minimum "
    "required CUDA compute compatibility of 6.000000 are: 0, 1"
)
METRIC = 'metric_identifier { family: "nv_inference_first_response_histogram_ms" }'
BUCKETS = "histogram_options { buckets: [ 1 ] }"

OUTSIDE = "must name a file inside the directory of a version, by a relative path without '..'"

CASES: list[Case] = [
    # platform
    ('name: "m"', "must specify 'platform' or 'backend' for 'm'", "backend", 'backend: "onnxruntime"'),
    (
        f'{ENSEMBLE} backend: "x" ensemble_scheduling {{ {ONE_STEP} }}',
        "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        "backend",
        "remove backend",
    ),
    (
        'name: "m" backend: "ensemble"',
        "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        "backend",
        'replace backend by platform: "ensemble"',
    ),
    (
        f"{BASE} max_batch_size: -1",
        "'max_batch_size' must be non-negative value for m",
        "max_batch_size",
        "max_batch_size: 0",
    ),
    *(
        (
            f'{BASE} default_model_filename: "{name}"',
            f"default_model_filename '{name}' {OUTSIDE}",
            "default_model_filename",
            f'default_model_filename: "{fix}"',
        )
        for name, fix in [
            ("../../n/1/model.py", "model.py"),
            ("/proc/7/fd/9", "9"),
            ("a/../../b.onnx", "b.onnx"),
            ("..", "model.onnx"),
        ]
    ),
    (
        f'{BASE} cc_model_filenames {{ key: "9.0" value: "/x.plan" }}',
        f"cc_model_filenames[\"9.0\"] '/x.plan' {OUTSIDE}",
        'cc_model_filenames["9.0"]',
        'default_model_filename: "x.plan"',
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
        (
            f"{BATCHING} dynamic_batching {{ priority_levels: 2 default_priority_level: 1 "
            "priority_queue_policy { key: 3 value { } } }"
        ),
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
        (
            f"{BATCHING} dynamic_batching {{ preserve_ordering: true "
            "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 } }"
        ),
        NO_DELAY,
        "dynamic_batching.default_queue_policy.timeout_action",
        "timeout_action: REJECT",
    ),
    (
        (
            f"{BATCHING} dynamic_batching {{ preserve_ordering: true priority_levels: 1 default_priority_level: 1 "
            "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }"
        ),
        NO_DELAY,
        "dynamic_batching.priority_queue_policy[1].timeout_action",
        "timeout_action: REJECT",
    ),
    # instances
    (
        f"{PLAIN} instance_group {{ count: -1 }}",
        "instance group m_0 of model m has a count of -1, which must not be negative",
        "instance_group[0].count",
        "count: 1",
    ),
    # cache
    (
        f"{PLAIN} response_cache {{ enable: true }} sequence_batching {{ }}",
        (
            "Response Cache does not currently support model m with sequence batching scheduler. "
            "Please disable the response cache."
        ),
        "response_cache",
        "response_cache { enable: false }",
    ),
    (
        f"{PLAIN} response_cache {{ enable: true }} model_transaction_policy {{ decoupled: true }}",
        (
            "Response Cache does not currently support model m with 'decoupled' transaction policy. "
            "Please disable the response cache."
        ),
        "response_cache",
        "response_cache { enable: false }",
    ),
    # instance groups
    (
        f"{PLAIN} instance_group {{ kind: KIND_CPU gpus: 0 }}",
        "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs",
        "instance_group[0].gpus",
        "remove gpus",
    ),
    (
        f'{PLAIN} instance_group {{ name: "g" kind: KIND_GPU }}',
        "instance group g of model m has kind KIND_GPU but no GPUs are available",
        "instance_group[0].kind",
        "kind: KIND_CPU",
    ),
    (
        f"{PLAIN} instance_group {{ kind: KIND_MODEL gpus: 0 }}",
        "instance group m_0 of model m has kind KIND_MODEL but specifies one or more GPUs",
        "instance_group[0].gpus",
        "remove gpus",
    ),
    (
        f"{PLAIN} instance_group {{ gpus: 0 }}",
        "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs",
        "instance_group[0].gpus",
        "remove gpus",
    ),
    (
        f"{PLAIN} instance_group {{ kind: KIND_GPU gpus: 0 }}",
        (
            "instance group m_0 of model m specifies invalid or unsupported gpu id 0. GPUs with at least the minimum "
            "required CUDA compute compatibility of 6.000000 are: none"
        ),
        "instance_group[0].gpus[0]",
        "kind: KIND_CPU",
    ),
    (
        f'{PLAIN} instance_group {{ profile: "1" }}',
        (
            "instance group m_0 of model m and platform specifies profile field which is only supported for TensorRT "
            "models"
        ),
        "instance_group[0].profile",
        "remove profile",
    ),
    (
        f'{PLAIN} platform: "onnxruntime_onnx" instance_group {{ profile: "1" }}',
        (
            "instance group m_0 of model m and platform onnxruntime_onnx specifies profile field which is only "
            "supported for TensorRT models"
        ),
        "instance_group[0].profile",
        "remove profile",
    ),
    (
        f"{PLAIN} instance_group [ {{ passive: true }}, {{ passive: true }} ]",
        "all instance groups of model m are passive: no instance would take its requests",
        "instance_group[0].passive",
        "passive: false",
    ),
    # batch inputs and outputs
    (
        f'{BATCHING} batch_input {{ kind: BATCH_ITEM_SHAPE target_name: "n" data_type: TYPE_FP32 }}',
        "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 0 for m",
        "batch_input[0].source_input",
        'source_input: "i"',
    ),
    (
        f'{BASE} max_batch_size: 8 {OUTPUT} batch_input {{ target_name: "n" data_type: TYPE_FP32 }}',
        "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 0 for m",
        "batch_input[0].source_input",
        "",
    ),
    (
        f'{BATCHING} batch_input {{ data_type: TYPE_FP32 source_input: "z" }}',
        "unknown source input name 'z' for m",
        "batch_input[0].source_input[0]",
        'source_input: "i"',
    ),
    (
        f'{BATCHING} batch_input {{ data_type: TYPE_INT64 source_input: "i" }}',
        "batch input data type must be TYPE_INT32 or TYPE_FP32 for m",
        "batch_input[0].data_type",
        "data_type: TYPE_FP32",
    ),
    (
        f'{BATCHING} batch_output {{ target_name: "o" source_input: [ "i", "i" ] }}',
        "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 2 for m",
        "batch_output[0].source_input",
        'source_input: "i"',
    ),
    (
        f'{BATCHING} batch_output {{ target_name: "o" source_input: "z" }}',
        "unknown source input name 'z' for m",
        "batch_output[0].source_input[0]",
        'source_input: "i"',
    ),
    (
        f'{BATCHING} batch_output {{ target_name: "z" source_input: "i" }}',
        "unknown target output name 'z' for m",
        "batch_output[0].target_name[0]",
        'target_name: "o"',
    ),
    (
        f'{BATCHING} batch_output {{ target_name: [ "o", "o" ] source_input: "i" }}',
        "target output name 'o' can only be specified once for m",
        "batch_output[0].target_name[1]",
        'remove target_name: "o"',
    ),
    (
        (
            f'{BATCHING} input {{ name: "r" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }} '
            'batch_input { data_type: TYPE_FP32 source_input: "z" }'
        ),
        "unknown source input name 'z' for m",
        "batch_input[0].source_input[0]",
        'source_input: "r"',
    ),
    (
        (
            f'{BATCHING} output {{ name: "p" data_type: TYPE_FP32 dims: [8, -1] }} '
            'batch_output { target_name: "p" source_input: "i" }'
        ),
        (
            "output 'p' is cut with the shapes of input 'i', so its variable dims must be where that has dims: among "
            "the first 1 for m"
        ),
        "output[1].dims",
        "dims: [ 4 ]",
    ),
    (
        (
            f'{BATCHING} output {{ name: "p" data_type: TYPE_FP32 dims: [-1] reshape {{ shape: [1, -1] }} }} '
            'batch_output { target_name: "p" source_input: "i" }'
        ),
        (
            "output 'p' is cut with the shapes of input 'i', so its variable dims must be where that has dims: among "
            "the first 1 for m"
        ),
        "output[1].reshape",
        "remove reshape",
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
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_problem_is_told_with_its_place_and_its_fix(case: Case) -> None:
    assert_told(case)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        BATCHING,
        (
            f"{BATCHING} dynamic_batching {{ preferred_batch_size: [ 1, 8 ] priority_levels: 2 "
            "default_priority_level: 2 "
            "priority_queue_policy { key: 2 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }"
        ),
        f"{BATCHING} dynamic_batching {{ preserve_ordering: true default_queue_policy {{ timeout_action: DELAY }} }}",
        (
            f'{BATCHING} batch_input {{ target_name: "n" data_type: TYPE_INT32 source_input: "i" }} '
            'batch_output { target_name: "o" source_input: "i" }'
        ),
        (
            'backend: "python" max_batch_size: 4 input { name: "i" data_type: TYPE_FP32 dims: -1 } '
            'output { name: "o" data_type: TYPE_FP32 dims: [8, -1] } '
            'batch_output { target_name: "o" source_input: "i" }'
        ),
        f"{PLAIN} model_metrics {{ metric_control {{ {METRIC} {BUCKETS} }} }}",
        f'{PLAIN} model_warmup {{ batch_size: 0 inputs {{ key: "i" value {{ dims: -1 }} }} }}',
    ],
)
def test_what_is_right_is_not_complained_of(text: str) -> None:
    assert problems(text) == []


def test_gpus_that_are_not_there_are_told_with_those_that_are() -> None:
    (problem,) = problems(f"{PLAIN} instance_group {{ gpus: [ 1, 9 ] }}", gpus=(0, 1))
    assert problem == Problem("m", "instance_group[0].gpus[1]", GPU_9, "gpus: [ 0, 1 ]")
    assert problems(f"{PLAIN} instance_group {{ }}", gpus=(0, 1)) == []


@pytest.mark.parametrize(
    ("group", "start"),
    [
        ("kind: KIND_GPU", "has kind KIND_GPU but no GPUs are available"),
        (
            "gpus: 0 kind: KIND_GPU",
            (
                "specifies invalid or unsupported gpu id 0. GPUs with at least the minimum required CUDA compute "
                "compatibility of 6.000000 are: none"
            ),
        ),
        ("gpus: 0 kind: KIND_CPU", "has kind KIND_CPU but specifies one or more GPUs. None can be used"),
    ],
)
def test_why_there_are_no_gpus_is_told_where_some_are_asked_for(group: str, start: str) -> None:
    config = parse_text(f"{PLAIN} instance_group {{ {group} }}", "m")
    normalise(config)
    (problem,) = find_problems(config, missing="the driver is too old")
    assert problem.message == f"instance group m_0 of model m {start}: the driver is too old"
    with pytest.raises(InvalidArgumentError, match=r": the driver is too old$"):
        validate(config, missing="the driver is too old")


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


RAGGED = (
    'max_batch_size: 8 input { name: "i" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true } '
    'output { name: "o" data_type: TYPE_FP32 dims: -1 } '
    'batch_input { target_name: "n" data_type: TYPE_INT32 source_input: "i" } '
)


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (f"{BASE} {RAGGED}", []),
        (f"{BASE} {RAGGED}".replace("dims: -1 allow_ragged_batch: true", "dims: 4"), []),
        (
            f"{BASE} {RAGGED}".replace("allow_ragged_batch: true", ""),
            [
                (
                    "model 'm': a batch_input is made from input 'i', but requests of different shapes do not share "
                    "a batch, as that is not ragged; if they should, say allow_ragged_batch: true"
                )
            ],
        ),
        (
            f'name: "m" backend: "python" {RAGGED}',
            [
                (
                    "model 'm': batch_input and batch_output have no effect on Python models and ensembles, in which "
                    "each request keeps its own tensors"
                )
            ],
        ),
    ],
)
def test_batch_inputs_without_effect_are_only_warnings(
    caplog: pytest.LogCaptureFixture, text: str, warnings: list[str]
) -> None:
    config = parse_text(text, "test")
    normalise(config)
    with caplog.at_level(logging.WARNING, "halimede"):
        validate(config)
    assert caplog.messages == warnings


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


@pytest.mark.parametrize(
    ("groups", "total"),
    [
        ('{ count: 1000000000 kind: KIND_CPU name: "a" }', 1_000_000_000),
        ('{ count: 1025 kind: KIND_CPU name: "a" }', 1025),
        ('{ count: 1000 kind: KIND_CPU name: "b" }, { count: 25 kind: KIND_CPU name: "a" }', 1025),
        ('{ count: 300 kind: KIND_GPU gpus: [0, 1, 2, 3] name: "a" }', 1200),
    ],
)
def test_a_model_has_a_limited_number_of_instances(groups: str, total: int) -> None:
    config = parse_text(f'name: "m" backend: "onnxruntime" instance_group [ {groups} ]', "config.pbtxt")
    (problem,) = [each for each in find_problems(config, (0, 1, 2, 3)) if "at most" in each.message]
    count = config.instance_group[-1].count
    assert problem.message == (
        f"instance group a of model m has a count of {count}, which makes {total} instances of the model, but a model "
        "may have at most 1024"
    )
    with pytest.raises(InvalidArgumentError, match=r"which makes .* may have at most 1024$"):
        validate_settings(config, complete=False)
    config.instance_group[-1].count = 1
    assert not [each for each in find_problems(config, (0, 1, 2, 3)) if "at most" in each.message]


@pytest.mark.parametrize(
    ("samples", "total"),
    [
        ('{ name: "s" batch_size: 1 count: 4000000000 }', 4_000_000_000),
        ('{ name: "s" batch_size: 4000000000 }', 4_000_000_000),
        ('{ name: "r" batch_size: 8 count: 12500 }, { name: "s" batch_size: 1 count: 1 }', 100_001),
    ],
)
def test_a_warm_up_makes_a_limited_number_of_requests(samples: str, total: int) -> None:
    config = parse_text(f'name: "m" backend: "onnxruntime" model_warmup [ {samples} ]', "config.pbtxt")
    last = config.model_warmup[-1]
    with pytest.raises(InvalidArgumentError) as raised:
        validate_settings(config, complete=False)
    assert raised.value.message == (
        f"model_warmup sample 's' of model m has a batch_size of {last.batch_size} and a count of {last.count}, which "
        f"makes {total} requests with the samples before it, but a warm-up may make at most 100000"
    )
    last.batch_size = 0
    validate_settings(config, complete=False)
