import logging
import sys

from halimede.frontends.recent_logs import LONGEST, RecentLogs


def logged(kept: int = 10) -> tuple[logging.Logger, RecentLogs]:
    recent = RecentLogs(kept)
    logger = logging.getLogger("tests of recent logs")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers[:] = [recent]
    return logger, recent


def test_records_are_numbered_and_the_oldest_are_forgotten() -> None:
    logger, recent = logged(kept=3)
    assert (recent.last, recent.after(0)) == (0, [])
    for number in range(5):
        logger.info("message %d", number)
    assert recent.last == 5
    assert [(record.number, record.message) for record in recent.after(0)] == [
        (3, "message 2"),
        (4, "message 3"),
        (5, "message 4"),
    ]
    assert [record.number for record in recent.after(4)] == [5]
    assert recent.after(5) == []


def test_a_record_tells_where_it_is_from_and_what_it_is_about() -> None:
    logger, recent = logged()
    logger.warning("slow", extra={"model": "digits", "table": "a table"})
    try:
        raise ValueError("what was wrong")
    except ValueError:
        logger.error("failed", exc_info=sys.exc_info())
    warning, error = recent.after(0)
    assert (warning.level, warning.model, warning.details) == ("WARNING", "digits", "a table")
    assert warning.place.startswith("test_recent_logs.py:")
    assert "ValueError: what was wrong" in error.details


def test_long_messages_are_cut_and_arguments_that_do_not_fit_do_no_harm() -> None:
    logger, recent = logged()
    logger.info("x" * 2 * LONGEST)
    logger.info("%d", "no number")
    long, odd = recent.after(0)
    assert len(long.message) == LONGEST
    assert odd.message == "%d"
