"""`halimede bench compare`: what differs between two measurements."""

import sys
from pathlib import Path

import click
import orjson

from halimede.bench.compare import CONFIDENCE, compare
from halimede.bench.errors import BenchError
from halimede.bench.plots import number
from halimede.bench.results import read
from halimede.cli.tables import table


@click.command("compare", short_help="Compare two measurements.")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the output.",
)
@click.option("--fail-if-worse", is_flag=True, help="Exit with 3 if a figure is significantly worse.")
def command(before: Path, after: Path, form: str, fail_if_worse: bool) -> int:
    """Compare BEFORE and AFTER, two files of `halimede bench --json`.

    The intervals contain the ratio of AFTER to BEFORE with 95 % confidence, by a bootstrap over the time blocks of each
    measurement. They do not cover other changes between the measurements; alternate the measurements if the machine is
    not quiet.
    """
    try:
        differences = compare(read(before), read(after))
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    if form == "json":
        sys.stdout.write(orjson.dumps([each.to_json() for each in differences]).decode() + "\n")
    else:
        rows = [
            [
                each.level,
                each.figure,
                _figure(each.before),
                _figure(each.after),
                f"{(each.ratio - 1) * 100:+.1f} %",
                f"{(each.low - 1) * 100:+.1f} to {(each.high - 1) * 100:+.1f} %",
                each.verdict,
            ]
            for each in differences
        ]
        headings = ["load", "figure", "before", "after", "change", f"{CONFIDENCE:g} % interval", ""]
        click.echo(table(headings, rows))
    return 3 if fail_if_worse and any(each.verdict == "worse" for each in differences) else 0


def _figure(value: float) -> str:
    return number(float(f"{value:.4g}"))
