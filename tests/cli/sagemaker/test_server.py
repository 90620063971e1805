"""`halimede sagemaker-serve` as the platform runs it, by nothing but the container's contract."""

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http as triton
from onnx import helper, numpy_helper

from tests.support import onnx_models
from tests.support.sagemaker import ARGUMENTS, BINARY, JSON, Platform, environment, start_serve

PYTHON = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", FACTOR * pb_utils.get_input_tensor_by_name(each, "INPUT0").as_numpy())]
            )
            for each in requests
        ]
"""
TENSORS = """
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
"""
STEP = """step {{
  model_name: "{model}" model_version: -1
  input_map {{ key: "INPUT0" value: "{taken}" }} output_map {{ key: "OUTPUT0" value: "{given}" }}
}}"""
ROW = [1.5, -2.0]
REQUEST = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": ROW}]})
EXTRACTING = """
import sys, time
import halimede.cli.sagemaker.models as models
from halimede.cli.main import main

def extract_model(archive, directory):
    directory.mkdir()
    print("extracting", flush=True)
    time.sleep(60)

models.extract_model = extract_model
main(["sagemaker-serve"])
"""


def write_onnx(repository: Path, name: str = "plain") -> Path:
    """A model that gives its input back; its directory."""
    return onnx_models.write_model(repository, name, onnx_models.identity(dims=(2,)), TENSORS)


def write_python(repository: Path, name: str, factor: int) -> Path:
    """A model that multiplies its input; its directory."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(PYTHON.replace("FACTOR", str(factor)))
    (version.parent / "config.pbtxt").write_text('backend: "python"' + TENSORS)
    return version.parent


def write_ensemble(repository: Path, factor: int) -> Path:
    """An ensemble that multiplies its input by a Python model, after an ONNX one; the directory of all three."""
    write_onnx(repository)
    write_python(repository, "times", factor)
    (repository / "both" / "1").mkdir(parents=True)
    steps = STEP.format(model="plain", taken="INPUT0", given="between")
    steps += STEP.format(model="times", taken="between", given="OUTPUT0")
    (repository / "both" / "config.pbtxt").write_text(
        f'platform: "ensemble" {TENSORS} ensemble_scheduling {{ {steps} }}'
    )
    return repository


