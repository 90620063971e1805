"""`halimede baseline`: what data are like, for monitoring to compare with."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halimede.cli.hosting.capture import CapturedFiles, _place, _since
from halimede.cli.hosting.client import HostClient, host_options
from halimede.cli.progress import progress_bars, tell
from halimede.core.steps import Step, step

if TYPE_CHECKING:
    from halimede.hosting.monitoring.table import Table

_S3 = "s3://"
_FILES = ("statistics.json", "constraints.json")


@click.command("baseline")
@click.argument("data", required=False, metavar="[DATA]")
@click.option("-o", "--output", required=True, metavar="URL", help="s3://BUCKET/PREFIX or a directory.")
@click.option("--endpoint", default="", metavar="NAME", help="Use captured data of this endpoint.")
@click.option(
    "--since",
    callback=_since,
    metavar="TIME",
    help="With --endpoint: only records after this time: a duration such as 15m, 2h or 1d, or a time.",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first row of CSV has column names; by default yes if none of its cells is a number.",
)
@host_options
def command(
    data: str | None,
    output: str,
    endpoint: str,
    since: datetime | None,
    header: bool | None,
    endpoint_url: str,
    region: str,
) -> int:
    """Write the baseline of DATA: CSV (.csv), JSON lines or captured files (.jsonl), a directory of those, or an
    array of JSON (.json); a file, or s3://BUCKET/KEY.

    The baseline consists of statistics.json and constraints.json, in the format of SageMaker's Model Monitor.
    """  # noqa: D205 - one paragraph of help
    if bool(data) is bool(endpoint):
        raise click.UsageError("give either DATA or --endpoint")
    from halimede.hosting.monitoring.constraints_file import Constraints, write_constraints
    from halimede.hosting.monitoring.datasets import DatasetError
    from halimede.hosting.monitoring.statistics_file import write_statistics
    from halimede.hosting.monitoring.table import Table

    host, table = HostClient(endpoint_url, region), Table()
    try:
        with progress_bars():
            if data:
                _read(host, table, data, header)
            else:
                _read_captured(host, table, endpoint, since)
    except DatasetError as error:
        raise click.ClickException(f"{data}: {error}") from None
    features = table.features()
    if not features:
        raise click.ClickException(f"{data or endpoint}: there are no records that can be read")
    contents = write_statistics(features), write_constraints(Constraints.suggested(features))
    for name, content in zip(_FILES, contents, strict=True):
        _write(host, f"{output.rstrip('/')}/{name}", content)
    for why, count in table.undecodable.most_common():
        click.echo(f"{count:,} bodies could not be read: {why}", err=True)
    if table.left_out:
        click.echo(f"more columns than can be kept; left out: {', '.join(sorted(table.left_out))}", err=True)
    click.echo(
        f"{table.records:,} records, {len(features):,} columns: {output.rstrip('/')}/{_FILES[0]}, {_FILES[1]}"
    )
    return 0


def _read_captured(host: HostClient, table: "Table", endpoint: str, since: datetime | None) -> None:
    files = CapturedFiles(_place(host, endpoint, ""), endpoint, "")
    records = files.records(since, None)
    with step(f"Reading records of {endpoint}", len(records)) as reading:
        for found in records:
            table.add_record(found.record)
            reading.advance(1)


def _read(host: HostClient, table: "Table", data: str, header: bool | None) -> None:
    from halimede.hosting.monitoring import datasets

    if data.startswith(_S3):
        _add(table, _object(host, data), data, header)
        return
    path = Path(data)
    paths = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    if not paths:
        raise datasets.DatasetError("there are no files *.jsonl in the directory")
    with step(f"Reading {data}", len(paths)) as files:
        for each in paths:
            try:
                with each.open("rb") as file, _reading(each.name, each.stat().st_size) as reading:
                    _add(table, _counted(file, reading), each.name, header)
            except OSError as error:
                raise click.ClickException(f"{each}: {error.strerror}") from None
            files.advance(1)


def _add(table: "Table", lines: Iterator[bytes], name: str, header: bool | None) -> None:
    from halimede.hosting.monitoring import datasets

    if name.lower().endswith(".csv"):
        datasets.add_csv(table, lines, header)
    elif name.lower().endswith(".json"):
        datasets.add_document(table, b"".join(lines))
    else:
        skipped = datasets.add_json(table, lines)
        if skipped:
            tell(f"{name}: {skipped:,} lines are no records")


def _reading(name: str, size: int) -> AbstractContextManager[Step]:
    return step(f"Reading {name}", size, of_bytes=True)


def _counted(lines: Iterable[bytes], reading: Step) -> Iterator[bytes]:
    """The lines; the step advances with them."""
    for line in lines:
        reading.advance(len(line))
        yield line


def _object(host: HostClient, url: str) -> Iterator[bytes]:
    bucket, _, key = url.removeprefix(_S3).partition("/")
    answer = _s3(host, url, "get_object", Bucket=bucket, Key=key)
    body: Any = answer["Body"]
    with closing(body), _reading(url, answer["ContentLength"]) as reading:
        yield from _counted(map(bytes, body.iter_lines(keepends=True)), reading)


def _s3(host: HostClient, url: str, operation: str, **parameters: Any) -> Any:
    """What S3 answers.

    Raises:
        click.ClickException: the object or its bucket is not there, or S3 is not.
    """
    client = host.client("s3")
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return getattr(client, operation)(**parameters)
    except (ClientError, BotoCoreError) as error:
        raise click.ClickException(f"{url}: {error}") from None


def _write(host: HostClient, url: str, content: bytes) -> None:
    if url.startswith(_S3):
        bucket, _, key = url.removeprefix(_S3).partition("/")
        _s3(host, url, "put_object", Bucket=bucket, Key=key, Body=content, ContentType="application/json")
        return
    path = Path(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
