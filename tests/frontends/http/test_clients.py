"""tritonclient over HTTP, against real models."""

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from tests.frontends.http.models import ModelServer, serve_models, write_repository


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    directory = tmp_path_factory.mktemp("repository")
    write_repository(directory)
    with serve_models(directory, None, "echo", "strings") as running:
        yield running


@pytest.fixture
def triton(server: ModelServer) -> Iterator[client.InferenceServerClient]:
    with client.InferenceServerClient(server.address) as opened:
        yield opened


def floats(binary: bool, values: object = ((1.5, -2.0, 0.25),)) -> client.InferInput:
    array = np.array(values, np.float32)
    tensor = client.InferInput("INPUT0", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tensors_come_back(
    triton: client.InferenceServerClient, binary_input: bool, binary_output: bool, compression: str | None
) -> None:
    result = triton.infer(
        "echo",
        [floats(binary_input)],
        outputs=[client.InferRequestedOutput("OUTPUT0", binary_data=binary_output)],
        request_id="my-id",
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    assert result.as_numpy("OUTPUT0").tolist() == [[1.5, -2.0, 0.25]]
    assert result.get_response()["id"] == "my-id"
    assert result.get_response()["model_version"] == "3"


def test_all_outputs_come_without_a_list(triton: client.InferenceServerClient) -> None:
    assert triton.infer("echo", [floats(binary=True)]).as_numpy("OUTPUT0").shape == (1, 3)


def test_requests_run_side_by_side(server: ModelServer) -> None:
    with client.InferenceServerClient(server.address, concurrency=4) as triton:
        pending = [triton.async_infer("echo", [floats(True, [[number]])]) for number in range(20)]
        values = [float(request.get_result().as_numpy("OUTPUT0")[0, 0]) for request in pending]
    assert values == list(range(20))


def test_strings_come_back(triton: client.InferenceServerClient) -> None:
    tensor = client.InferInput("INPUT0", [1], "BYTES")
    tensor.set_data_from_numpy(np.array(["grüß".encode()], dtype=np.object_))
    assert triton.infer("strings", [tensor]).as_numpy("OUTPUT0").tolist() == ["grüß".encode()]


def test_classes_come_with_labels(triton: client.InferenceServerClient) -> None:
    outputs = [client.InferRequestedOutput("OUTPUT0", class_count=1)]
    result = triton.infer("echo", [floats(binary=True)], outputs=outputs)
    assert result.as_numpy("OUTPUT0").tolist() == [[b"1.500000:0:cat"]]


def test_wrong_request_raises_with_the_status(triton: client.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'none' is not found"):
        triton.infer("none", [floats(binary=True)])
    with pytest.raises(InferenceServerException) as error:
        triton.infer("strings", [floats(binary=True)])
    assert error.value.status() == "400"


def test_server_and_models_are_described(triton: client.InferenceServerClient) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("echo", "3")
    assert not triton.is_model_ready("echo", "2")
    assert triton.get_server_metadata()["name"] == "triton"
    assert triton.get_model_metadata("echo")["versions"] == ["1", "3"]
    assert triton.get_model_config("echo")["backend"] == "identity"
    assert triton.get_inference_statistics("echo", "3")["model_stats"][0]["version"] == "3"


def test_models_are_controlled(triton: client.InferenceServerClient) -> None:
    triton.load_model("half")
    assert triton.is_model_ready("half")
    triton.unload_model("half")
    states = {row["name"]: row.get("state") for row in triton.get_model_repository_index()}
    assert states["echo"] == "READY"
    assert states["half"] in {"UNLOADING", "UNAVAILABLE"}
    with pytest.raises(InferenceServerException, match="none"):
        triton.load_model("none")
