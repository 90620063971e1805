"""Inputs and outputs with a `reshape`: the model sees one shape and its clients another."""

import numpy as np
import pytest

from tests.python_models.support import Array, Models, Stream, answering, executing, http_inputs

IN_SERVER_TOO = True


def config(dims: str, reshape: str, max_batch_size: int = 8) -> str:
    tensor = f"data_type: TYPE_FP32 dims: [{dims}] reshape {{ shape: [{reshape}] }}"
    return f"""
        max_batch_size: {max_batch_size}
        input [{{ name: "IN" {tensor} }}]
        output [{{ name: "OUT" {tensor} }}]
    """


def sized(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("dims", "reshape", "shape", "seen"),
    [
        ("4", "2, 2", (2, 4), (2, 2, 2)),
        ("1", "", (2, 1), (2,)),
        ("-1, 4", "-1, 2, 2", (2, 3, 4), (2, 3, 2, 2)),
        ("2, 2", "4", (1, 2, 2), (1, 4)),
    ],
)
def test_client_and_model_each_see_their_shape(
    models: Models, dims: str, reshape: str, shape: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    name = models.load(answering(f"x + (x.shape == {seen})"), config(dims, reshape))
    answer = models.infer(name, sized(*shape))
    np.testing.assert_array_equal(answer, sized(*shape) + 1)


def test_models_without_batches_are_reshaped_too(models: Models) -> None:
    name = models.load(answering("x + (x.shape == (2, 2))"), config("4", "2, 2", 0))
    np.testing.assert_array_equal(models.infer(name, sized(4)), sized(4) + 1)


def test_an_output_that_has_the_client_s_shape_already_keeps_it(models: Models) -> None:
    name = models.load(answering("x.reshape(2, 4)"), config("4", "2, 2"))
    np.testing.assert_array_equal(models.infer(name, sized(2, 4)), sized(2, 4))


@pytest.mark.parametrize("shape", ["(2, 3)", "(2, 2, 3)", "(8,)"])
def test_an_output_of_another_size_is_an_error(models: Models, shape: str) -> None:
    name = models.load(answering(f"np.zeros({shape}, np.float32)"), config("4", "2, 2"))
    status, message = models.infer_error(name, sized(2, 4))
    assert (status, message) == ("500", "output tensor shape does not match size of output for 'OUT'")


def test_an_output_without_the_variable_dimension_is_an_error(models: Models) -> None:
    name = models.load(answering("np.zeros((2,), np.float32)"), config("-1, 4", "-1, 2, 2"))
    status, message = models.infer_error(name, sized(2, 3, 4))
    assert (status, message) == ("500", "output tensor shape does not match size of output for 'OUT'")


def test_responses_of_a_decoupled_model_are_reshaped(models: Models) -> None:
    name = models.load(
        executing("""
            sender = requests[0].get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", requests[0].inputs()[0].as_numpy())]), 1)
        """),
        config("4", "2, 2") + "model_transaction_policy { decoupled: true }",
    )
    stream = Stream(models)
    stream.send(name, sized(2, 4))
    answer = stream.take()
    stream.close()
    np.testing.assert_array_equal(answer.array, sized(2, 4))


def test_a_response_that_the_model_sends_itself_is_reshaped(models: Models) -> None:
    name = models.load(
        executing("""
            for request in requests:
                tensor = pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())
                request.get_response_sender().send(pb_utils.InferenceResponse([tensor]), 1)
        """),
        config("4", "2, 2"),
    )
    np.testing.assert_array_equal(models.infer(name, sized(2, 4)), sized(2, 4))


def test_steps_of_an_ensemble_and_calling_models_see_the_client_s_shape(models: Models) -> None:
    step = models.load(answering("x"), config("4", "2, 2"))
    tensor = "data_type: TYPE_FP32 dims: [4]"
    plain = f'input [{{ name: "IN" {tensor} }}] output [{{ name: "OUT" {tensor} }}]'
    steps = ", ".join(
        f'{{ model_name: "{step}" model_version: -1 input_map {{ key: "IN" value: "{source}" }} '
        f'output_map {{ key: "OUT" value: "{target}" }} }}'
        for source, target in (("IN", "M"), ("M", "OUT"))
    )
    ensemble = models.load_config(
        f'platform: "ensemble" max_batch_size: 8 {plain} ensemble_scheduling {{ step [{steps}] }}'
    )
    np.testing.assert_array_equal(models.infer(ensemble, sized(2, 4)), sized(2, 4))
    caller = models.load(
        executing(f"""
            request = pb_utils.InferenceRequest(
                model_name="{step}", inputs=requests[0].inputs(), requested_output_names=["OUT"]
            )
            return [request.exec()]
        """),
        f"max_batch_size: 8 {plain}",
    )
    answer = models.http.infer(caller, http_inputs(IN=sized(2, 4)))
    np.testing.assert_array_equal(answer.as_numpy("OUT"), sized(2, 4))


def test_tensors_of_one_name_are_all_reshaped(models: Models) -> None:
    name = models.load(
        executing("""
            x = requests[0].inputs()[0].as_numpy()
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x), pb_utils.Tensor("OUT", x + 1)])]
        """),
        config("4", "2, 2"),
    )
    answer = models.http.infer(name, http_inputs(IN=sized(2, 4))).get_response()
    assert [output["shape"] for output in answer["outputs"]] == [[2, 4], [2, 4]]
