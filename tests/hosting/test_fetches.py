"""How far models have been fetched, as users see it in logs."""

import asyncio
import logging
from pathlib import Path

import pytest

from halimede.hosting.fetches import Fetches, ObservedSource
from halimede.hosting.identity import EndpointId
from halimede.hosting.store.source import ObjectInfo, Offer, OnProgress

URL = "s3://bucket/model.tar.gz"
MB = 1_000_000
ENDPOINT = EndpointId("123456789012", "eu-west-1", "e")


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Fetches in two steps."""

    async def describe(self, url: str) -> ObjectInfo:
        return ObjectInfo(4 * MB, "etag")

    async def offer(self, url: str) -> Offer:
        return Offer("http://host/offers/token", 4 * MB, "etag", url)

    async def fetch_model(self, url: str, directory: Path, timeout_s: float, on_progress: OnProgress) -> int:
        on_progress(2 * MB, 4 * MB)
        on_progress(4 * MB, 4 * MB)
        return 7


def test_progress_is_told_once_a_second_and_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    fetches = Fetches(tmp_path, clock)
    with caplog.at_level(logging.INFO, "halimede"):
        progress = fetches.begin(ENDPOINT, "v", URL)
        for clock.now, done in ((0.1, 1), (0.9, 2), (1.0, 3), (1.5, 4), (2.1, 5), (2.2, 6)):
            progress(done * MB, 6 * MB)
        fetches.close()

    told = [
        f"fetching {URL}",
        f"fetched 3.0 of 6.0 MB of {URL}",
        f"fetched 5.0 of 6.0 MB of {URL}",
        f"fetched 6.0 of 6.0 MB of {URL}",
    ]
    assert (ENDPOINT.scope.directory(tmp_path) / "e" / "v" / "data-log.log").read_text().splitlines() == told
    assert caplog.messages == [f"endpoint 'e', variant 'v': {text}" for text in told]


def test_fetches_of_a_source_are_told_of_and_passed_on(tmp_path: Path) -> None:
    fetches = Fetches(tmp_path)
    source = ObservedSource(Source(), fetches, ENDPOINT, "v")
    seen: list[tuple[int, int]] = []

    async def fetch() -> int:
        assert (await source.describe(URL)).etag == "etag"
        assert (await source.offer(URL)).name == URL
        return await source.fetch_model(URL, tmp_path / "model", 1.0, lambda *how_far: seen.append(how_far))

    assert asyncio.run(fetch()) == 7
    fetches.close()
    assert seen == [(2 * MB, 4 * MB), (4 * MB, 4 * MB)]
    assert (ENDPOINT.scope.directory(tmp_path) / "e" / "v" / "data-log.log").read_text().splitlines() == [
        f"fetching {URL}",
        f"fetched 4.0 of 4.0 MB of {URL}",
    ]


def test_log_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ENDPOINT.scope.directory(tmp_path).mkdir(parents=True)
    (ENDPOINT.scope.directory(tmp_path) / "e").touch()
    fetches = Fetches(tmp_path)
    fetches.begin(ENDPOINT, "v", URL)(MB, MB)
    fetches.close()
    assert (
        f"cannot write {ENDPOINT.scope.directory(tmp_path) / 'e' / 'v' / 'data-log.log'}: Not a directory"
        in caplog.text
    )
