import logging

import pytest

from halimede.core.clock import SECOND, VirtualClock
from halimede.engine.cache.bypass import FIRST_PAUSE_NS, LONGEST_PAUSE_NS, Bypass


def test_what_works_is_always_tried() -> None:
    bypass = Bypass("it", VirtualClock())
    assert bypass.admits()
    bypass.worked()
    assert bypass.admits()
    assert not bypass.open


def test_after_a_failure_it_is_left_out_for_a_growing_while() -> None:
    clock = VirtualClock()
    bypass = Bypass("it", clock)
    bypass.admits()
    bypass.failed("gone")
    pause = FIRST_PAUSE_NS
    while pause < LONGEST_PAUSE_NS:
        clock.advance(pause - 1)
        assert not bypass.admits()
        clock.advance(1)
        assert bypass.admits()
        assert not bypass.admits()  # one attempt at a time
        bypass.failed("gone")
        pause = min(2 * pause, LONGEST_PAUSE_NS)
    clock.advance(LONGEST_PAUSE_NS)
    assert bypass.admits()
    bypass.worked()
    assert bypass.admits()
    assert bypass.admits()
    bypass.failed("gone again")
    clock.advance(FIRST_PAUSE_NS)
    assert bypass.admits()


def test_attempts_that_were_under_way_do_not_make_the_pause_longer() -> None:
    clock = VirtualClock()
    bypass = Bypass("it", clock)
    for _ in range(20):
        bypass.admits()
    for _ in range(20):
        bypass.failed("gone")
    clock.advance(FIRST_PAUSE_NS)
    assert bypass.admits()
    bypass.abandoned()
    assert bypass.admits()


def test_each_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    bypass = Bypass("the thing", clock)
    with caplog.at_level(logging.INFO, "halimede"):
        for _ in range(5):
            bypass.admits()
            bypass.failed("connection refused")
            clock.advance(40 * SECOND)
        for _ in range(5):
            bypass.admits()
            bypass.worked()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the thing failed, and is left out until it works again: connection refused"),
        ("INFO", "the thing works again"),
    ]
