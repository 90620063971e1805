"""What is said of settings of the sequence batcher that are allowed, and do not do what they look like."""

import logging

import pytest

from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.validate import Problem, find_warnings, validate

TENSORS = """
    input { name: "INPUT" data_type: TYPE_FP32 dims: 1 }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: 1 }
"""
START = 'control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }'
ITERATIVE = (
    "models of the backend 'onnxruntime' cannot ask for a request again, so with iterative_sequence each sequence is "
    "over after one request"
)

FULL = "batches can never have {} rows: they have one request of each sequence, of which an instance has {} at most"


def model(batching: str, backend: str = "onnxruntime", rows: int = 4) -> str:
    return (
        f'name: "m" backend: "{backend}" max_batch_size: {rows} {TENSORS} sequence_batching {{ {batching} }}'
    )


@pytest.mark.parametrize(
    ("text", "message", "where", "fix"),
    [
        (
            model("iterative_sequence: true"),
            ITERATIVE,
            "sequence_batching.iterative_sequence",
            "replace sequence_batching by dynamic_batching { }",
        ),
        (
            model(f"iterative_sequence: true {START}"),
            ITERATIVE,
            "sequence_batching.iterative_sequence",
            "remove iterative_sequence",
        ),
        (
            model(START.replace('"START"', '"INPUT"')),
            "control input 'INPUT' is an input too: the model gets the control in place of what requests send",
            "sequence_batching.control_input[0].name",
            'name: "INPUT_CONTROL"',
        ),
        (
            model('state { input_name: "IN" output_name: "OUT" data_type: TYPE_FP32 dims: 1 }', "identity"),
            "states have no effect: the backend 'identity' makes none",
            "sequence_batching.state",
            "remove state",
        ),
        (
            model("oldest { max_candidate_sequences: 3 }"),
            FULL.format(4, 3),
            "sequence_batching.oldest.max_candidate_sequences",
            "max_candidate_sequences: 4",
        ),
        (
            model("oldest { }", rows=2),
            FULL.format(2, 1),
            "sequence_batching.oldest.max_candidate_sequences",
            "max_candidate_sequences: 2",
        ),
        (
            model("direct { minimum_slot_utilization: 0.5 }"),
            "minimum_slot_utilization has no effect without max_queue_delay_microseconds",
            "sequence_batching.direct.minimum_slot_utilization",
            "remove minimum_slot_utilization",
        ),
        (
            model("direct { max_queue_delay_microseconds: 100 }"),
            "max_queue_delay_microseconds has no effect without minimum_slot_utilization",
            "sequence_batching.direct.max_queue_delay_microseconds",
            "minimum_slot_utilization: 1.0",
        ),
    ],
)
def test_what_may_not_do_what_it_looks_like_is_told_and_logged(
    caplog: pytest.LogCaptureFixture, text: str, message: str, where: str, fix: str
) -> None:
    config = parse_text(text, "test")
    normalise(config)
    assert find_warnings(config) == [Problem("m", where, message, fix)]
    with caplog.at_level(logging.WARNING):
        validate(config)
    assert caplog.messages == [f"model 'm': {message}"]


@pytest.mark.parametrize(
    "text",
    [
        model("iterative_sequence: true", backend="python"),
        model(START),
        model("oldest { max_candidate_sequences: 4 }"),
        model("oldest { max_candidate_sequences: 3 preferred_batch_size: [ 2, 3 ] }"),
        model("oldest { }", rows=1),
        model("oldest { }", rows=0),
        model("direct { max_queue_delay_microseconds: 100 minimum_slot_utilization: 0.5 }"),
        model("").partition("sequence_batching")[0],
    ],
)
def test_what_does_what_it_looks_like_has_no_warning(caplog: pytest.LogCaptureFixture, text: str) -> None:
    config = parse_text(text, "test")
    normalise(config)
    assert find_warnings(config) == []
    with caplog.at_level(logging.WARNING):
        validate(config)
    assert caplog.messages == []
