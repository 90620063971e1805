"""`FailureReason` names the cause of a failure, whatever an instance printed after it."""

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.host import HostProcess, start_host

ROLE = "arn:aws:iam::000000000000:role/any"
IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
CONFIG = """backend: "python"
input { name: "A" data_type: TYPE_FP32 dims: [1] }
output { name: "B" data_type: TYPE_FP32 dims: [1] }
"""
ENSEMBLE = """platform: "ensemble"
input { name: "A" data_type: TYPE_FP32 dims: [1] }
output { name: "B" data_type: TYPE_FP32 dims: [1] }
ensemble_scheduling { step {
  model_name: "s" model_version: -1
  input_map { key: "A" value: "A" } output_map { key: "B" value: "B" }
} }
"""
EXECUTE = "    def execute(self, requests): return []\n"
RAISES = f"""class TritonPythonModel:
    def initialize(self, args): raise RuntimeError("weights are missing")
{EXECUTE}"""


def archive(files: Mapping[str, str]) -> bytes:
    """A model.tar.gz of these files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    with start_host(tmp_path_factory.mktemp("reasons") / "host") as running:
        running.client("s3").create_bucket(Bucket="models")
        yield running


def create(host: HostProcess, name: str, container: dict[str, Any], **variant: Any) -> None:
    """An endpoint of one instance, and all that is below it."""
    sagemaker = host.client("sagemaker")
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    one = {"VariantName": "A", "ModelName": name, "InstanceType": "ml.local.cpu", **variant}
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[one])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def reason(host: HostProcess, name: str) -> str:
    """Why an endpoint failed."""
    sagemaker = host.client("sagemaker")
    while (described := sagemaker.describe_endpoint(EndpointName=name))["EndpointStatus"] == "Creating":
        pass  # the host holds its answer until something has happened
    assert described["EndpointStatus"] == "Failed"
    text: str = described["FailureReason"]
    assert len(text) <= 1024
    return text


DID_NOT_START = "The primary container for production variant A did not pass the ping health check: "

CAUSES = {
    "initialize-raises": (
        {"m/config.pbtxt": CONFIG, "m/1/model.py": RAISES},
        "it ended with status 1: failed to load 'm' version 1: Internal: RuntimeError: weights are missing. Its log",
    ),
    "import-fails": (
        {"m/config.pbtxt": CONFIG, "m/1/model.py": "import no_such_thing\n"},
        "ModuleNotFoundError: No module named 'no_such_thing'. Its log",
    ),
    "file-is-missing": (
        {"m/config.pbtxt": CONFIG, "m/1/notes.txt": "no model"},
        "Python model file not found in '/opt/ml/model/m/1/model.py'. Its log",
    ),
    "config-is-wrong": (
        {"m/config.pbtxt": CONFIG + "max_batch: 3\n", "m/1/model.py": f"class TritonPythonModel:\n{EXECUTE}"},
        "'max_batch' is not a field of ModelConfig",
    ),
    "model-exits": (
        {"m/config.pbtxt": CONFIG, "m/1/model.py": "import os\nos._exit(3)\n"},
        "Stub process 'm' is not healthy. It exited with status 3. Its log",
    ),
    "step-of-an-ensemble": (
        {"m/config.pbtxt": ENSEMBLE, "m/1/empty": "", "s/config.pbtxt": CONFIG, "s/1/model.py": RAISES},
        "failed to load 's' version 1: Internal: RuntimeError: weights are missing; failed to load 'm': ensemble 'm'",
    ),
    "no-directory-of-its-own": (
        {"config.pbtxt": CONFIG, "1/model.py": RAISES},
        "Incorrect directory structure. Model directory needs to contain the top level folder: config.pbtxt lies at",
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_model_that_does_not_load_is_the_reason(host: HostProcess, name: str) -> None:
    files, cause = CAUSES[name]
    host.client("s3").put_object(Bucket="models", Key=f"{name}.tar.gz", Body=archive(files))
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://models/{name}.tar.gz",
        "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "m"},
    }
    create(host, name, container)

    text = reason(host, name)

    assert text.startswith(DID_NOT_START)
    assert cause in text
    for noise in (
        "Waiting for in-flight requests",
        "in-flight inferences",
        "+----",
        "failed to load all models",
    ):
        assert noise not in text


def test_command_line_shows_the_cause(host: HostProcess) -> None:
    files, _ = CAUSES["initialize-raises"]
    host.client("s3").put_object(Bucket="models", Key="shown.tar.gz", Body=archive(files))
    create(host, "shown", {"Image": IMAGE, "ModelDataUrl": "s3://models/shown.tar.gz"})
    command = [sys.executable, "-m", "halimede", "endpoints", "shown", "--wait"]

    shown = subprocess.run(
        command, env=dict(host.environment), capture_output=True, timeout=60, check=False, text=True
    )

    assert shown.returncode == 1
    # the cell goes on in further lines
    cell = " ".join(line.split("|")[8].strip() for line in shown.stdout.splitlines()[3:-1])
    assert cell == reason(host, "shown")
    assert "Internal: RuntimeError: weights are missing" in cell


@pytest.mark.parametrize(
    ("key", "body", "cause"),
    [
        (
            "absent.tar.gz",
            b"",
            "Failed to download model data (bucket: models, key: absent.tar.gz): there is no such",
        ),
        ("text.tar.gz", b"no archive", "model archive 's3://models/text.tar.gz' cannot be extracted"),
    ],
)
def test_archive_that_cannot_be_fetched_is_the_reason(
    host: HostProcess, key: str, body: bytes, cause: str
) -> None:
    if body:
        host.client("s3").put_object(Bucket="models", Key=key, Body=body)
    name = key.removesuffix(".tar.gz")
    create(host, name, {"Image": IMAGE, "ModelDataUrl": f"s3://models/{key}"})

    assert reason(host, name).startswith(cause)


def program(directory: Path, name: str, *lines: str) -> str:
    """The path of an executable of these lines."""
    path = directory / name
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return str(path)


def test_traceback_of_a_program_is_the_reason(host: HostProcess, tmp_path: Path) -> None:
    trace = [
        "Traceback (most recent call last):",
        '  File "serve.py", line 3, in main',
        "OSError: the licence has expired",
        *(f"shutting down worker {number}" for number in range(8)),
    ]
    path = program(tmp_path, "serve", *(f"echo '{line}'" for line in trace), "exit 9")
    create(host, "traceback", {"Image": path})

    text = reason(host, "traceback")
    assert text.startswith(
        f"{DID_NOT_START}it ended with status 9: OSError: the licence has expired. Its log is A/i-"
    )
