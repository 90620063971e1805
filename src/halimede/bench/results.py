"""What a measurement brought, and its form in a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

from halimede.bench.errors import BenchError
from halimede.bench.histogram import Histogram
from halimede.bench.server_side import ServerSide

FORM = "halimede-bench-1"
"""The first member of a file says that it is one."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a window, so short that there are some ten in each.

    Attributes:
        seconds: its length.
        latency: of the requests that succeeded, from the time when each was due.
        errors: requests that failed.
        responses: of all requests that succeeded.
    """

    seconds: float
    latency: Histogram
    errors: int
    responses: int


@dataclass(frozen=True, slots=True)
class LevelResult:
    """What one level of load brought.

    Attributes:
        name: as tables have it.
        figure: concurrency or rate.
        open_loop: requests were sent at their times, whatever became of the earlier ones.
        blocks: consecutive parts of the windows that count.
        stable: the windows that count differ by no more than was allowed.
        latency: from the time when each request was due until its answer was whole.
        service: from the time when each request was sent; the same in a closed loop.
        first: until the first response.
        gaps: between responses of a request.
        errors: how many requests failed with each text.
        server: what the server says of its models.
        busiest_process: the share of a core that the busiest process used that sent the load.
        backlog: requests that were due and had not been sent, at the end.
        rows: rows of each request.
    """

    name: str
    figure: float
    open_loop: bool
    blocks: tuple[Block, ...]
    stable: bool
    latency: Histogram
    service: Histogram
    first: Histogram
    gaps: Histogram
    errors: Mapping[str, int]
    server: tuple[ServerSide, ...] = ()
    busiest_process: float = 0.0
    backlog: int = 0
    rows: int = 1

    @property
    def seconds(self) -> float:
        """How long the windows were."""
        return sum(block.seconds for block in self.blocks)

    @property
    def requests(self) -> int:
        """Requests that succeeded."""
        return self.latency.count

    @property
    def failures(self) -> int:
        """Requests that failed."""
        return sum(self.errors.values())

    @property
    def throughput(self) -> float:
        """Requests a second that succeeded."""
        return self.requests / self.seconds if self.seconds else 0.0

    @property
    def inferences(self) -> float:
        """Rows a second."""
        return self.throughput * self.rows

    @property
    def responses(self) -> int:
        """Responses; streams have several for a request."""
        return sum(block.responses for block in self.blocks)

    def to_json(self) -> dict[str, Any]:
        """Plain values; percentiles and rates are there for readers, and come from the histograms."""
        return {
            "name": self.name,
            "figure": self.figure,
            "open_loop": self.open_loop,
            "stable": self.stable,
            "seconds": self.seconds,
            "requests": self.requests,
            "requests_per_second": self.throughput,
            "inferences_per_second": self.inferences,
            "failures": self.failures,
            "latency_ms": summary(self.latency),
            "errors": dict(self.errors),
            "busiest_process": self.busiest_process,
            "backlog": self.backlog,
            "rows": self.rows,
            "server": [each.to_json() for each in self.server],
            "latency": self.latency.to_json(),
            "service": self.service.to_json(),
            "first": self.first.to_json(),
            "gaps": self.gaps.to_json(),
            "blocks": [
                {
                    "seconds": block.seconds,
                    "errors": block.errors,
                    "responses": block.responses,
                    "latency": block.latency.to_json(),
                }
                for block in self.blocks
            ],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The result that `to_json` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not of that form.
        """
        blocks = tuple(
            Block(
                float(block["seconds"]),
                Histogram.from_json(block["latency"]),
                int(block["errors"]),
                int(block["responses"]),
            )
            for block in document["blocks"]
        )
        parts = {
            name: Histogram.from_json(document[name]) for name in ("latency", "service", "first", "gaps")
        }
        return cls(
            str(document["name"]),
            float(document["figure"]),
            bool(document["open_loop"]),
            blocks,
            bool(document["stable"]),
            **parts,
            errors={str(text): int(count) for text, count in document["errors"].items()},
            server=tuple(ServerSide(**each) for each in document["server"]),
            busiest_process=float(document["busiest_process"]),
            backlog=int(document["backlog"]),
            rows=int(document["rows"]),
        )


PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def summary(histogram: Histogram) -> dict[str, float]:
    """Mean, extremes and percentiles in ms."""
    values = {f"p{percent:g}": histogram.percentile(percent) / 1e6 for percent in PERCENTILES}
    return {
        "mean": histogram.mean / 1e6,
        "deviation": histogram.deviation / 1e6,
        "min": histogram.minimum / 1e6,
        **values,
        "max": histogram.maximum / 1e6,
    }


@dataclass(frozen=True, slots=True)
class Result:
    """A whole measurement.

    Attributes:
        title: what was measured, in a few words.
        settings: how, for readers.
        levels: in the order in which they were measured.
    """

    title: str
    settings: Mapping[str, str] = field(default_factory=dict)
    levels: tuple[LevelResult, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "form": FORM,
            "title": self.title,
            "settings": dict(self.settings),
            "levels": [level.to_json() for level in self.levels],
        }

    def write(self, path: Path) -> None:
        """Write it into a JSON file.

        Raises:
            BenchError: it cannot be written.
        """
        write_text(path, orjson.dumps(self.to_json(), option=orjson.OPT_INDENT_2).decode())


def write_text(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        BenchError: it cannot be written.
    """
    try:
        path.write_text(text)
    except OSError as error:
        raise BenchError(f"{path} cannot be written: {error.strerror}") from None


def read(path: Path) -> Result:
    """The measurement in a JSON file.

    Raises:
        BenchError: it cannot be read, or holds something else.
    """
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BenchError(f"{path} cannot be read: {error}") from None
    try:
        if document["form"] != FORM:
            raise KeyError("form")
        levels = tuple(LevelResult.from_json(level) for level in document["levels"])
        return Result(str(document["title"]), document["settings"], levels)
    except (KeyError, TypeError, ValueError):
        raise BenchError(f"{path} is no result of 'halimede bench --json'") from None
