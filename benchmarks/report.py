"""The table that a reader sees, and the same as JSON."""

import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.workload import Against, Compare, Result, Sample, Workload

OPPONENTS = {Against.LIMIT: "limit", Against.TRITONSERVER: "tritonserver 2.51"}


def table(results: Sequence[Result], against: Against) -> str:
    """The results against that opponent: medians with the range in brackets."""
    opponent = OPPONENTS[against]
    headings = ("workload", "unit", "this server", opponent, "compared", "goal", "")
    rows: list[tuple[str, ...]] = [(*headings, "CPU µs/request: ours", opponent)]
    for result in results:
        if result.workload.against is against:
            rows += rows_of(result)
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, each column as wide as it must be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    )


def rows_of(result: Result) -> list[tuple[str, ...]]:
    """The row of a result, and one more for its CPU times where they have a goal."""
    workload = result.workload
    rows: list[tuple[str, ...]] = [
        (
            workload.name,
            workload.unit,
            spread([sample.value for sample in result.ours]),
            spread([sample.value for sample in result.other]),
            compared(workload, result.comparison),
            goal(workload),
            verdict(result.reached),
            cpu(result.ours),
            cpu(result.other),
        )
    ]
    if workload.cpu_goal is not None:
        rows.append(
            (
                f"{workload.name}, CPU",
                "µs/request",
                spread(cpu_times(result.ours)),
                spread(cpu_times(result.other)),
                "–" if result.cpu_comparison is None else f"{result.cpu_comparison:.2f}×",
                f"≤ {workload.cpu_goal:.2f}×",
                verdict(result.cpu_reached),
                "",
                "",
            )
        )
    return rows


def goal(workload: Workload) -> str:
    """The goal, as text; a dash where there is none."""
    if workload.goal is None:
        return "–"
    return ("≥ " if workload.compare is Compare.AT_LEAST else "≤ ") + compared(workload, workload.goal)


def verdict(reached: bool | None) -> str:
    """Whether the goal was reached, as text; a dash where there is none."""
    return "–" if reached is None else "reached" if reached else "missed"


def compared(workload: Workload, value: float) -> str:
    """A ratio or a difference, as text; a share of a limit is in percent."""
    if workload.compare is Compare.AT_MOST_MORE:
        return f"{value:+.2f}"
    if workload.compare is Compare.AT_LEAST and workload.against is Against.LIMIT:
        return f"{value:.0%}"
    return f"{value:.2f}×"


def spread(values: Sequence[float]) -> str:
    """`median (lowest–highest)`, or a dash where nothing was measured."""
    if not values:
        return "–"
    return f"{figure(statistics.median(values))} ({figure(min(values))}–{figure(max(values))})"


def figure(value: float) -> str:
    """The value with three digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cpu(samples: Sequence[Sample]) -> str:
    """The median of the CPU times, or a dash where none was taken."""
    times = cpu_times(samples)
    return figure(statistics.median(times)) if times else "–"


def cpu_times(samples: Sequence[Sample]) -> list[float]:
    """The CPU times that were taken."""
    return [sample.cpu_us for sample in samples if sample.cpu_us is not None]


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Everything that was measured, for programs."""
    return {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "results": [
            {
                "workload": result.workload.name,
                "unit": result.workload.unit,
                "against": result.workload.against.value,
                "compare": result.workload.compare.name.lower(),
                "goal": result.workload.goal,
                "comparison": result.comparison,
                "reached": result.reached,
                "cpu_goal": result.workload.cpu_goal,
                "cpu_comparison": result.cpu_comparison,
                "cpu_reached": result.cpu_reached,
                "ours": samples(result.ours),
                "other": samples(result.other),
            }
            for result in results
        ],
    }


def samples(taken: Sequence[Sample]) -> list[dict[str, Any]]:
    """The samples as plain dictionaries."""
    return [
        {"value": each.value, "cpu_us": each.cpu_us, **({"parts": dict(each.parts)} if each.parts else {})}
        for each in taken
    ]
