"""Write where the time of the tests goes to CONTRIBUTING.md, and to tests/times.json, which decides their order.

    python -m scripts.testing.times RECORD

RECORD is what `python -m scripts.testing.run --record RECORD` wrote.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.testing.records import Record, directories
from scripts.testing.units import ROOT, TIMES

PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- times: written by `make test-times` -->\n", "<!-- end of times -->"
SLOW = 20
"""Directories with a row of their own."""
SLOWEST = 10
"""Tests with a row of their own."""


def main() -> int:
    """Write both files."""
    records = [Record(**json.loads(line)) for line in Path(sys.argv[1]).read_text().splitlines()]
    TIMES.write_text(
        json.dumps(
            {
                one.name: round(one.wall_s, 1)
                for one in sorted(directories(records), key=lambda one: one.name)
            },
            indent=1,
        )
        + "\n"
    )
    page = PAGE.read_text()
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    reasons = dict(re.findall(r"^\| `([^`]+)` \|.*\| ([^|]*) \|$", page[before:after], re.MULTILINE))
    PAGE.write_text(page[:before] + "\n".join(table(records, reasons)) + "\n" + page[after:])
    return 0


def table(records: list[Record], reasons: dict[str, str]) -> Iterator[str]:
    """The lines of both tables; what somebody wrote about why a test is slow is kept."""
    yield "\n| Directory of `tests/` | Tests | Seconds | CPU seconds | Processes started |\n|---|---|---|---|---|"
    all_of = directories(records)
    for one in all_of[:SLOW]:
        yield f"| `{one.name}` | {one.tests:,} | {one.wall_s:.0f} | {one.cpu_s:.0f} | {one.processes} |"
    rest = all_of[SLOW:]
    for name, group in ((f"{len(rest)} more", rest), ("all", all_of)):
        sums = [
            sum(each)
            for each in zip(*((d.tests, d.wall_s, d.cpu_s, d.processes) for d in group), strict=True)
        ]
        yield f"| {name} | {sums[0]:,} | {sums[1]:.0f} | {sums[2]:.0f} | {sums[3]} |"
    yield "\n| Test | Seconds | CPU seconds | Why |\n|---|---|---|---|"
    for record in sorted(records, key=lambda record: -record.wall_s)[:SLOWEST]:
        name = record.id.removeprefix("tests/")
        yield f"| `{name}` | {record.wall_s:.1f} | {record.cpu_s:.1f} | {reasons.get(name, '')} |"
    yield ""


if __name__ == "__main__":
    sys.exit(main())
