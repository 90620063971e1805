"""Outputs that are not what the configuration says."""

from collections.abc import Callable

import numpy as np
import pytest
from tritonclient.http import InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tests.python_models.support import DECOUPLED, FLOATS, ONES, Array, Models, Stream, executing, http_inputs

IN_SERVER_TOO = True

ROWS = FLOATS + "max_batch_size: 4\n"
FIXED = FLOATS.replace(
    'name: "OUT" data_type: TYPE_FP32 dims: [-1]', 'name: "OUT" data_type: TYPE_FP32 dims: [4]'
)
TWO = FLOATS + 'output [{ name: "MORE" data_type: TYPE_FP32 dims: [-1] }]\n'
STRICT = 'parameters { key: "strict" value { string_value: "true" } }\n'

GIVEN = "pb_utils.Tensor('OUT', np.ones(4, np.float32))"

MISMATCHES = [
    pytest.param(
        FIXED,
        "pb_utils.Tensor('OUT', np.ones((2, 3), np.float32))",
        "its output 'OUT' has shape [2, 3], but the configuration says [4]",
        id="shape",
    ),
    pytest.param(
        FLOATS,
        "pb_utils.Tensor('OUT', np.ones(4, np.int64))",
        "its output 'OUT' is TYPE_INT64, but the configuration says TYPE_FP32",
        id="datatype",
    ),
    pytest.param(
        ROWS,
        "pb_utils.Tensor('OUT', np.ones((3, 4), np.float32))",
        "its output 'OUT' has 3 rows in the response to a request of 1",
        id="rows",
    ),
    pytest.param(
        TWO, GIVEN, "its response lacks the output 'MORE'; the outputs that it has: 'OUT'", id="missing"
    ),
    pytest.param(
        FLOATS,
        GIVEN + ", pb_utils.Tensor('Y', np.ones(1, np.float32))",
        "its response has an output 'Y', which its configuration does not list; it is dropped",
        id="unknown",
    ),
]


def returning(tensors: str) -> str:
    return executing(f"return [pb_utils.InferenceResponse([{tensors}]) for _ in requests]")


def sending(tensors: str) -> str:
    return executing(f"""
        for request in requests:
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([{tensors}]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return [None] * len(requests)
    """)


def given(config: str) -> Array:
    return ONES[np.newaxis] if "max_batch_size" in config else ONES


def warnings(models: Models, model: str) -> list[str]:
    return [line for line in models.server.log.splitlines() if f"model '{model}': its " in line]


@pytest.mark.parametrize(("config", "tensors", "text"), MISMATCHES)
@pytest.mark.parametrize("answering", [returning, sending])
def test_mismatches_are_answered_and_logged_once(
    models: Models, answering: Callable[[str], str], config: str, tensors: str, text: str
) -> None:
    model = models.load(answering(tensors), config + "instance_group { count: 2 }\n")
    for _ in range(4):
        models.infer(model, given(config))
    (line,) = warnings(models, model)
    assert line.startswith("W")
    hint = "(further cases are not logged; the parameter 'strict' makes this an error)"
    assert f"model '{model}': {text} {hint}" in line


def test_each_kind_of_mismatch_of_an_output_is_logged(models: Models) -> None:
    model = models.load(returning("pb_utils.Tensor('OUT', np.ones((2, 3), np.int64))"), FIXED)
    for _ in range(2):
        models.infer(model)
    datatype, shape = warnings(models, model)
    assert "its output 'OUT' is TYPE_INT64, but the configuration says TYPE_FP32 (" in datatype
    assert "its output 'OUT' has shape [2, 3], but the configuration says [4] (" in shape


@pytest.mark.parametrize(("config", "tensors", "text"), MISMATCHES)
@pytest.mark.parametrize("answering", [returning, sending])
def test_mismatches_fail_requests_of_strict_models(
    models: Models, answering: Callable[[str], str], config: str, tensors: str, text: str
) -> None:
    model = models.load(answering(tensors), config + STRICT)
    for _ in range(2):
        assert models.infer_error(model, given(config)) == ("500", f"model '{model}': {text}")
    assert len(warnings(models, model)) == 1


@pytest.mark.parametrize("config", [FLOATS, ROWS, TWO])
def test_outputs_that_fit_are_no_mismatches(models: Models, config: str) -> None:
    shape = (1, 4) if config is ROWS else (4,)
    tensors = f"pb_utils.Tensor('OUT', np.ones({shape}, np.float32))"
    if config is TWO:
        tensors += ", pb_utils.Tensor('MORE', np.ones(4, np.float32))"
    model = models.load(returning(tensors), config + STRICT)
    for _ in range(2):
        models.infer(model, given(config))
        models.infer(
            model, given(config), outputs=[InferRequestedOutput("OUT")]
        )  # others are simply not wanted
    assert not warnings(models, model)


@pytest.mark.parametrize("answering", [returning, sending])
def test_an_output_that_was_asked_for_and_is_missing_is_an_error(
    models: Models, answering: Callable[[str], str]
) -> None:
    model = models.load(answering(GIVEN), TWO)
    with pytest.raises(InferenceServerException) as caught:
        models.http.infer(model, http_inputs(IN=ONES), outputs=[InferRequestedOutput("MORE")])
    assert caught.value.status() == "500"
    assert caught.value.message() == (
        f"model '{model}': its response lacks the output 'MORE'; the outputs that it has: none"
    )
    assert models.infer(model, outputs=[InferRequestedOutput("OUT")]).tolist() == [1, 1, 1, 1]


def test_responses_of_decoupled_models_may_have_different_outputs(models: Models) -> None:
    model = models.load(
        executing(f"""
        for request in requests:
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([{GIVEN}]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """),
        TWO + DECOUPLED + STRICT,
    )
    stream = Stream(models)
    stream.send(model)
    assert [answer.value is None for answer in stream.take_all(2)] == [False, True]
    stream.close()
    assert not warnings(models, model)


def test_the_model_of_an_ensemble_that_leaves_out_an_output_is_named(models: Models) -> None:
    first = models.load(returning(GIVEN), TWO)
    second = models.load(returning(GIVEN), FLOATS)
    ensemble = models.load_config(f"""
        platform: "ensemble"
        {FLOATS}
        ensemble_scheduling {{
            step [
                {{ model_name: "{first}" model_version: -1
                   input_map {{ key: "IN" value: "IN" }} output_map {{ key: "MORE" value: "between" }} }},
                {{ model_name: "{second}" model_version: -1
                   input_map {{ key: "IN" value: "between" }} output_map {{ key: "OUT" value: "OUT" }} }}
            ]
        }}
    """)
    status, message = models.infer_error(ensemble)
    assert status == "500"
    assert f"model '{first}': its response lacks the output 'MORE'" in message
