import logging

import pytest

from halimede.core.steps import Step
from halimede.repository.cloud.locations import parse_location
from halimede.repository.cloud.progress import Progress

LOCATION = parse_location("s3://bucket/repository")


def test_a_large_model_tells_each_tenth_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "halimede")
    progress = Progress("m", LOCATION, 2, Step("", 640_000_000, of_bytes=True))
    for _ in range(160):
        progress.add(4_000_000)
    told = [f"fetching 'm' from s3://bucket/repository: {64 * n} of 640 MB ({10 * n}%)" for n in range(1, 10)]
    assert caplog.messages == told
    progress.finish()
    assert caplog.messages[-1].startswith("fetched 'm' from s3://bucket/repository: 2 files, 640.0 MB in ")


def test_a_small_model_tells_only_what_it_came_to(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "halimede")
    progress = Progress("m", LOCATION, 1, Step("", 1000, of_bytes=True))
    progress.add(400)
    progress.add(600)
    assert caplog.messages == []
    progress.finish()
    assert caplog.messages[0].startswith("fetched 'm' from s3://bucket/repository: 1 file, 0.0 MB in ")
