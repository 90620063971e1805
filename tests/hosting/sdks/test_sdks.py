"""The SageMaker SDKs, in processes of their own, against one host; they are in the extra `test-sdks`."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import examples
from examples.sagemaker.build import build
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
EXAMPLES = Path(examples.__file__).parent
SCRIPTS = {
    "classic_model": ("read_digit.tar.gz",),
    "classic_text": ("parrot.tar.gz",),
    "classic_multi_model": ("digits.tar.gz", "read_digit.tar.gz"),
    "classic_failure": ("read_digit.tar.gz",),
    "classic_capture": ("read_digit.tar.gz",),
    "classic_transform": ("read_digit.tar.gz",),
    "classic_monitoring": ("read_digit.tar.gz",),
    "classic_async": ("read_digit.tar.gz",),
    "classic_notebook": ("read_digit.tar.gz",),
    "classic_notebook_many": ("digits.tar.gz",),
    "core_resources": ("read_digit.tar.gz",),
    "core_experiment": ("read_digit.tar.gz",),
}
ROLE = "arn:aws:iam::000000000000:role/halimede"

pytestmark = [
    pytest.mark.skipif(
        find_spec("sagemaker") is None, reason="the SageMaker SDK (sagemaker<3) is not installed"
    ),
    pytest.mark.timeout(300),  # several SDKs are imported at once
]

Documents = dict[str, Any]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sdks")
    build(directory)
    with tarfile.open(directory / "archives" / "parrot.tar.gz", "w:gz") as archive:
        archive.add(EXAMPLES / "openai" / "models" / "parrot", "parrot")
    return directory


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    # all scripts at once have more instances than two processors otherwise give out
    flags = ("--capture-file-seconds=1", "--oversubscription=32")
    with start_host(tmp_path_factory.mktemp("host") / "host", *flags) as running:
        yield running


@pytest.fixture(scope="module")
def started(host: HostProcess, built: Path) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """All scripts at once, by the module of their SDK: they wait most of the time."""
    running = {}
    for sdk, prefix in (("sagemaker", "classic_"), ("sagemaker_core.resources", "core_")):
        arguments: list[object] = []
        for name, archives in SCRIPTS.items():
            if name.startswith(prefix):
                paths = [built / "archives" / archive for archive in archives]
                paths += [built / "digit.json", built / f"{name}.json"]
                arguments += ["--", HERE / f"{name}.py", *paths]
        running[prefix] = subprocess.Popen(
            [sys.executable, str(HERE / "impatient.py"), sdk, *map(str, arguments[1:])],
            # no way out: whatever they ask of anybody else fails
            env={**host.environment, "HTTPS_PROXY": "http://127.0.0.1:9", "SAGEMAKER_SUPPRESS_V2_WARNING": "1"},
            start_new_session=True,
        )  # fmt: skip
    yield running
    for process in running.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def said(
    request: pytest.FixtureRequest, started: Mapping[str, "subprocess.Popen[bytes]"], built: Path
) -> Documents:
    """What a script has to say when it has ended well."""
    script: str = request.param
    result = built / f"{script}.json"
    process = started[f"{script.partition('_')[0]}_"]
    wait_until(
        lambda: result.with_suffix(".status").exists() or process.poll() is not None,
        f"{script} to end",
        timeout=280,
    )
    assert result.with_suffix(".status").read_text() == "0", result.with_suffix(".log").read_text()
    documents: Documents = json.loads(result.read_text())
    return documents


@pytest.mark.parametrize("said", ["classic_model"], indirect=True)
def test_model_is_deployed_and_asked(said: Documents) -> None:
    assert (said["role"], said["account"]) == (ROLE, "000000000000")
    assert said["bucket"] == "sagemaker-us-east-1-000000000000"
    assert said["word"] == "seven"
    assert "Cannot create already existing endpoint" in said["again"]
    assert said["there"] == [True, False]
    assert said["left"] == 0


@pytest.mark.parametrize("said", ["classic_text"], indirect=True)
def test_text_is_generated_whole_and_streamed(said: Documents) -> None:
    assert said["text"] == {"generated_text": "good day"}
    assert said["chat"] == "good day"
    assert said["lines"] == ["good", " day", ""]
    assert said["streamed"] == "good day"


@pytest.mark.parametrize("said", ["classic_failure"], indirect=True)
def test_deployment_that_fails_raises_the_cause(said: Documents) -> None:
    assert said["error"] == "UnexpectedStatusException"
    assert "no_such_model" in said["text"]
    assert "Waiting for in-flight" not in said["text"]


@pytest.mark.parametrize("said", ["classic_async"], indirect=True)
def test_model_behind_a_queue_is_deployed_and_asked(said: Documents) -> None:
    assert said["predictor"] == "AsyncPredictor"
    assert (said["word"], said["later"]) == ("seven", "seven")
    assert "Received client error (400) from primary" in said["failure"]


@pytest.mark.parametrize("said", ["classic_multi_model"], indirect=True)
def test_many_models_are_deployed_added_listed_and_asked(said: Documents) -> None:
    assert said["models"] == ["digits.tar.gz", "ensembles/read_digit.tar.gz"]
    assert (said["digit"], said["word"]) == (7, "seven")
    assert "missing.tar.gz" in said["missing"]
    assert said["left"] == 0


@pytest.mark.parametrize("said", ["classic_capture"], indirect=True)
def test_requests_and_responses_are_captured_until_that_is_switched_off(said: Documents) -> None:
    assert said == {"encoding": "JSON", "asked": True, "answered": True, "after": "Stopped"}


@pytest.mark.parametrize("said", ["classic_transform"], indirect=True)
def test_objects_are_transformed_and_waited_for_with_logs(said: Documents) -> None:
    assert said["output"] == '"seven"\n"seven"\n'
    assert said["attached"] == ["s3://sagemaker-us-east-1-000000000000/words", 1, 2]
    assert said["failed"].startswith(
        "UnexpectedStatusException: Error for Transform job classic-nothing: Failed."
    )
    assert "No S3 objects found under S3 URL" in said["failed"]


@pytest.mark.parametrize("said", ["classic_monitoring"], indirect=True)
def test_an_endpoint_is_monitored(said: Documents) -> None:
    assert (said["status"], said["type"]) == ("Scheduled", "DataQuality")
    assert said["job"] == "Completed", said["message"]
    assert said["message"] == "Completed: Job completed successfully with no violations."
    assert "input.image.mean" in said["columns"]
    assert said["violations"] == []
    assert said["attached"]
    assert (said["hourly"], said["stopped"], said["started"]) == ("cron(0 * ? * * *)", "Stopped", "Scheduled")
    assert said["left"] == 0


@pytest.mark.parametrize("said", ["classic_notebook"], indirect=True)
def test_notebook_with_one_model_runs_in_sessions_of_its_own(said: Documents) -> None:
    assert said == {
        "role": ROLE,
        "account": "000000000000",
        "bucket": "sagemaker-us-east-1-000000000000",
        "model": True,
        "status": "InService",
        "json": "seven",
        "binary": "seven",
        "downloaded": True,
    }


@pytest.mark.parametrize("said", ["classic_notebook_many"], indirect=True)
def test_notebook_with_many_models_scales_them_and_sees_their_metrics(said: Documents) -> None:
    assert said == {
        "policies": ["GPUUtil-ScalingPolicy"],
        "digits": [7] * 5,
        "Invocations": 5,
        "Invocation4XXErrors": 0,
        "ModelCacheHit": 0,
        "waited": ["ModelLoadingWaitTime", "ModelDownloadingTime", "ModelLatency"],
        "by configuration": 5,
        "registry": "UnknownOperationException",
        "lambda": "the service 'lambda' is not available here",
    }


@pytest.mark.parametrize("said", ["core_resources"], indirect=True)
def test_resources_are_created_waited_for_invoked_changed_and_deleted(said: Documents) -> None:
    assert (said["role"], said["word"]) == (ROLE, "seven")
    assert said["endpoints"] == ["core"]
    assert said["instances"] == [2]
    assert said["gone"] == 'Could not find model "arn:aws:sagemaker:us-east-1:000000000000:model/core".'


@pytest.mark.parametrize("said", ["core_experiment"], indirect=True)
def test_a_model_is_tried_in_an_inference_experiment(said: Documents) -> None:
    assert said == {
        "word": "seven",
        "description": "the same model twice",
        "experiments": ["core"],
        "shadows": ["candidate"],
        "gone": "ResourceNotFound",
    }
