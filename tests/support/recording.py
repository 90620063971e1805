"""A plugin of pytest that appends a line of JSON about each test to the file that TEST_RECORD names.

    TEST_RECORD=FILE python -m pytest -p tests.support.recording

A line has the test's `id`, `outcome` (passed, failed, skipped), `reason` (why it was skipped), `wall_s`, `cpu_s` (of
this process and of those that it started and waited for) and `processes` (how many this process started). Another line
before each test has only its `id`, so that the last line names the test that ended the process.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "tests.support.forks.fork"}


class Recorder:
    """What was measured since the last line was written."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115 - open as long as the process runs
        self._processes = 0
        self._report: dict[str, str] = {}
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _STARTS:
            self._processes += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure a test with its fixtures."""
        self._write(id=item.nodeid)
        self._report = {}
        processes, wall_s, cpu_s = self._processes, time.monotonic(), _cpu_s()
        try:
            return (yield)
        finally:
            self._write(
                id=item.nodeid,
                wall_s=round(time.monotonic() - wall_s, 3),
                cpu_s=round(_cpu_s() - cpu_s, 3),
                processes=self._processes - processes,
                **{"outcome": "passed", **self._report},
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what became of the test: a failure, also of its fixtures, or a skip."""
        if report.failed or (report.skipped and "outcome" not in self._report):
            self._report = _outcome(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write that a module was skipped or cannot be imported: it counts as a test."""
        if report.outcome != "passed":
            self._write(id=report.nodeid, wall_s=0, cpu_s=0, processes=0, **_outcome(report))

    def _write(self, **line: object) -> None:
        self._file.write(json.dumps(line) + "\n")


def _outcome(report: pytest.TestReport | pytest.CollectReport) -> dict[str, str]:
    if report.outcome == "failed":
        return {"outcome": "failed"}
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return {"outcome": "skipped", "reason": reason.removeprefix("Skipped: ")}


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def pytest_configure(config: pytest.Config) -> None:
    """Record to the file that TEST_RECORD names."""
    config.pluginmanager.register(Recorder(os.environ["TEST_RECORD"]))
