"""`halimede capture`: what was captured of an endpoint's invocations, as tensors."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from halimede.cli.hosting.client import HostClient, host_options
from halimede.cli.progress import progress_bars
from halimede.cli.tables import readable
from halimede.core.steps import step

if TYPE_CHECKING:
    from halimede.hosting.capture.payloads import Values
    from halimede.hosting.capture.records import CaptureRecord, Payload

_INTERVAL_S = 1.0
_LAST = 10
_SHOWN = 8
"""So many values of a tensor are shown."""

_TEXT = 40
"""So many characters of a string are shown."""

_DURATION: Final = re.compile(r"(\d+)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FILE: Final = re.compile(r"(?P<variant>[^/]+)/(?P<hour>\d{4}/\d\d/\d\d/\d\d)/[^/]+\.jsonl")
_LATE = timedelta(hours=1)
"""Records may be in the folder of the hour before theirs."""


def _since(context: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    match = _DURATION.fullmatch(text)
    if match is not None:
        return datetime.now(UTC) - timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        msg = f"'{text}' is no time; give a duration such as 15m or 2h, or a time such as 2026-11-23T21:00"
        raise click.BadParameter(msg, context, parameter) from None
    return found.astimezone(UTC)


@click.command("capture")
@click.argument("endpoint", metavar="NAME")
@click.option("--variant", default="", help="Only records of this variant.")
@click.option(
    "--since",
    callback=_since,
    metavar="TIME",
    help="Only records after this time: a duration such as 15m, 2h or 1d, or a time.",
)
@click.option("-n", "--last", type=click.IntRange(1), metavar="N",
              help=f"The last N records; by default {_LAST} without --since.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Wait for new records and print them.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per record, with all values.")
@click.option(
    "--destination",
    default="",
    metavar="URL",
    help="Location of the records, as s3://BUCKET/PREFIX or a directory; by default that of the endpoint.",
)
@host_options
def command(
    endpoint: str,
    variant: str,
    since: datetime | None,
    last: int | None,
    follow: bool,
    as_json: bool,
    destination: str,
    endpoint_url: str,
    region: str,
) -> int:
    """Print captured requests to the endpoint NAME and their responses."""
    host = HostClient(endpoint_url, region)
    files = CapturedFiles(_place(host, endpoint, destination), endpoint, variant)
    show = _print_json if as_json else _print
    if last is None and since is None:
        last = _LAST
    with progress_bars():
        found = files.records(since, last)
    for each in found:
        show(each)
    if not found and not follow:
        when = f" since {since:%Y-%m-%d %H:%M:%S} UTC" if since is not None else ""
        click.echo(f"{files.where}: there are no records{when}", err=True)
    while follow:
        time.sleep(_INTERVAL_S)
        for each in files.records(since, None):
            show(each)
    return 0


# where records are


class Place(Protocol):
    """Files with records, by key."""

    url: str

    def keys(self, prefix: str, after: str) -> list[str]:
        """The keys that begin so, and come after that one."""

    def folders(self, prefix: str) -> list[str]:
        """What follows the prefix, up to the next slash, in any key."""

    def lines(self, key: str) -> Sequence[bytes]:
        """The lines of a file."""


def _place(host: HostClient, endpoint: str, destination: str) -> Place:
    if not destination:
        described = host.call("sagemaker", "describe_endpoint", EndpointName=endpoint)
        config = described.get("DataCaptureConfig")
        if config is None:
            raise click.ClickException(
                f"endpoint {endpoint} captures nothing; say with --destination where earlier records are"
            )
        destination = config["DestinationS3Uri"]
    if destination.startswith("s3://"):
        return _BucketPlace(host.client("s3"), destination.rstrip("/"))
    return _DirectoryPlace(Path(destination))


class _BucketPlace:
    """Objects of a bucket."""

    def __init__(self, client: Any, url: str) -> None:
        self.url = url
        self._client = client
        self._bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""

    def keys(self, prefix: str, after: str) -> list[str]:
        """The keys that begin so, and come after that one."""
        pages = self._pages(Prefix=self._prefix + prefix, StartAfter=self._prefix + after)
        return [each["Key"].removeprefix(self._prefix) for page in pages for each in page.get("Contents", ())]

    def folders(self, prefix: str) -> list[str]:
        """What follows the prefix, up to the next slash, in any key."""
        pages = self._pages(Prefix=self._prefix + prefix, Delimiter="/")
        found = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ())]
        return [each.removeprefix(self._prefix + prefix).rstrip("/") for each in found]

    def lines(self, key: str) -> Sequence[bytes]:
        """The lines of an object."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
            body: bytes = answer["Body"].read()
        except (ClientError, BotoCoreError) as error:
            raise self._failure(error) from None
        return body.splitlines()

    def _pages(self, **what: str) -> list[Mapping[str, Any]]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return list(self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, **what))
        except (ClientError, BotoCoreError) as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> click.ClickException:
        msg = f"{self.url}: {error}"
        if getattr(error, "response", {}).get("Error", {}).get("Code") == "NoSuchBucket":
            msg += (
                "; for a bucket that is a directory of this machine, give that directory with --destination"
            )
        return click.ClickException(msg)


