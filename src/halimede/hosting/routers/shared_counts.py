"""Counts that all processes see: a row for each router, which alone writes it, and a column for each instance.

Each number is eight bytes at a multiple of eight, which processors write and read as one.
"""

import mmap
import os

COLUMNS = 1 << 16
"""More instances cannot be told apart. Memory that is never written takes none."""

CLOSED = 0
"""The column in which a router counts the connections that it has had and has no more."""

_SIZE = 8


class SharedCounts:
    """The counts."""

    def __init__(self, rows: int, descriptor: int | None = None) -> None:
        """Counts for so many routers.

        Args:
            rows: how many there are.
            descriptor: those that another process has made; new ones, all zero, if it is left out.
        """
        size = rows * COLUMNS * _SIZE
        if descriptor is None:
            descriptor = os.memfd_create("halimede-counts", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self._rows = range(rows)
        self._map = mmap.mmap(descriptor, size)
        self._numbers = memoryview(self._map).cast("q")
        self._free: list[int] = []
        self._next = CLOSED + 1

    def take_column(self) -> int:
        """A column that nobody else has, with zeros. Only one process may ask for columns."""
        if self._free:
            return self._free.pop()
        if self._next == COLUMNS:
            raise RuntimeError(f"there are more than {COLUMNS - 1} instances")
        self._next += 1
        return self._next - 1

    def free_column(self, column: int) -> None:
        """Nobody counts in a column any more."""
        for row in self._rows:
            self.put(row, column, 0)
        self._free.append(column)

    def get(self, row: int, column: int) -> int:
        """What a router has counted."""
        return self._numbers[row * COLUMNS + column]

    def put(self, row: int, column: int, count: int) -> None:
        """A router has counted so many."""
        self._numbers[row * COLUMNS + column] = count

    def total(self, column: int, without: int = -1) -> int:
        """What all routers together have counted, or all but one."""
        numbers = self._numbers
        return sum([numbers[row * COLUMNS + column] for row in self._rows if row != without])

    def clear_row(self, row: int) -> None:
        """A router is gone."""
        begin = row * COLUMNS
        for column in range(self._next):
            self._numbers[begin + column] = 0

    def close(self) -> None:
        """Give the memory back."""
        self._numbers.release()
        self._map.close()
        os.close(self.descriptor)
