"""Counts that several processes see."""

import os
import subprocess
import sys

from halimede.hosting.routers.shared_counts import SharedCounts


def test_another_process_sees_what_was_counted_and_adds_its_own() -> None:
    counts = SharedCounts(2)
    column = counts.take_column()
    counts.put(0, column, 3)
    program = (
        "import sys\n"
        "from halimede.hosting.routers.shared_counts import SharedCounts\n"
        "counts = SharedCounts(2, int(sys.argv[1]))\n"
        "counts.put(1, int(sys.argv[2]), counts.get(0, int(sys.argv[2])) + 4)\n"
    )
    command = [sys.executable, "-c", program, str(counts.descriptor), str(column)]
    subprocess.run(command, pass_fds=(counts.descriptor,), check=True)
    assert counts.total(column) == 10
    assert counts.total(column, without=1) == 3
    counts.close()


def test_a_column_that_is_given_back_is_empty_for_the_next() -> None:
    counts = SharedCounts(2)
    first, second = counts.take_column(), counts.take_column()
    assert first != second
    counts.put(1, first, 5)
    counts.free_column(first)
    assert counts.take_column() == first
    assert counts.total(first) == 0
    counts.close()


def test_a_row_is_cleared_without_the_others() -> None:
    counts = SharedCounts(2)
    column = counts.take_column()
    for row in range(2):
        counts.put(row, column, 1)
    counts.clear_row(0)
    assert [counts.get(row, column) for row in range(2)] == [0, 1]
    counts.close()


def test_memory_that_nobody_writes_takes_none() -> None:
    counts = SharedCounts(64)
    counts.put(63, counts.take_column(), 1)
    assert os.fstat(counts.descriptor).st_blocks * 512 < 1 << 20
    counts.close()
