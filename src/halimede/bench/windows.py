"""Windows of time, and the requests whose answers came in each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halimede.bench.errors import BenchError
from halimede.bench.histogram import Histogram, Integers
from halimede.bench.load import DUE, END, ERROR, FIRST, RESPONSES, SENT, Load, Records
from halimede.bench.results import Block

BLOCKS = 10
"""A window is divided into so many blocks."""

_TOLD_REASONS = 3
"""An error names so many reasons of failed requests."""


@dataclass(frozen=True, slots=True)
class Window:
    """What came in a window.

    Attributes:
        blocks: its parts.
        latency, service, first, gaps: see `halimede.bench.results.LevelResult`.
        errors: how many requests failed with each text.
    """

    blocks: tuple[Block, ...]
    latency: Histogram
    service: Histogram
    first: Histogram
    gaps: Histogram
    errors: dict[str, int]

    @property
    def seconds(self) -> float:
        """Its length."""
        return sum(block.seconds for block in self.blocks)

    @property
    def throughput(self) -> float:
        """Requests a second that succeeded."""
        return self.latency.count / self.seconds


class Collector:
    """Takes what the processes tell, and keeps what belongs to later windows."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._requests: list[Integers] = []
        self._gaps: list[Integers] = []
        self._errors: dict[int, str] = {}

    def collect(self) -> Records:
        """What has been told since the last call; it is kept for the window, too."""
        records = self._load.take()
        if len(records.requests):
            self._requests.append(records.requests)
        if len(records.gaps):
            self._gaps.append(records.gaps)
        self._errors.update(records.errors)
        return records

    def window(self, start: int, end: int) -> Window:
        """The window between these times (ns)."""
        self.collect()
        requests = _joined(self._requests, 6)
        gaps = _joined(self._gaps, 2)
        self._requests = [requests[requests[:, END] >= end]]
        self._gaps = [gaps[gaps[:, 0] >= end]]
        inside = requests[(requests[:, END] >= start) & (requests[:, END] < end)]
        gaps = gaps[(gaps[:, 0] >= start) & (gaps[:, 0] < end)]
        good = inside[inside[:, ERROR] == 0]
        return Window(
            _blocks(inside, start, end),
            Histogram.of(good[:, END] - good[:, DUE]),
            Histogram.of(good[:, END] - good[:, SENT]),
            Histogram.of(good[:, FIRST] - good[:, DUE]),
            Histogram.of(gaps[:, 1]),
            self._texts(inside[inside[:, ERROR] != 0][:, ERROR]),
        )

    @property
    def last_end(self) -> int:
        """When the last answer came, of those that are kept; 0 if there is none."""
        return max((int(part[:, END].max()) for part in self._requests if len(part)), default=0)

    def _texts(self, numbers: Integers) -> dict[str, int]:
        found, counts = np.unique(numbers, return_counts=True)
        return {self._errors[int(number)]: int(count) for number, count in zip(found, counts, strict=True)}


def _joined(parts: Sequence[Integers], columns: int) -> Integers:
    return np.concatenate(parts) if parts else np.zeros((0, columns), np.int64)


def _blocks(requests: Integers, start: int, end: int) -> tuple[Block, ...]:
    edges = np.linspace(start, end, BLOCKS + 1)
    places = np.clip(np.searchsorted(edges, requests[:, END], side="right") - 1, 0, BLOCKS - 1)
    blocks = []
    for place in range(BLOCKS):
        inside = requests[places == place]
        good = inside[inside[:, ERROR] == 0]
        latency = Histogram.of(good[:, END] - good[:, DUE])
        seconds = (end - start) / BLOCKS / 1e9
        blocks.append(Block(seconds, latency, len(inside) - len(good), int(good[:, RESPONSES].sum())))
    return tuple(blocks)


def stable(windows: Sequence[Window], tolerance: float, percentile: float | None) -> bool:
    """Whether rate and latency of the windows are all within that share of their averages."""
    rates = np.array([window.throughput for window in windows])
    times = np.array(
        [
            window.latency.mean if percentile is None else window.latency.percentile(percentile)
            for window in windows
        ]
    )
    return all(
        values.mean() > 0 and bool((abs(values - values.mean()) <= tolerance * values.mean()).all())
        for values in (rates, times)
    )


def need_success(window: Window) -> None:
    """Return unless all requests of the window failed.

    Raises:
        BenchError: they did; the text has the most frequent reasons.
    """
    if window.errors and not window.latency.count:
        reasons = sorted(window.errors.items(), key=lambda item: -item[1])
        total = sum(window.errors.values())
        failed = f"All {total} requests failed" if total > 1 else "The only request failed"
        if len(reasons) == 1:
            raise BenchError(f"{failed}: {reasons[0][0]}")
        told = [f"{count} of them: {text}" for text, count in reasons[:_TOLD_REASONS]]
        others = sum(count for _, count in reasons[_TOLD_REASONS:])
        told += [f"{others} of them: other reasons"] if others else []
        raise BenchError(f"{failed}. " + "; ".join(told))
