"""Models of equal names in two repositories, as clients see them; the texts are tritonserver's."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.support.server import ServerProcess, start_server

TENSORS = """
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
"""
ADD = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        assert "::" not in self.name
        inputs = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", each + {0}).astype("float32")]) for each in inputs]
""".replace('.Tensor("Y", each + {0}).astype("float32")', '.Tensor("Y", (each + {0}).astype("float32"))')
CALL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            inputs = [pb_utils.get_input_tensor_by_name(request, "X")]
            call = pb_utils.InferenceRequest(model_name="same", requested_output_names=["Y"], inputs=inputs)
            answer = call.exec()
            assert not answer.has_error(), answer.error().message()
            responses.append(pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(answer, "Y")]))
        return responses
"""
ENSEMBLE = f"""
platform: "ensemble" {TENSORS}
ensemble_scheduling {{ step {{
  model_name: "same" model_version: -1
  input_map {{ key: "X" value: "X" }} output_map {{ key: "Y" value: "Y" }}
}} }}
"""
AMBIGUOUS = (
    "There are 2 identifiers of model 'same' in global map, "
    "model namespace must be provided to resolve ambiguity."
)


def put(repository: Path, name: str, config: str, code: str = "") -> None:
    directory = repository / name / "1"
    directory.mkdir(parents=True)
    (directory.parent / "config.pbtxt").write_text(config)
    if code:
        (directory / "model.py").write_text(code)


def ask(server: ServerProcess, path: str, document: object = None) -> tuple[int, Any]:
    data = None if document is None else json.dumps(document).encode()
    try:
        with urllib.request.urlopen(f"http://{server.http}{path}", data, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def infer(server: ServerProcess, model: str) -> tuple[int, Any]:
    tensor = {"name": "X", "datatype": "FP32", "shape": [1], "data": [1]}
    return ask(server, f"/v2/models/{model}/infer", {"inputs": [tensor]})


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("repositories")
    a, b = root / "a", root / "b"
    for repository, number in ((a, 10), (b, 20)):
        put(repository, "same", f'backend: "python" {TENSORS}', ADD.format(number))
        put(repository, f"ensemble_{repository.name}", ENSEMBLE)
        put(repository, f"caller_{repository.name}", f'backend: "python" {TENSORS}', CALL)
    return a, b


@pytest.fixture(scope="module")
def server(places: tuple[Path, Path]) -> Iterator[ServerProcess]:
    flags = (f"--model-repository={places[1]}", "--model-namespacing=true")
    with start_server(places[0], *flags) as running:
        yield running


def test_requests_to_an_ambiguous_name_are_refused(server: ServerProcess) -> None:
    assert infer(server, "same") == (400, {"error": AMBIGUOUS})
    for path in ("", "/config", "/versions/1"):
        assert ask(server, f"/v2/models/same{path}")[0] == 400
    assert ask(server, "/v2/models/same/config")[1] == {"error": AMBIGUOUS}
    assert ask(server, "/v2/models/same/ready") == (400, {"error": "Model version not ready"})
    unknown = {"error": "Request for unknown model : same"}
    assert ask(server, "/v2/models/same/trace/setting") == (400, unknown)
    unavailable = {"error": "requested model 'same' is not available"}
    assert ask(server, "/v2/models/same/stats") == (400, unavailable)
    with grpcclient.InferenceServerClient(server.grpc) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.get_model_metadata("same")
        assert caught.value.message() == AMBIGUOUS
        assert "INVALID_ARGUMENT" in str(caught.value.status())


@pytest.mark.parametrize("kind", ["ensemble", "caller"])
def test_ensembles_and_calls_reach_their_own_repository(server: ServerProcess, kind: str) -> None:
    for repository, value in (("a", 11.0), ("b", 21.0)):
        status, answer = infer(server, f"{kind}_{repository}")
        assert status == 200, answer
        assert answer["model_name"] == f"{kind}_{repository}"
        assert answer["outputs"][0]["data"] == [value]


def test_clients_see_names_and_operators_namespaces(server: ServerProcess, places: tuple[Path, Path]) -> None:
    _, index = ask(server, "/v2/repository/index", {})
    names = ["caller_a", "ensemble_a", "same", "caller_b", "ensemble_b", "same"]
    assert [(row["name"], row["state"]) for row in index] == [(name, "READY") for name in names]
    assert ask(server, "/v2/models/ensemble_a")[1]["name"] == "ensemble_a"
    _, config = ask(server, "/v2/models/ensemble_b/config")
    [step] = config["ensemble_scheduling"]["step"]
    assert (config["name"], step["model_name"], step["model_namespace"]) == (
        "ensemble_b",
        "same",
        str(places[1]),
    )
    _, statistics = ask(server, "/v2/models/stats")
    assert [each["name"] for each in statistics["model_stats"]] == names
    _, metrics = server.get("/metrics", server.metrics)
    for place in places:
        line = f'nv_inference_count{{model="same",namespace="{place}",version="1"}} '
        assert line in metrics.decode()
    assert f"successfully loaded '{places[0]}::same'" in server.log
    assert f"| {places[0]}::same " in server.log


def test_a_model_is_reached_by_its_identifier_over_grpc(
    server: ServerProcess, places: tuple[Path, Path]
) -> None:
    with grpcclient.InferenceServerClient(server.grpc) as client:
        assert client.get_model_metadata(f"{places[0]}::same").name == f"{places[0]}::same"


def test_on_demand_requests_load_what_they_name(places: tuple[Path, Path]) -> None:
    flags = (f"--model-repository={places[1]}", "--model-namespacing=true", "--model-control-mode=ondemand")
    with start_server(places[0], *flags) as server:
        for repository, value in (("b", 21.0), ("a", 11.0)):
            for kind in ("ensemble", "caller"):
                status, answer = infer(server, f"{kind}_{repository}")
                assert status == 200, answer
                assert answer["outputs"][0]["data"] == [value]
        assert infer(server, "same") == (400, {"error": AMBIGUOUS})
        assert infer(server, "nowhere")[0] == 404
        with grpcclient.InferenceServerClient(server.grpc) as client:
            tensor = grpcclient.InferInput("X", [1], "FP32").set_data_from_numpy(np.ones(1, np.float32))
            for place, value in zip(places, (11.0, 21.0), strict=True):
                assert client.infer(f"{place}::same", [tensor]).as_numpy("Y") == [value]
            assert client.infer("caller_a", [tensor]).as_numpy("Y") == [11.0]
