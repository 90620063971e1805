"""Requests of different shapes in one execution of a Python model, in steps of ensembles, and in calls of models."""

from collections.abc import Iterator

import pytest

from tests.python_models.support import executing, python_model
from tests.support import onnx_models
from tests.support.ragged import BATCHING, SEGMENTS, at_once, check_segments, executions
from tests.support.server import ServerProcess, start_server

TENSORS = f"""
    {BATCHING}
    input {{ name: "VALUES" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }}
    output {{ name: "TOLD" data_type: TYPE_FP32 dims: [-1] }}
"""
TELLS = executing("""
    together = sum(len(request.inputs()) for request in requests)
    responses = []
    for request in requests:
        values = pb_utils.get_input_tensor_by_name(request, "VALUES").as_numpy()
        told = np.full((len(values), 2), (together, values.size), np.float32)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", told)]))
    return responses
""")
MADE = """
    batch_input { kind: BATCH_ELEMENT_COUNT target_name: "COUNTS" data_type: TYPE_INT32 source_input: "VALUES" }
    batch_output { target_name: "TOLD" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "VALUES" }
"""
WARMED = """
    model_warmup {
        name: "five" batch_size: 3 inputs { key: "VALUES" value { data_type: TYPE_FP32 dims: 5 zero_data: true } }
    }
"""
CALLS = executing("""
    responses = []
    for request in requests:
        values = pb_utils.get_input_tensor_by_name(request, "VALUES").as_numpy()[0]
        calls = [
            pb_utils.InferenceRequest(
                model_name="called",
                requested_output_names=["SUM"],
                inputs=[pb_utils.Tensor("VALUES", part.reshape(1, -1))],
            )
            for part in (values[:0], values[:1], values[1:])
        ]
        async def together():
            return await asyncio.gather(*[call.async_exec() for call in calls])
        sums = [
            pb_utils.get_output_tensor_by_name(answer, "SUM").as_numpy() for answer in asyncio.run(together())
        ]
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.concatenate(sums, 1))]))
    return responses
""")
CALLER = TENSORS[TENSORS.index("input") :] + "max_batch_size: 1"
ENSEMBLE = """
    platform: "ensemble" max_batch_size: 8
    input { name: "VALUES" data_type: TYPE_FP32 dims: [-1] }
    output { name: "SUM" data_type: TYPE_FP32 dims: [1] }
    output { name: "TWICE" data_type: TYPE_FP32 dims: [-1] }
    ensemble_scheduling {
        step {
            model_name: "first" model_version: -1
            input_map { key: "VALUES" value: "VALUES" } output_map { key: "TWICE" value: "between" }
        }
        step {
            model_name: "second" model_version: -1
            input_map { key: "VALUES" value: "between" }
            output_map { key: "SUM" value: "SUM" } output_map { key: "TWICE" value: "TWICE" }
        }
    }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("models")
    python_model(repository, "tells", TELLS, TENSORS)
    python_model(repository, "made", TELLS, TENSORS + MADE)
    python_model(repository, "warmed", TELLS, TENSORS + WARMED)
    python_model(repository, "caller", CALLS, CALLER)
    for name in ("first", "second", "called"):
        onnx_models.write_model(
            repository, name, onnx_models.segments(), f'backend: "onnxruntime" {SEGMENTS}'
        )
    onnx_models.write_model(repository, "ensemble", None, ENSEMBLE)
    with start_server(repository) as running:
        yield running


@pytest.mark.parametrize("name", ["tells", "made", "warmed"])
def test_requests_of_different_shapes_share_an_execution_and_keep_their_shapes(
    server: ServerProcess, name: str
) -> None:
    rows: list[list[list[int]]] = [[[1, 2, 3]], [[]], [[4]]]
    computed, executed = executions(server.http, name)
    answers = at_once(server.http, name, [{"VALUES": row} for row in rows])
    assert answers == [{"TOLD": [[3, len(row[0])]]} for row in rows]
    assert executions(server.http, name) == (computed + 3, executed + 1)


def test_steps_of_an_ensemble_are_ragged(server: ServerProcess) -> None:
    rows: list[list[list[int]]] = [[[1, 2, 3]], [[]], [[4]]]
    before = [executions(server.http, step) for step in ("first", "second")]
    answers = at_once(server.http, "ensemble", [{"VALUES": row} for row in rows])
    assert answers == [
        {"SUM": [[2 * sum(row[0])]], "TWICE": [[4 * value for value in row[0]]]} for row in rows
    ]
    after = [executions(server.http, step) for step in ("first", "second")]
    assert after == [(computed + 3, executed + 1) for computed, executed in before]


def test_calls_of_a_ragged_model_share_a_batch(server: ServerProcess) -> None:
    computed, executed = executions(server.http, "called")
    assert at_once(server.http, "caller", [{"VALUES": [[1, 2, 3]]}]) == [{"TOLD": [[0, 1, 5]]}]
    assert executions(server.http, "called") == (computed + 3, executed + 1)
    check_segments(server.http, "called")
