import asyncio
import logging
from pathlib import Path

import pytest

from halimede.frontends.request_log.entry import Entry
from halimede.frontends.request_log.log import RequestLog
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until


def entry(path: str, ms: int) -> Entry:
    made = Entry("HTTP", "127.0.0.1:1", "GET", path, None, 0)
    made.end(200)
    made.began_ns = 0
    made.ended_ns = ms * 1_000_000
    return made


@pytest.mark.timeout(30)
def test_lines_are_written_within_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def run() -> None:
        log = RequestLog("text", path, 0)
        log.add(entry("/a", 1))
        while not path.read_bytes():  # noqa: ASYNC110 - a thread writes it
            await asyncio.sleep(0)
        log.close()

    asyncio.run(run())
    assert '"GET /a" 200' in path.read_text()


def test_many_lines_are_written_in_order_and_none_is_lost(tmp_path: Path) -> None:
    async def run() -> None:
        log = RequestLog("text", tmp_path / "log", 0)
        for number in range(1000):
            log.add(entry(f"/{number}", 1))
        log.close()

    asyncio.run(run())
    wait_until(
        lambda: complete_lines(tmp_path / "log").count("\n") == 1000, "the process that writes the lines"
    )
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.split('"')[1] for line in lines] == [f"GET /{number}" for number in range(1000)]


def test_only_slow_requests_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        log = RequestLog("none", None, 100)
        log.add(entry("/fast", 99))
        log.add(entry("/slow", 100))
        log.close()

    with caplog.at_level(logging.INFO, "halimede"):
        asyncio.run(run())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Slow request: HTTP GET /slow took 100.000 ms: other 100.000 ms; status 200" in caplog.text
