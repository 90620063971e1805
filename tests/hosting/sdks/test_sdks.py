"""The SageMaker SDKs, in processes of their own, against one host; they are in the extra `test-sdks`."""

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.hosting.sdks.running import ROLE, Documents, Scripts, run_scripts
from tests.hosting.sdks.shared import SHARED
from tests.support.host import HostProcess

SCRIPTS = {
    "classic_model": ("read_digit.tar.gz",),
    "classic_text": ("parrot.tar.gz",),
    "classic_multi_model": ("digits.tar.gz", "read_digit.tar.gz"),
    "classic_failure": ("read_digit.tar.gz",),
    "classic_capture": ("read_digit.tar.gz",),
    "classic_transform": ("read_digit.tar.gz",),
    "classic_monitoring": ("read_digit.tar.gz",),
    "classic_async": ("read_digit.tar.gz",),
    "classic_model_builder": (),
}
pytestmark = [
    pytest.mark.skipif(
        find_spec("sagemaker") is None, reason="the SageMaker SDK (sagemaker<3) is not installed"
    ),
    pytest.mark.timeout(300),  # several SDKs are imported at once
]


@pytest.fixture(scope="module")
def started(host: HostProcess, built: Path) -> Iterator[Callable[[str], Scripts]]:
    """All scripts at once: they wait most of the time."""
    shared = {name: each.archives for name, each in SHARED.items()}
    core = {name: archives for name, archives in shared.items() if name.startswith("core_")}
    others = {**SCRIPTS, **{name: archives for name, archives in shared.items() if name not in core}}
    with (
        run_scripts(sys.executable, "sagemaker", others, host, built) as running,
        run_scripts(sys.executable, "sagemaker_core.resources", core, host, built) as running_core,
    ):
        yield lambda name: running_core if name in core else running


@pytest.fixture
def said(request: pytest.FixtureRequest, started: Callable[[str], Scripts]) -> Documents:
    """What a script has to say when it has ended well."""
    script: str = request.param
    return started(script).said(script)


@pytest.mark.parametrize(
    ("said", "expected"), [(name, each.said) for name, each in SHARED.items()], indirect=["said"], ids=SHARED
)
def test_notebook_or_resource_is_answered(said: Documents, expected: Documents) -> None:
    assert said == expected


@pytest.mark.parametrize("said", ["classic_model"], indirect=True)
def test_model_is_deployed_and_asked(said: Documents) -> None:
    assert (said["role"], said["account"]) == (ROLE, "000000000000")
    assert said["bucket"] == "sagemaker-us-east-1-000000000000"
    assert said["word"] == "seven"
    assert "Cannot create already existing endpoint" in said["again"]
    assert (said["predictor"], said["plain"]) == (None, "seven")
    assert said["there"] == [True, False]
    assert said["left"] == 0


@pytest.mark.parametrize("said", ["classic_model_builder"], indirect=True)
def test_module_of_pytorch_is_built_and_deployed(said: Documents) -> None:
    assert said == {"environment": "model", "shape": [1, 2], "near": True}


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
