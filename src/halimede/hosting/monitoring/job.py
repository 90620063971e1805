"""A monitoring job, in a process of its own: ``python -m halimede.hosting.monitoring.job PLAN``.

PLAN is a file of JSON (`Plan`). Captured files come on standard input, one after the other (`captured`). What is found
goes into a directory: `statistics.json`, `constraints.json`, `constraint_violations.json` and `report.html` as the
job's output, and `result.json` for whoever started it. What it prints is its log.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import orjson

from halimede.hosting.monitoring.captured import Captured, CutOffError
from halimede.hosting.monitoring.constraints_file import (
    Constraints,
    read_constraints,
    write_constraints,
    write_violations,
)
from halimede.hosting.monitoring.features import Feature
from halimede.hosting.monitoring.statistics_file import BaselineError, read_statistics, write_statistics
from halimede.hosting.monitoring.table import MAX_COLUMNS, Table, renamed

NO_DATA = "Job inputs had no data"
"""AWS's words."""

OUTPUTS = ("statistics.json", "constraints.json", "constraint_violations.json", "report.html")
RESULT = "result.json"

_NICENESS = 10
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job is to do. Times are ISO 8601.

    Attributes:
        endpoint, schedule: for the report.
        begin, end: records of this window count; "" for all.
        statistics, constraints: paths of the baseline's files; "" for none.
        baseline: what the report calls the baseline.
        output: an empty directory.
    """

    endpoint: str
    schedule: str
    begin: str
    end: str
    statistics: str
    constraints: str
    baseline: str
    output: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """The plan in a file."""
        return cls(**orjson.loads(path.read_bytes()))

    def write(self, path: Path) -> None:
        """Put it into a file."""
        path.write_bytes(orjson.dumps(asdict(self)))


@dataclass(frozen=True, slots=True)
class ColumnMetrics:
    """What CloudWatch is told of a column.

    Attributes:
        name: the column's.
        present, missing: how many of its values are there, and how many are not.
        total, least, most: of its numbers; None if it has none.
        drift: how far it is from the baseline; None if that cannot be said.
    """

    name: str
    present: int
    missing: int
    total: float | None = None
    least: float | None = None
    most: float | None = None
    drift: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What came out.

    Attributes:
        failure: why the job failed; "" if it did not.
        records: how many records were read.
        violations: how many constraints are violated.
        emits_metrics: whether there are to be metrics.
        columns: what the metrics are.
    """

    failure: str = ""
    records: int = 0
    violations: int = 0
    emits_metrics: bool = True
    columns: tuple[ColumnMetrics, ...] = ()

    @classmethod
    def read(cls, directory: Path) -> Self:
        """What a job has put into its directory.

        Raises:
            OSError, ValueError, TypeError: it did not come to its end.
        """
        document: Mapping[str, Any] = orjson.loads((directory / RESULT).read_bytes())
        columns = tuple(ColumnMetrics(**each) for each in document["columns"])
        return cls(**{**document, "columns": columns})

    def write(self, directory: Path) -> None:
        """Tell who started the job."""
        (directory / RESULT).write_bytes(orjson.dumps(asdict(self)))


def run(plan: Plan, lines: Iterable[bytes]) -> Result:
    """Do what a plan says with a stream of captured files."""
    features = statistics = constraints = None
    try:
        if plan.statistics:
            statistics = read_statistics(Path(plan.statistics).read_bytes(), "the baseline's statistics")
        if plan.constraints:
            constraints = read_constraints(Path(plan.constraints).read_bytes(), "the baseline's constraints")
    except BaselineError as error:
        return Result(str(error))
    begin, end = (datetime.fromisoformat(text) if text else None for text in (plan.begin, plan.end))
    captured, table = Captured(begin, end), Table()
    for record in captured.records(lines):
        table.add_record(record)
    notes = _notes(captured, table)
    _say(
        f"{captured.files} files, {table.records} records of {plan.begin or 'any time'} to {plan.end or 'now'}"
    )
    for text in (*notes, *captured.examples[:_SHOWN]):
        _say(text)
    if not table.records:
        return Result(NO_DATA)
    known = [*(constraints.features if constraints is not None else statistics or {})]
    features = renamed(table.features(known), known)
    if not features:
        reasons = "; ".join(f"{why} ({count} times)" for why, count in table.undecodable.most_common(2))
        return Result(f"None of the {table.records} records has a body that can be read: {reasons}")
    # scipy is imported when it is needed: it takes half a second
    from halimede.hosting.monitoring.comparison import compare
    from halimede.hosting.monitoring.report import Heading, report

    comparisons = compare(features, statistics, constraints)
    violations = [violation for each in comparisons for violation in each.violations]
    for violation in violations:
        _say(f"{violation.feature}: {violation.check}: {violation.description}")
    heading = Heading(
        plan.endpoint,
        plan.schedule,
        _window(begin, end),
        plan.baseline if known else "",
        table.records,
        notes,
    )
    output = Path(plan.output)
    suggested = Constraints.suggested(features)
    for name, content in zip(
        OUTPUTS,
        (
            write_statistics(features),
            write_constraints(suggested),
            write_violations(violations),
            report(heading, comparisons).encode(),
        ),
        strict=True,
    ):
        (output / name).write_bytes(content)
    drifts = {each.name: each.drift for each in comparisons}
    metrics = [_metrics_of(feature, drifts.get(feature.name)) for feature in features]
    emits = constraints is None or constraints.config.emits_metrics
    return Result("", table.records, len(violations), emits, tuple(metrics))


def _metrics_of(feature: Feature, drift: float | None) -> ColumnMetrics:
    numbers = feature.numbers
    if numbers is None:
        return ColumnMetrics(feature.name, feature.present, feature.missing, drift=drift)
    return ColumnMetrics(
        feature.name, feature.present, feature.missing, numbers.total, numbers.least, numbers.most, drift
    )


def _notes(captured: Captured, table: Table) -> list[str]:
    """What was not read, a sentence each."""
    notes = []
    if captured.unreadable:
        noun = "line is no record and was" if captured.unreadable == 1 else "lines are no records and were"
        notes.append(f"{captured.unreadable:,} {noun} skipped, as of files that were cut off.")
    for why, count in table.undecodable.most_common(_SHOWN):
        notes.append(f"{count:,} bodies could not be read: {why}")
    if table.left_out:
        named = ", ".join(sorted(table.left_out)[:_SHOWN])
        notes.append(
            f"Only the first {MAX_COLUMNS} columns were looked at; left out are {named} and maybe more."
        )
    return notes


def _window(begin: datetime | None, end: datetime | None) -> str:
    if begin is None or end is None:
        return "all that was captured"
    begin, end = begin.astimezone(UTC), end.astimezone(UTC)
    form = "%H:%M" if begin.second == end.second == 0 else "%H:%M:%S"
    last = format(end, form) if begin.date() == end.date() else f"{end:%Y-%m-%d} {end:{form}}"
    return f"{begin:%Y-%m-%d} {begin:{form}} to {last} UTC"


def _say(text: str) -> None:
    sys.stdout.write(text.replace("\n", " ") + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the plan that the command line names; the exit status."""
    plan = Plan.read(Path(sys.argv[1]))
    os.nice(_NICENESS)
    try:
        result = run(plan, sys.stdin.buffer)
    except CutOffError:
        _say("the host has ended before it had given all files")
        return 1
    _say(result.failure or f"{result.violations} violations")
    result.write(Path(plan.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
