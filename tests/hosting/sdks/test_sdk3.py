"""The SageMaker SDK 3, which cannot be installed beside SDK 2: `make test-sdk3` gives it an environment of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosting.sdks.running import ROLE, Scripts, run_scripts
from tests.hosting.sdks.shared import SHARED
from tests.support.host import HostProcess

PYTHON = os.environ.get("SDK3_PYTHON", "")
"""The interpreter that has SDK 3."""

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="only `make test-sdk3` runs the SageMaker SDK 3"),
    pytest.mark.timeout(300),  # an SDK is imported
]


@pytest.fixture(scope="module")
def started(host: HostProcess, built: Path) -> Iterator[Scripts]:
    scripts = {name: shared.archives for name, shared in SHARED.items()}
    scripts["sdk3_model_builder"] = ("read_digit.tar.gz",)
    with run_scripts(PYTHON, "sagemaker.serve", scripts, host, built) as running:
        yield running


@pytest.mark.parametrize("script", SHARED)
def test_notebook_or_resource_is_answered(script: str, started: Scripts) -> None:
    assert started.said(script) == SHARED[script].said


def test_model_is_built_and_deployed_on_an_endpoint_behind_a_queue_and_as_a_job(started: Scripts) -> None:
    assert started.said("sdk3_model_builder") == {
        "role": ROLE,
        "url": True,
        "status": "InService",
        "word": "seven",
        "named": "arn:aws:iam::000000000000:role/analyst",
        "none": ROLE,
        "later": "seven",
        "transformed": "seven",
        "left": 0,
    }
