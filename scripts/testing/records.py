"""What was recorded of tests, by `tests/support/recording.py`, and its summary."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.missing_packages import REASON


@dataclass(frozen=True, slots=True)
class Record:
    """One test.

    Attributes:
        id: pytest's name of it.
        front_ends: how many front ends its servers had.
        outcome: ``passed``, ``failed`` or ``skipped``; ``ended`` if the process ended before it did.
        reason: why it was skipped.
        wall_s, cpu_s: how long it took, with its fixtures, and how much time of processors.
        processes: how many processes it started.
    """

    id: str
    front_ends: int = 1
    outcome: str = "ended"
    reason: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    processes: int = 0

    @property
    def failed(self) -> bool:
        """Whether it failed, or its process ended before it did."""
        return self.outcome in ("failed", "ended")

    def json(self) -> str:
        """A line that `Record(**json.loads(line))` makes it of."""
        return json.dumps(asdict(self))

    @property
    def directory(self) -> str:
        """Its directory, with the number of front ends if there are several."""
        directory = self.id.partition("::")[0].rpartition("/")[0]
        return directory if self.front_ends == 1 else f"{directory} {self.front_ends}"


def read(path: Path, front_ends: int) -> Iterator[Record]:
    """The records of one process."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for index, line in enumerate(lines, 1):
        if "outcome" in line or index == len(lines) or lines[index]["id"] != line["id"]:
            yield Record(front_ends=front_ends, **line)


@dataclass(frozen=True, slots=True)
class Directory:
    """The sum over a directory."""

    name: str
    tests: int
    wall_s: float
    cpu_s: float
    processes: int


def directories(records: Iterable[Record]) -> list[Directory]:
    """The directories, slowest first."""
    members: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        members[record.directory].append(record)
    summed = [
        Directory(
            name,
            len(tests),
            sum(test.wall_s for test in tests),
            sum(test.cpu_s for test in tests),
            sum(test.processes for test in tests),
        )
        for name, tests in members.items()
    ]
    return sorted(summed, key=lambda directory: -directory.wall_s)


def summary(records: list[Record]) -> Iterator[str]:
    """Lines with the reasons of skips, the slowest directory, missing packages, and the number of tests."""
    skipped = Counter(record.reason for record in records if record.outcome == "skipped")
    missing = {reason.removeprefix(REASON): n for reason, n in skipped.items() if reason.startswith(REASON)}
    others = {reason: n for reason, n in skipped.items() if not reason.startswith(REASON)}
    if others:
        yield "Skipped:"
        yield from (
            f"{count:6}  {reason}" for reason, count in sorted(others.items(), key=lambda each: -each[1])
        )
    if slowest := directories(records)[:1]:
        [one] = slowest
        yield f"Slowest directory: {one.name}, {one.tests} tests in {one.wall_s:.0f} s"
    if missing:
        listed = ", ".join(f"{package} ({count})" for package, count in sorted(missing.items()))
        yield f"Left out, modules or tests, as packages are missing: {listed}"
    outcomes = Counter(record.outcome for record in records)
    failed = sum(record.failed for record in records)
    yield f"{outcomes['passed']} passed, {failed} failed, {outcomes['skipped']} skipped"
