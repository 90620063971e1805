"""`halimede jobs`: the transform jobs of a host, or one of them."""

import json
import time
from collections.abc import Mapping
from typing import Any

import click

from halimede.cli.hosting.client import HostClient, host_options
from halimede.cli.tables import readable, table

_UNDER_WAY = ("InProgress", "Stopping")
_GROUP = "/aws/sagemaker/TransformJobs"
_INTERVAL_S = 0.5
_LINES = 200
_HEADINGS = ["Job", "Status", "Objects", "Failed", "Records", "Read", "A second", "Left", "Created", "Reason"]


@click.command("jobs")
@click.argument("name", required=False)
@click.option("--wait", is_flag=True, help="Wait until the job NAME is over, and show its progress.")
@host_options
def command(name: str | None, wait: bool, endpoint_url: str, region: str) -> int:
    """List the transform jobs of a host with their progress, or show the job NAME with its events.

    The exit status is 1 if the job NAME has failed.
    """
    host = HostClient(endpoint_url, region)
    if name is None:
        if wait:
            raise click.UsageError("--wait needs the NAME of a transform job")
        jobs = host.every("sagemaker", "list_transform_jobs", "TransformJobSummaries")
        if not jobs:
            click.echo("There are no transform jobs.")
            return 0
        jobs.sort(key=lambda job: job["CreationTime"])
        click.echo(table(_HEADINGS, [_row(job, _Log(host, job["TransformJobName"])) for job in jobs]))
        return 0
    log = _Log(host, name)
    job = _find(host, name)
    shown: tuple[str, str] | None = None
    while wait and job["TransformJobStatus"] in _UNDER_WAY:
        log.read()
        now = (job["TransformJobStatus"], _progress_line(log.progress))
        if now != shown:
            click.echo(f"{name}: {': '.join(filter(None, now))} …", err=True)
            shown = now
        time.sleep(_INTERVAL_S)
        job = _find(host, name)
    row = _row(job, log)
    if shown is not None and log.progress:
        click.echo(f"{name}: {_progress_line(log.progress)}", err=True)
    click.echo(table(_HEADINGS, [row]))
    for line in log.events:
        click.echo(readable(line))
    return int(job["TransformJobStatus"] == "Failed")


def _find(host: HostClient, name: str) -> Mapping[str, Any]:
    """A job as lists have it: descriptions of jobs that are under way are held for a while."""
    jobs = host.every("sagemaker", "list_transform_jobs", "TransformJobSummaries", NameContains=name)
    for job in jobs:
        if job["TransformJobName"] == name:
            found: Mapping[str, Any] = job
            return found
    described: Mapping[str, Any] = host.call("sagemaker", "describe_transform_job", TransformJobName=name)
    return described


class _Log:
    """What a job tells of itself in its stream ``JOB/data-log``.

    Attributes:
        progress: how far it is; empty as long as it has told nothing.
        events: the other lines.
    """

    def __init__(self, host: HostClient, name: str) -> None:
        self._host = host
        self._stream = f"{name}/data-log"
        self.progress: Mapping[str, Any] = {}
        self.events: list[str] = []

    def read(self) -> None:
        """Read what is there."""
        groups = self._host.every("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=_GROUP)
        if not groups:
            return
        streams = self._host.every(
            "logs",
            "describe_log_streams",
            "logStreams",
            logGroupName=_GROUP,
            logStreamNamePrefix=self._stream,
        )
        if not streams:
            return
        page = self._host.call(
            "logs", "get_log_events", logGroupName=_GROUP, logStreamName=self._stream, limit=_LINES
        )
        lines = [event["message"] for event in page["events"]]
        found = [line for line in lines if line.startswith("{")]
        self.events = [line for line in lines if not line.startswith("{")]
        self.progress = json.loads(found[-1]) if found else {}


def _row(job: Mapping[str, Any], log: _Log) -> list[str]:
    log.read()
    progress = log.progress
    is_over = job["TransformJobStatus"] not in _UNDER_WAY
    return [
        job["TransformJobName"],
        job["TransformJobStatus"],
        f"{progress['objects']}/{progress['of']}" if progress else "",
        str(progress["failed"]) if progress else "",
        f"{progress['records']:,}" if progress else "",
        _size(progress["bytes_in"]) if progress else "",
        _size(progress["bytes_per_s"]) if progress and not is_over else "",
        "" if is_over else _left(progress),
        f"{job['CreationTime']:%Y-%m-%d %H:%M:%S}",
        job.get("FailureReason", ""),
    ]


def _progress_line(progress: Mapping[str, Any]) -> str:
    if not progress:
        return ""
    left = _left(progress)
    return (
        f"{progress['objects']} of {progress['of']} objects, {progress['records']:,} records, "
        f"{_size(progress['bytes_in'])} at {_size(progress['bytes_per_s'])}/s{f', {left} left' if left else ''}"
    )


def _left(progress: Mapping[str, Any]) -> str:
    seconds = progress.get("seconds_left")
    if seconds is None:
        return ""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def _size(count: int) -> str:
    """Bytes for people, such as ``1.5 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
