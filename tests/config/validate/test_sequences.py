"""What is said of the sequence batcher and its states."""

import pytest

from tests.config.validate.helpers import BATCHING, PLAIN, Case, assert_told, name_of, problems

ONE_ELEMENT = (
    "initial_state field for state input 's' must contain exactly one or zero element. Found '2' elements."
)
FALSE_TRUE = "int32_false_true: [ 0, 1 ]"
START = f"kind: CONTROL_SEQUENCE_START {FALSE_TRUE}"


def controls(text: str) -> str:
    return f"{PLAIN} sequence_batching {{ {text} }}"


def control(text: str, name: str = "c") -> str:
    return controls(f'control_input {{ name: "{name}" control {{ {text} }} }}')


def state(initial: str, dims: str = "[ 2, -1 ]", more: str = "") -> str:
    return controls(
        f'state {{ input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: {dims} {initial} }} {more}'
    )


def initial(name: str = 'name: "n"', datatype: str = "TYPE_FP32", dims: str = "[ 2, 3 ]") -> str:
    return f"initial_state {{ {name} data_type: {datatype} dims: {dims} zero_data: true }}"


CASES: list[Case] = [
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
        (
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
            "CONTROL_SEQUENCE_END for m"
        ),
        "sequence_batching.control_input[0].control[0]",
        "int32_false_true: [ 0, 1 ]",
    ),
    (
        control(f"{START} fp32_false_true: [ 0, 1 ]"),
        (
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            "'bool_false_true' for CONTROL_SEQUENCE_START for m"
        ),
        "sequence_batching.control_input[0].control[0].fp32_false_true",
        "int32_false_true: [ 0, 1 ]",
    ),
    *(
        (
            control(f"kind: CONTROL_SEQUENCE_READY {name}: [ {values} ]"),
            f"sequence batching control '{name}' must have exactly 2 entries for CONTROL_SEQUENCE_READY for m",
            f"sequence_batching.control_input[0].control[0].{name}",
            f"{name}: [ {fix} ]",
        )
        for name, values, fix in (
            ("int32_false_true", "1", "0, 1"),
            ("fp32_false_true", "0, 1, 2", "0, 1"),
            ("bool_false_true", "true", "false, true"),
        )
    ),
    (
        control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"),
        (
            "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, "
            "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
        ),
        "sequence_batching.control_input[0].control[0].data_type",
        "data_type: TYPE_UINT64",
    ),
    (
        control(f"kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 {FALSE_TRUE}"),
        (
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
            "CONTROL_SEQUENCE_CORRID for m"
        ),
        "sequence_batching.control_input[0].control[0].int32_false_true",
        None,
    ),
    (
        f"{BATCHING} sequence_batching {{ oldest {{ max_candidate_sequences: -1 }} }}",
        "sequence batching max candidate sequences must not be negative for m",
        "sequence_batching.oldest.max_candidate_sequences",
        "max_candidate_sequences: 1",
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
    (
        state(initial() * 2),
        ONE_ELEMENT,
        "sequence_batching.state[0].initial_state[1]",
        "remove all but one initial_state",
    ),
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
        (
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 's'. "
            "1 != 2"
        ),
        "sequence_batching.state[0].initial_state[0].dims",
        "dims: [2, 1]",
    ),
    (
        state(initial(dims="[ 2, -1 ]")),
        (
            "'initial_state' field for state input name 's' contains variable dimensions. The size of what a sequence "
            "begins with must be given."
        ),
        "sequence_batching.state[0].initial_state[0].dims",
        "dims: [2, 1]",
    ),
    (
        state('initial_state { name: "n" data_type: TYPE_FP32 dims: [ 2, 3 ] }'),
        "initial_state setting expects state's' to have state_data set",
        "sequence_batching.state[0].initial_state[0].zero_data",
        "zero_data: true",
    ),
    (
        state("", more='state { input_name: "q" output_name: "t" data_type: TYPE_FP32 dims: 1 }'),
        "state output 't' of model 'm' is specified more than once",
        "sequence_batching.state[1].output_name",
        'output_name: "t_1"',
    ),
    (
        state("").replace('"s"', '"i"'),
        "state input 'i' of model 'm' is input 'i' too, which requests would send",
        "sequence_batching.state[0].input_name",
        'input_name: "i_STATE"',
    ),
    (
        state("", more=f'control_input {{ name: "s" control {{ {START} }} }}'),
        "state input 's' of model 'm' is the control input 's' too",
        "sequence_batching.state[0].input_name",
        'input_name: "s_STATE"',
    ),
    (
        state("").replace('input_name: "s"', ""),
        "a state of model 'm' must specify 'input_name'",
        "sequence_batching.state[0].input_name",
        'input_name: "STATE_INPUT_0"',
    ),
    (
        state("").replace('output_name: "t"', ""),
        "state 's' of model 'm' must specify 'output_name'",
        "sequence_batching.state[0].output_name",
        'output_name: "STATE_OUTPUT_0"',
    ),
    (
        controls('state { input_name: "s" output_name: "t" dims: 1 }'),
        "state 's' of model 'm' must specify 'data_type'",
        "sequence_batching.state[0].data_type",
        "data_type: TYPE_FP32",
    ),
    (
        controls('state { input_name: "s" output_name: "o" data_type: TYPE_INT32 dims: 4 }'),
        "state output 'o' of model 'm' is TYPE_INT32, but output 'o' is TYPE_FP32",
        "sequence_batching.state[0].data_type",
        "data_type: TYPE_FP32",
    ),
    (
        state("", dims="[ 2, -3 ]"),
        "dims of state 's' of model 'm' must be 0 or more, or -1 for a variable size, got [2, -3]",
        "sequence_batching.state[0].dims",
        "dims: [2, -1]",
    ),
    (
        state(initial(dims="[ 3, 3 ]")),
        "'initial_state' dim for input name 's' doesn't match 'state' dim description. 3 != 2",
        "sequence_batching.state[0].initial_state[0].dims",
        "dims: [2, 1]",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_problem_is_told_with_its_place_and_its_fix(case: Case) -> None:
    assert_told(case)


@pytest.mark.parametrize(
    "text",
    [
        f"{control(START)}",
        control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING"),
        controls("direct { minimum_slot_utilization: 0 }"),
        controls("direct { minimum_slot_utilization: 1 }"),
        state(initial()),
    ],
)
def test_what_is_right_is_not_complained_of(text: str) -> None:
    assert problems(text) == []
