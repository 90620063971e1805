import logging

import pytest

from halimede.cli.loading import LoadingTimes, StartFailures
from halimede.core.clock import SECOND, VirtualClock
from halimede.engine.memory.ledger import Holding


@pytest.mark.parametrize(("size", "memory"), [(0, ""), (12_340_000, ", 12.3 MB")])
def test_a_version_is_logged_with_its_loading_time_and_memory(
    size: int, memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "halimede")
    clock = VirtualClock()
    times = LoadingTimes(clock, [Holding("digits", 3, size), Holding("digits", 2, 5), Holding("other", 3, 5)])
    times("digits", 3, "LOADING", "")
    clock.advance(3 * SECOND // 2)
    times("digits", 3, "READY", "")
    times("digits", 3, "UNLOADING", "")
    times("digits", None, "UNAVAILABLE", "no versions")
    assert caplog.messages == [f"'digits' version 3 is READY after 1.50 s{memory}"]


def test_a_version_that_fails_has_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "halimede")
    times = LoadingTimes(VirtualClock(), [Holding("digits", 3, 1_000_000)])
    times("digits", 3, "LOADING", "")
    times("digits", 3, "UNAVAILABLE", "broken")
    assert caplog.messages == ["'digits' version 3 is UNAVAILABLE after 0.00 s"]


def test_the_reasons_of_a_failed_start_are_told_last(caplog: pytest.LogCaptureFixture) -> None:
    failures = StartFailures()
    failures("a", 1, "LOADING", "")
    failures("a", 1, "UNAVAILABLE", "no file")
    failures("a", 2, "UNAVAILABLE", "unloaded")
    failures("b", None, "UNAVAILABLE", "no versions")
    failures("c", 1, "UNAVAILABLE", "first attempt")
    failures("c", 1, "READY", "")
    failures.add("something else")
    failures.log()
    assert caplog.messages == [
        "failed to load all models; --exit-on-error=false would serve the others",
        "something else",
        "failed to load 'a' version 1: no file",
        "failed to load 'b': no versions",
    ]