def pack(source: Path, archive: Path) -> None:
    """An archive with that directory's content at its top."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, ".")


def binary_request() -> tuple[bytes, str]:
    """A request with its tensor as bytes, and its content type."""
    tensor = triton.InferInput("INPUT0", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.array([ROW], np.float32))
    body, json_size = triton.InferenceServerClient.generate_request_body([tensor])
    return body, f"{BINARY}{json_size}"


def ask(platform: Platform, key: str = "") -> list[float]:
    """What a model makes of ROW, asked in JSON and with bytes, which must be the same."""
    answer = platform.invoke(REQUEST, key)
    assert (answer.status, answer.content_type) == (200, JSON), answer.body
    values: list[float] = answer.document["outputs"][0]["data"]

    body, content_type = binary_request()
    answer = platform.invoke(body, key, content_type)
    assert answer.status == 200, answer.body
    assert answer.content_type.startswith(BINARY)
    size = int(answer.content_type.removeprefix(BINARY))
    result = triton.InferenceServerClient.parse_response_body(answer.body, header_length=size)
    assert result.as_numpy("OUTPUT0").tolist() == [values]
    return values


def times(factor: int) -> list[float]:
    return [factor * value for value in ROW]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """What stands for /opt/ml."""
    (tmp_path / "ml" / "model").mkdir(parents=True)
    return tmp_path / "ml"


def test_single_model_is_served_until_sigterm(base: Path) -> None:
    write_onnx(base / "model")
    with start_serve(base) as server:
        platform = Platform(server)

        assert platform.call("GET", "/ping").bare == (200, b"")
        assert ask(platform) == ROW
        assert (
            f"one model, 'plain' of {base / 'model'}; /ping tells whether the server is ready" in server.log
        )
        assert (
            "No SAGEMAKER_TRITON_DEFAULT_MODEL_NAME provided. Starting with the only existing model directory plain"
            in server.log
        )
        assert server.stop() == 0


def test_named_ensemble_is_served_with_its_steps(base: Path) -> None:
    write_ensemble(base / "model", 3)
    with start_serve(base, SAGEMAKER_TRITON_DEFAULT_MODEL_NAME="both") as server:
        assert ask(Platform(server)) == times(3)


def test_helper_of_a_model_is_loaded_by_additional_arguments(base: Path) -> None:
    write_onnx(base / "model")
    write_onnx(base / "model", "helper")
    write_onnx(base / "model", "other")
    variables = {
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "plain",
        ARGUMENTS: "--load-model=helper",
        "SAGEMAKER_TRITON_ALLOW_GRPC": "true",
        "SAGEMAKER_TRITON_GRPC_PORT": "0",
    }
    with (
        start_serve(base, **variables) as server,
        tritonclient.grpc.InferenceServerClient(server.grpc) as client,
    ):
        index = client.get_model_repository_index(as_json=True)["models"]
        assert {each["name"] for each in index if each.get("state") == "READY"} == {"plain", "helper"}


def test_metrics_are_served_if_asked_for(base: Path) -> None:
    write_onnx(base / "model")
    variables = {"SAGEMAKER_TRITON_ALLOW_METRICS": "true", "SAGEMAKER_TRITON_METRICS_PORT": "0"}
    with start_serve(base, **variables) as server:
        ask(Platform(server))
        assert (
            b'nv_inference_request_success{model="plain",version="1"} 2\n'
            in server.get("/metrics", server.metrics)[1]
        )


def test_inference_type_generate_takes_plain_json(base: Path) -> None:
    write_python(base / "model", "times", 2)
    with start_serve(base, SAGEMAKER_TRITON_INFERENCE_TYPE="generate") as server:
        answer = Platform(server).invoke(json.dumps({"INPUT0": ROW}))

        assert answer.status == 200, answer.body
        assert np.ravel(answer.document["OUTPUT0"]).tolist() == times(2)


def test_later_of_two_flags_counts(base: Path) -> None:
    write_onnx(base / "model")
    with start_serve(base, SAGEMAKER_TRITON_LOG_INFO="false", **{ARGUMENTS: "--log-info=true"}) as server:
        assert "Started Sagemaker HTTPService" in server.log


def test_control_mode_may_be_changed_by_additional_arguments(base: Path) -> None:
    write_onnx(base / "model")
    with start_serve(
        base, **{ARGUMENTS: "--model-control-mode=ondemand --model-memory-budget=1GiB"}
    ) as server:
        assert ask(Platform(server)) == ROW


def test_archive_that_no_platform_extracted_is_served_and_its_copy_removed(
    base: Path, tmp_path: Path
) -> None:
    pack(write_ensemble(tmp_path / "source", 5), base / "model" / "model.tar.gz")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with start_serve(base, TMPDIR=str(scratch), SAGEMAKER_TRITON_DEFAULT_MODEL_NAME="both") as server:
        assert ask(Platform(server)) == times(5)
        assert list(scratch.glob("*/model/both/config.pbtxt"))
        assert server.stop() == 0

    assert list(scratch.glob("halimede-*")) == []


def test_sigterm_while_an_archive_is_extracted_leaves_nothing(base: Path, tmp_path: Path) -> None:
    (base / "model" / "model.tar.gz").touch()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", EXTRACTING],
        env=environment(base, TMPDIR=str(scratch)),
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"extracting\n"
        assert list(scratch.glob("halimede-*"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM

    assert list(scratch.glob("halimede-*")) == []


def test_model_that_fails_to_load_ends_the_container(base: Path) -> None:
    model = write_onnx(base / "model")
    (model / "1" / "model.onnx").write_bytes(b"no model")

    done = subprocess.run(
        [sys.executable, "-m", "halimede", "sagemaker-serve"],
        env=environment(base), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert "failed to load all models" in done.stderr


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base directory with archives extracted as the platform does, in both layouts."""
    base = tmp_path_factory.mktemp("many")
    write_onnx(base / "sources" / "onnx")
    write_python(base / "sources" / "python", "times", 2)
    # of the same names as another archive's models
    write_ensemble(base / "sources" / "ensemble", 3)
    write_ensemble(base / "sources" / "second", 4)
    places = {
        "onnx-top": "onnx/plain",
        "onnx-directory": "onnx",
        "python-top": "python/times",
        "python-directory": "python",
        "ensemble": "ensemble",
        "second": "second",
    }
    for key, source in places.items():
        archive = base / f"{key}.tar.gz"
        pack(base / "sources" / source, archive)
        with tarfile.open(archive) as tar:
            tar.extraction_filter = getattr(
                tarfile, "data_filter", None
            )  # before Python 3.11.4 there is none
            tar.extractall(base / "models" / key / "model")
    broken = base / "models" / "broken" / "model" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"no model")
    return base


ANSWERS = {
    "onnx-top": ROW,
    "onnx-directory": ROW,
    "python-top": times(2),
    "python-directory": times(2),
    "ensemble": times(3),
    "second": times(4),
}


