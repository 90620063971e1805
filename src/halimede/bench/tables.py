"""The figures of a measurement as rows of tables, and as CSV."""

import csv
import io
from collections.abc import Sequence

from halimede.bench.plots import number
from halimede.bench.results import PERCENTILES, LevelResult, Result

Table = tuple[list[str], list[list[str]]]
"""Headings and rows."""


def latencies(result: Result, percentile: float | None = None) -> Table:
    """Rates and latencies, a row for each level; a percentile may be added to the usual ones."""
    wanted = sorted({50.0, 90.0, 95.0, 99.0, percentile or 99.0})
    streams = any(level.gaps.count for level in result.levels)
    rows_differ = any(level.rows != 1 for level in result.levels)
    headings = ["load", "requests/s"]
    headings += ["rows/s"] if rows_differ else []
    headings += ["mean ms", *(f"p{percent:g} ms" for percent in wanted), "max ms"]
    headings += ["first p50 ms", "first p99 ms", "gap p50 ms", "gap p99 ms", "responses/s"] if streams else []
    headings += ["failed"]
    rows = []
    for level in result.levels:
        row = [level.name, number(level.throughput)]
        row += [number(level.inferences)] if rows_differ else []
        row += [_ms(level.latency.mean), *(_ms(level.latency.percentile(percent)) for percent in wanted)]
        row += [_ms(level.latency.maximum)]
        if streams:
            row += [_ms(each.percentile(p)) for each in (level.first, level.gaps) for p in (50, 99)]
            row += [number(level.responses / level.seconds)]
        rows.append([*row, str(level.failures)])
    return headings, rows


def server_sides(result: Result) -> Table:
    """What the server says, a row for each level and model."""
    headings = ["load", "model", "requests", "batch", "in the server µs"]
    headings += ["queue µs", "input µs", "compute µs", "output µs", "cache hits"]
    rows = [
        [
            level.name,
            f"{each.model} {each.version}",
            str(each.requests),
            number(round(each.batch, 2)),
            *(
                f"{value:,.0f}"
                for value in (
                    each.request_us,
                    each.queue_us,
                    each.compute_input_us,
                    each.compute_infer_us,
                    each.compute_output_us,
                )
            ),
            str(each.cache_hits),
        ]
        for level in result.levels
        for each in level.server
    ]
    return headings, rows


def remarks(result: Result) -> list[str]:
    """What a reader of the figures has to know."""
    told = []
    for level in result.levels:
        if not level.stable:
            told.append(f"{level.name}: the windows differ too much; the figures are of the last ones.")
        if level.busiest_process > 0.85:
            told.append(
                f"{level.name}: a process that sends the load used {level.busiest_process:.0%} of a core, so that the "
                "figures may be the client's: give more with --processes."
            )
        if level.open_loop and level.throughput + level.failures / level.seconds < 0.95 * level.figure:
            told.append(
                f"{level.name}: the server did not keep up, and {level.backlog} requests were still to be sent at the "
                "end. Latencies count from when requests were due, and grow as long as this goes on."
            )
        for text, count in sorted(level.errors.items(), key=lambda item: -item[1]):
            told.append(f"{level.name}: {count} requests failed: {text}")
    return told


def as_csv(result: Result) -> str:
    """A line for each level, with times in µs."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        [
            "Load",
            "Figure",
            "Inferences/Second",
            "Requests/Second",
            "Failed",
            "Client Mean",
            *(f"p{percent:g} latency" for percent in PERCENTILES),
            "Max latency",
            "First response p50",
            "First response p99",
            "Server Queue",
            "Server Compute Input",
            "Server Compute Infer",
            "Server Compute Output",
        ]
    )
    for level in result.levels:
        writer.writerow(_csv_row(level))
    return buffer.getvalue()


def _csv_row(level: LevelResult) -> Sequence[object]:
    times: Sequence[float] = ()
    if level.server:
        [first, *_] = level.server
        times = (first.queue_us, first.compute_input_us, first.compute_infer_us, first.compute_output_us)
    return [
        level.name,
        f"{level.figure:g}",
        f"{level.inferences:.2f}",
        f"{level.throughput:.2f}",
        level.failures,
        f"{level.latency.mean / 1000:.1f}",
        *(f"{level.latency.percentile(percent) / 1000:.1f}" for percent in PERCENTILES),
        f"{level.latency.maximum / 1000:.1f}",
        f"{level.first.percentile(50) / 1000:.1f}",
        f"{level.first.percentile(99) / 1000:.1f}",
        *(f"{time:.1f}" for time in times),
    ]


def _ms(nanoseconds: float) -> str:
    return number(float(f"{nanoseconds / 1e6:.4g}"))
