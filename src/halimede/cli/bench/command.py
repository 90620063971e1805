"""`halimede bench`: load on a server, and what it shows."""

import sys
from pathlib import Path
from typing import Any

import click

from halimede.bench import report, tables
from halimede.bench.errors import BenchError
from halimede.bench.levels import Bisection, Sweep
from halimede.bench.measure import measure
from halimede.bench.plan import Level
from halimede.bench.results import LevelResult, Result, write_text
from halimede.bench.workload import Prepared, prepare
from halimede.cli.bench import options
from halimede.cli.bench.compare import command as compare_command
from halimede.cli.bench.progress import ProgressLine
from halimede.cli.tables import table

LIMIT_EXCEEDED = 3


@click.group(
    "bench",
    cls=options.BenchGroup,
    invoke_without_command=True,
    no_args_is_help=True,
    short_help="Measure a server under load.",
)
@options.options
@click.pass_context
def command(context: click.Context, /, **given: Any) -> int:
    """Send load to a server and report latency, throughput and where the server spent its time.

    The server may speak KServe v2 over HTTP or gRPC (Halimede, Triton), or have a SageMaker or OpenAI route. Options
    of perf_analyzer have the same meaning.

    In an open loop, latency is measured from the time at which a request was due, so that requests delayed by a stalled
    server count (no coordinated omission).

    Exit status: 0; 1 if nothing could be measured; 2 for wrong options; 3 if a limit (--p99, --min-throughput,
    --max-errors) is exceeded.
    """
    if context.invoked_subcommand is not None:
        return 0
    try:
        return _run(given)
    except BenchError as error:
        raise click.ClickException(str(error)) from None


def _run(given: dict[str, Any]) -> int:
    limits = options.limits(given)
    levels = options.levels(given)
    prepared = prepare(options.workload(given))
    search = _search(levels, given)
    line = ProgressLine(verbose=given["verbose"])
    results: list[LevelResult] = []
    measuring = options.measuring(given, prepared.rows)
    try:
        for level in measure(prepared.plan, iter(search), measuring, prepared.ask, line.show):
            results.append(level)
            search.tell(level)
    except KeyboardInterrupt:
        line.clear()
        if not results:
            raise
        click.echo("Interrupted; these levels were measured:", err=True)
    line.clear()
    results.sort(key=lambda each: each.figure)
    result = Result(prepared.title, _settings(given, prepared), tuple(results))
    _show(result, given["percentile"])
    _write(result, given)
    broken = limits.broken(result)
    for text in broken:
        click.echo(f"Limit exceeded: {text}", err=True)
    return LIMIT_EXCEEDED if broken else 0


def _search(levels: list[Level], given: dict[str, Any]) -> Sweep | Bisection:
    threshold = given["latency_threshold"]
    percentile = given["percentile"]

    def within(result: LevelResult) -> bool:
        if threshold is None:
            return True
        latency = result.latency.mean if percentile is None else result.latency.percentile(percentile)
        return latency / 1e9 <= float(threshold)

    if not given["binary_search"]:
        return Sweep(levels, within)
    if threshold is None or len(levels) < 2:
        raise click.UsageError("--binary-search needs a range and --latency-threshold")
    return Bisection(levels, within)


def _settings(given: dict[str, Any], prepared: Prepared) -> dict[str, str]:
    """The options that were given, for readers, and what was chosen."""
    told = {
        name.replace("_", "-"): ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in given.items()
        if value not in (None, False, "", (), 0) and name not in ("header", "verbose")
    }
    return {
        **told,
        "address": prepared.plan.address.authority,
        "processes": str(prepared.plan.processes),
    }


def _show(result: Result, percentile: float | None) -> None:
    click.echo(f"{result.title}, {result.settings['address']}")
    click.echo(table(*tables.latencies(result, percentile)))
    headings, rows = tables.server_sides(result)
    if rows:
        click.echo(table(headings, rows))
    for text in tables.remarks(result):
        click.echo(text)


def _write(result: Result, given: dict[str, Any]) -> None:
    files: dict[str, Path | None] = {name: given[f"{name}_file"] for name in ("csv", "json", "html")}
    if files["csv"]:
        write_text(files["csv"], tables.as_csv(result))
    if files["json"]:
        result.write(files["json"])
    if files["html"]:
        write_text(files["html"], report.html(result))
    sys.stdout.flush()


command.add_command(compare_command)
