"""How figures look in tables."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table

_ANY_WIDTH = 10_000


def number(value: float | None) -> str:
    """A figure with three digits, - for none."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def share(value: float | None) -> str:
    """A part of a whole as per cent, - for none."""
    return "-" if value is None else f"{value:.0%}"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table that may leave out figures.

    Attributes:
        names: the first cells.
        figures: heading → cell, of numbers, in the order of the columns; all rows have the same headings.
        words: heading → cell, of words, of the last columns; likewise.
    """

    names: Sequence[RenderableType]
    figures: Mapping[str, RenderableType]
    words: Mapping[str, RenderableType] = field(default_factory=dict)


class FittingTable:
    """A table that moves its columns together, and leaves out figures, where the terminal is too narrow for all.

    Args:
        names: headings of the first columns.
        rows: at least one.
        spare: headings of figures that may be left out, the first one first.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
        self._names = names
        self._rows = rows
        self._spare = spare

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table with as many figures as fit."""
        unbounded = options.update_width(_ANY_WIDTH)
        made = None
        for count in range(len(self._spare) + 1):
            for padding in (1, 0):
                made = self._without(self._spare[:count], padding)
                if Measurement.get(console, unbounded, made).maximum <= options.max_width:
                    yield made
                    return
        assert made is not None
        yield made

    def _without(self, left_out: Collection[str], padding: int) -> Table:
        first = self._rows[0]
        headings = [each for each in first.figures if each not in left_out]
        made = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, padding))
        for place, heading in enumerate(self._names):
            made.add_column(heading, overflow="fold", min_width=12 if not place else None)
        for heading in headings:
            made.add_column(heading, justify="right", no_wrap=True)
        for heading in first.words:
            made.add_column(heading, overflow="fold")
        for row in self._rows:
            made.add_row(*row.names, *(row.figures[each] for each in headings), *row.words.values())
        return made
