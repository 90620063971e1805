"""How many lines clients can make the host log."""

from halimede.hosting.line_limit import INTERVAL_S, LINES, LineLimit


def test_a_few_lines_a_second_are_logged_and_the_others_counted() -> None:
    now = 100.0
    limit = LineLimit(lambda: now)
    assert [limit.admit() for _ in range(LINES + 3)] == [""] * LINES + [None] * 3
    now += INTERVAL_S / 2
    assert limit.admit() is None
    now += INTERVAL_S / 2
    assert limit.admit() == " (4 more such lines were not logged)"
    assert limit.admit() == ""