@pytest.fixture
def platform(many: Path) -> Iterator[Platform]:
    with start_serve(many, SAGEMAKER_MULTI_MODEL="true") as server:
        yield Platform(server)


def url(many: Path, key: str) -> Path:
    return many / "models" / key / "model"


def test_models_are_loaded_listed_invoked_unloaded_and_loaded_again(many: Path, platform: Platform) -> None:
    assert platform.call("GET", "/models").document == {"models": []}

    for _ in range(2):
        for key in ANSWERS:
            answer = platform.load(key, url(many, key), f"{key}.tar.gz")
            assert answer.bare == (200, b"")
        assert platform.keys() == set(ANSWERS)
        for key, expected in ANSWERS.items():
            assert ask(platform, key) == expected
        for key in ANSWERS:
            assert platform.unload(key).bare == (200, b"")
            assert platform.invoke(REQUEST, key).bare == (404, b"")
        assert platform.keys() == set()


def test_model_is_told_under_the_name_that_clients_use(many: Path, platform: Platform) -> None:
    platform.load("onnx-top", url(many, "onnx-top"), "team/plain.tar.gz")
    platform.load("python-top", url(many, "python-top"))

    assert platform.invoke(REQUEST, "onnx-top").document["model_name"] == "team/plain.tar.gz"
    assert platform.invoke(REQUEST, "python-top").document["model_name"] == "python-top"
    listed: list[dict[str, Any]] = platform.call("GET", "/models").document["models"]
    assert sorted(each["modelUrl"] for each in listed) == [
        str(many / "models" / "onnx-top"),
        str(many / "models" / "python-top"),
    ]


def test_bad_archive_leaves_the_container_healthy_and_the_others_served(
    many: Path, platform: Platform
) -> None:
    platform.load("python-top", url(many, "python-top"))

    answer = platform.load("broken", url(many, "broken"))

    assert answer.status == 400
    assert "error" in answer.document
    assert platform.keys() == {"python-top"}
    assert platform.call("GET", "/ping").status == 200
    assert ask(platform, "python-top") == times(2)
    assert platform.unload("broken").status == 404


def test_models_outside_of_the_base_directory_are_refused(many: Path, platform: Platform) -> None:
    assert platform.load("x", many / "sources" / "onnx").status == 400
    assert platform.keys() == set()


def write_large(repository: Path) -> None:
    """A model of 32 MiB that gives its input back."""
    constants = {"weights": np.zeros((1 << 22, 2), np.float32), "nothing": np.zeros(1, np.float32)}
    # which row is added depends on the input, so that the weights are not folded into a constant
    nodes = [
        helper.make_node("Mul", ["INPUT0", "nothing"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["zero"], keepdims=0),
        helper.make_node("Cast", ["zero"], ["index"], to=onnx_models.INT64),
        helper.make_node("Gather", ["weights", "index"], ["row"]),
        helper.make_node("Add", ["INPUT0", "row"], ["OUTPUT0"]),
    ]
    tensors: tuple[int, onnx_models.Dims] = (onnx_models.FLOAT, ["batch", 2])
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    model = onnx_models.build(nodes, {"INPUT0": tensors}, {"OUTPUT0": tensors}, initializers)
    onnx_models.write_model(repository, "large", model, TENSORS)


@pytest.mark.parametrize("mode", ["explicit", "ondemand"])
def test_model_beyond_the_budget_is_507_or_evicts_another(tmp_path: Path, mode: str) -> None:
    for key in "abc":
        write_large(tmp_path / "models" / key / "model")
    arguments = f"--model-control-mode={mode} --model-memory-budget=100MB"
    with start_serve(tmp_path, SAGEMAKER_MULTI_MODEL="true", **{ARGUMENTS: arguments}) as server:
        platform = Platform(server)

        statuses = [platform.load(key, url(tmp_path, key)).status for key in "abc"]

        if mode == "explicit":
            assert statuses == [200, 200, 507]
            assert platform.unload("a").status == 200
            assert platform.load("c", url(tmp_path, "c")).status == 200
            assert platform.keys() == {"b", "c"}
        else:
            assert statuses == [200, 200, 200]
            assert platform.keys() == {"a", "b", "c"}
        for key in sorted(platform.keys()) * 2:
            assert ask(platform, key) == ROW


@pytest.mark.parametrize("mode", ["live", "ready"])
def test_ping_mode_may_be_set_in_multi_model_mode(many: Path, mode: str) -> None:
    variables = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_TRITON_OVERRIDE_PING_MODE": mode}
    with start_serve(many, **variables) as server:
        assert (
            f"many models, from below {many / 'models'}; /ping tells whether the server is {mode}"
            in server.log
        )
        assert server.stop() == 0
