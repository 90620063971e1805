"""The table that a reader sees, and the same as JSON."""

import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.workload import Compare, Result, Sample

HEADINGS = (
    "workload",
    "unit",
    "this server",
    "limit",
    "compared",
    "goal",
    "",
    "CPU µs/request: ours",
    "limit",
)


def table(results: Sequence[Result]) -> str:
    """One row a workload: medians with the range in brackets."""
    rows = [HEADINGS, *(row(result) for result in results)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    )


def row(result: Result) -> tuple[str, ...]:
    """The cells of one result."""
    workload = result.workload
    return (
        workload.name,
        workload.unit,
        spread([sample.value for sample in result.ours]),
        spread([sample.value for sample in result.limit]),
        compared(workload.compare, result.comparison),
        ("≥ " if workload.compare is Compare.AT_LEAST else "≤ ") + compared(workload.compare, workload.goal),
        "reached" if result.reached else "missed",
        cpu(result.ours),
        cpu(result.limit),
    )


def compared(compare: Compare, value: float) -> str:
    """A ratio or a difference, as text."""
    match compare:
        case Compare.AT_LEAST:
            return f"{value:.0%}"
        case Compare.AT_MOST:
            return f"{value:.2f}×"
        case Compare.AT_MOST_MORE:
            return f"{value:+.2f}"


def spread(values: Sequence[float]) -> str:
    """`median (lowest–highest)`."""
    return f"{figure(statistics.median(values))} ({figure(min(values))}–{figure(max(values))})"


def figure(value: float) -> str:
    """The value with three digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cpu(samples: Sequence[Sample]) -> str:
    """The median of the CPU times, or a dash where none was taken."""
    times = [sample.cpu_us for sample in samples if sample.cpu_us is not None]
    return figure(statistics.median(times)) if times else "–"


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
                "compare": result.workload.compare.name.lower(),
                "goal": result.workload.goal,
                "comparison": result.comparison,
                "reached": result.reached,
                "ours": samples(result.ours),
                "limit": samples(result.limit),
            }
            for result in results
        ],
    }


def samples(taken: Sequence[Sample]) -> list[dict[str, float | None]]:
    """The samples as plain dictionaries."""
    return [{"value": sample.value, "cpu_us": sample.cpu_us} for sample in taken]