class _DirectoryPlace:
    """Files of a directory."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise click.UsageError(f"--destination: '{directory}' is no directory, nor s3://BUCKET/PREFIX")
        self.url = str(directory)
        self._directory = directory

    def keys(self, prefix: str, after: str) -> list[str]:
        """The keys that begin so, and come after that one."""
        found = (
            str(path.relative_to(self._directory)) for path in (self._directory / prefix).rglob("*.jsonl")
        )
        return sorted(key for key in found if key > after)

    def folders(self, prefix: str) -> list[str]:
        """What follows the prefix, up to the next slash, in any key."""
        directory = self._directory / prefix
        return [each.name for each in directory.iterdir() if each.is_dir()] if directory.is_dir() else []

    def lines(self, key: str) -> Sequence[bytes]:
        """The lines of a file."""
        try:
            return (self._directory / key).read_bytes().splitlines()
        except OSError as error:
            raise click.ClickException(f"{self._directory / key}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Found:
    """A record, and of which variant it is."""

    variant: str
    record: "CaptureRecord"


class CapturedFiles:
    """The records of an endpoint, as more are captured.

    Attributes:
        where: where they are, for whoever reads.
    """

    def __init__(self, place: Place, endpoint: str, variant: str) -> None:
        self.where = f"{place.url}/{endpoint}/{variant}".rstrip("/")
        self._place = place
        self._endpoint = endpoint
        self._variant = variant
        self._seen: set[str] = set()
        self._newest: dict[str, str] = {}  # variant → the last key of it that was listed

    def records(self, since: datetime | None, last: int | None) -> list[Found]:
        """Those that have not been read yet, the oldest first.

        Args:
            since: only those that are not older.
            last: only so many, the latest ones.
        """
        keys = self._keys(since)
        found: list[Found] = []
        with step(f"Fetching records of {self._endpoint}", len(keys)) as fetching:
            for key in reversed(keys):
                of_file = [each for each in self._read(key) if since is None or each.record.time >= since]
                found = of_file + found
                if last is not None and len(found) >= last:
                    break
                fetching.advance(1)
        self._seen.update(keys)
        found.sort(key=lambda each: each.record.time)
        return found if last is None else found[-last:]

    def _keys(self, since: datetime | None) -> list[str]:
        """Files that have not been read, in the order of their times."""
        top = f"{self._endpoint}/"
        variants = [self._variant] if self._variant else self._place.folders(top)
        keys: list[str] = []
        for variant in variants:
            earliest = f"{top}{variant}/{since - _LATE:%Y/%m/%d/%H}" if since is not None else ""
            after = max(earliest, self._hour(variant))
            keys += self._place.keys(f"{top}{variant}/", after)
        unseen = [key for key in keys if key not in self._seen and _FILE.fullmatch(key.removeprefix(top))]
        for key in unseen:
            variant = key.removeprefix(top).partition("/")[0]
            self._newest[variant] = max(self._newest.get(variant, ""), key)
        return sorted(unseen, key=lambda key: key.removeprefix(top).partition("/")[2])

    def _hour(self, variant: str) -> str:
        """Before what is not looked for new files of a variant: the hour before that of the last one."""
        newest = self._newest.get(variant)
        if newest is None:
            return ""
        match = _FILE.fullmatch(newest.removeprefix(f"{self._endpoint}/"))
        assert match is not None
        hour = datetime.strptime(match["hour"], "%Y/%m/%d/%H").replace(tzinfo=UTC)
        return f"{self._endpoint}/{variant}/{hour - _LATE:%Y/%m/%d/%H}"

    def _read(self, key: str) -> list[Found]:
        from halimede.hosting.capture.records import read_records

        def unreadable(number: int, why: str) -> None:
            click.echo(f"{self._place.url}/{key}, line {number} is no record: {readable(why)}", err=True)

        variant = key.removeprefix(f"{self._endpoint}/").partition("/")[0]
        return [Found(variant, record) for record in read_records(self._place.lines(key), unreadable)]


# for people


def _print(found: Found) -> None:
    record = found.record
    names = [("model", record.target_model), ("inference id", record.inference_id), ("source", record.source)]
    names += [("attributes", each) for each in record.custom_attributes]
    more = "".join(f", {name} {readable(value)}" for name, value in names if value)
    click.echo(f"{record.time:%Y-%m-%d %H:%M:%S}  {found.variant}  {record.event_id}{more}")
    for title, payload in (("request", record.input), ("response", record.output)):
        if payload is not None:
            kind = readable(payload.content_type) or "no content type"
            click.echo(f"  {title:<8}  {kind}, {len(payload.body):,} bytes")
            for line in _lines(payload):
                click.echo(f"    {line}")


def _lines(payload: "Payload") -> Iterator[str]:
    from halimede.hosting.capture.payloads import UndecodableError

    try:
        tensors = payload.values()
    except UndecodableError as error:
        yield f"cannot be decoded: {readable(str(error))}"
        return
    rows = [
        (readable(name), each.datatype, str(list(each.array.shape)), each) for name, each in tensors.items()
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for name, datatype, shape, values in rows:
        cells = (text.ljust(width) for text, width in zip((name, datatype, shape), widths, strict=True))
        yield f"{'  '.join(cells)}  {_first(values)}"


def _first(values: "Values") -> str:
    """The first values of a tensor."""
    texts = [_shown(each) for each in islice(values.array.flat, _SHOWN)]
    return " ".join(texts) + (" …" if values.array.size > _SHOWN else "")


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    if isinstance(value, str):
        return f'"{readable(value[:_TEXT])}{"…" if len(value) > _TEXT else ""}"'
    if value is None:
        return "-"
    return f"{value:.6g}" if value.dtype.kind == "f" else str(value).lower()


# for machines


def _print_json(found: Found) -> None:
    import orjson

    record = found.record
    document: dict[str, Any] = {
        "time": record.time,
        "variant": found.variant,
        "event_id": record.event_id,
        "inference_id": record.inference_id,
        "custom_attributes": list(record.custom_attributes),
        "target_model": record.target_model,
        "source": record.source,
        "request": _document(record.input),
        "response": _document(record.output),
    }
    click.echo(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY))


def _document(payload: "Payload | None") -> dict[str, Any] | None:
    from halimede.hosting.capture.payloads import UndecodableError

    if payload is None:
        return None
    document: dict[str, Any] = {"content_type": payload.content_type, "bytes": len(payload.body)}
    try:
        document["tensors"] = [
            {"name": name, "datatype": each.datatype, "shape": each.array.shape, "data": _data(each)}
            for name, each in payload.values().items()
        ]
    except UndecodableError as error:
        document["error"] = str(error)
    return document


def _data(values: "Values") -> list[Any]:
    elements: list[Any] = values.array.reshape(-1).tolist()
    return [each.decode(errors="backslashreplace") if isinstance(each, bytes) else each for each in elements]
