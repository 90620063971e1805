"""What is shown: a server or a host, as it was when it was last looked at."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rich.console import RenderableType

from halimede.top.host_view import host_view
from halimede.top.source import HostSource, ServerSource
from halimede.top.view import view

T = TypeVar("T")


class Screen(Generic[T]):
    """What happened between the last two looks.

    Args:
        snapshot: asks for the figures; raises a BenchError if they cannot be had.
        draw: draws what happened between two snapshots, in at most so many rows; None for all.

    Raises:
        BenchError: the first figures cannot be had.
    """

    def __init__(self, snapshot: Callable[[], T], draw: Callable[[T, T, int | None], RenderableType]) -> None:
        self._snapshot = snapshot
        self._draw = draw
        self._before = self._after = snapshot()

    def look(self) -> None:
        """Ask for the figures.

        Raises:
            BenchError: they cannot be had; those that were there stay.
        """
        latest = self._snapshot()
        self._before, self._after = self._after, latest

    def drawn(self, most: int | None) -> RenderableType:
        """The figures, in at most so many rows; None for all."""
        return self._draw(self._before, self._after, most)


def screen_of(address: str, source: ServerSource | HostSource) -> Screen[Any]:
    """What shows a server or a host.

    Raises:
        BenchError: it cannot be reached, or does not answer as expected.
    """
    if isinstance(source, HostSource):
        return Screen(
            source.snapshot, lambda before, after, most: host_view(address, before, after, most=most)
        )
    return Screen(
        source.snapshot,
        lambda before, after, most: view(address, before, after, complete=source.complete, most=most),
    )
