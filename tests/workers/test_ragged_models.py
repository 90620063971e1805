"""Requests of different shapes in one batch of an ONNX model, in a thread of the server and in a process of its own."""

from collections.abc import Iterator

import pytest

from tests.support import onnx_models
from tests.support.ragged import BATCHING, ROWS, SEGMENTS, at_once, check_segments, executions
from tests.support.server import ServerProcess, start_server

PLACES = ("thread", "process")
FIXED = f"""
    backend: "onnxruntime" {BATCHING}
    input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [2] allow_ragged_batch: true }}
    output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [2] }}
    batch_output {{ target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT0" }}
"""
WARMED = """
    model_warmup {
        name: "five" batch_size: 1 inputs { key: "VALUES" value { data_type: TYPE_FP32 dims: 5 zero_data: true } }
    }
"""


def isolation(place: str) -> str:
    return f'parameters {{ key: "isolation" value {{ string_value: "{place}" }} }}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("models")
    flat = onnx_models.identity(dims=["n"], batching=False)
    for place in PLACES:
        text = f'backend: "onnxruntime" {SEGMENTS} {isolation(place)}'
        onnx_models.write_model(repository, f"segments-{place}", onnx_models.segments(), text)
        onnx_models.write_model(repository, f"fixed-{place}", flat, f"{FIXED} {isolation(place)}")
        text = f"{FIXED} {isolation(place)}".replace("dims: [2]", "dims: [-1]")
        onnx_models.write_model(repository, f"without-zeros-{place}", onnx_models.without_zeros(), text)
    text = f'backend: "onnxruntime" {SEGMENTS} {WARMED}'
    onnx_models.write_model(repository, "warmed", onnx_models.segments(), text)
    with start_server(repository) as running:
        yield running


@pytest.mark.parametrize("place", PLACES)
def test_requests_of_different_shapes_share_a_batch(server: ServerProcess, place: str) -> None:
    check_segments(server.http, f"segments-{place}")


@pytest.mark.parametrize("place", PLACES)
def test_a_ragged_input_of_fixed_dims_is_flat_too(server: ServerProcess, place: str) -> None:
    rows = [[[1, 2]], [[3, 4]], [[5, 6]]]
    computed, executed = executions(server.http, f"fixed-{place}")
    answers = at_once(server.http, f"fixed-{place}", [{"INPUT0": row} for row in rows])
    assert answers == [{"OUTPUT0": row} for row in rows]
    assert executions(server.http, f"fixed-{place}") == (computed + ROWS, executed + 1)


@pytest.mark.parametrize("place", PLACES)
def test_a_request_whose_output_lacks_elements_fails_and_its_neighbours_keep_theirs(
    server: ServerProcess, place: str
) -> None:
    rows = [[[1, 2]], [[3, 0, 4]], [[5]]]
    answers = at_once(server.http, f"without-zeros-{place}", [{"INPUT0": row} for row in rows])
    assert answers == [
        {"OUTPUT0": [[1, 2]]},
        {
            "error": (
                "output 'OUTPUT0' has shape [2], which is 2 elements; scattered with the shapes of input 'INPUT0' of "
                "1 request, it should have 3"
            )
        },
        {"OUTPUT0": [[5]]},
    ]


def test_a_ragged_model_is_warmed_up(server: ServerProcess) -> None:
    check_segments(server.http, "warmed")
