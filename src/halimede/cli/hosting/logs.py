"""`halimede logs`: what the instances of an endpoint or a transform job print."""

import time
from typing import Any

import click

from halimede.cli.hosting.client import HostClient, host_options
from halimede.cli.tables import readable

_GROUP = "/aws/sagemaker/Endpoints/"
_JOBS = "/aws/sagemaker/TransformJobs"
_INTERVAL_S = 0.5


@click.command("logs")
@click.argument("name")
@click.option(
    "--instance", help="Only this instance: the beginning of VARIANT/INSTANCE, or of INSTANCE.", default=""
)
@click.option("--job", is_flag=True, help="NAME is a transform job.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Last lines per log.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for new lines and print them.")
@host_options
def command(
    name: str, instance: str, job: bool, lines: int, follow: bool, endpoint_url: str, region: str
) -> int:
    """Print the logs of the instances of the endpoint NAME, or of a transform job."""
    host = HostClient(endpoint_url, region)
    logs = InstanceLogs.of_job(host, name, instance) if job else InstanceLogs(host, name, instance)
    while True:
        found = logs.print_new(limit=lines)
        if not found and not follow:
            what = f"{name}, instance {instance}" if instance else name
            raise click.ClickException(
                f"there are no logs of {'transform job' if job else 'endpoint'} {what}"
            )
        if not follow:
            return 0
        time.sleep(_INTERVAL_S)


class InstanceLogs:
    """The logs of an endpoint's instances, as they grow.

    Args:
        host: whose endpoint it is.
        endpoint: its name.
        instance: the beginning of the names of the instances that are meant, as VARIANT/INSTANCE; "" for all.
    """

    def __init__(self, host: HostClient, endpoint: str, instance: str = "") -> None:
        self._host = host
        self._group = _GROUP + endpoint
        self._instance = instance
        self._tokens: dict[str, str] = {}  # where the new lines of each begin

    @classmethod
    def of_job(cls, host: HostClient, job: str, instance: str = "") -> "InstanceLogs":
        """The logs of a transform job's instances, and of the job itself."""
        logs = cls(host, job, f"{job}/{instance}")
        logs._group = _JOBS
        return logs

    def skip(self) -> None:
        """Pass over what is there by now."""
        for name in self._streams():
            self._read(name, limit=1)

    def print_new(self, limit: int, *, from_head: bool = False, err: bool = False) -> int:
        """Print what is new in the log of each instance; how many instances have logs.

        Args:
            limit: of an instance that is new, so many lines.
            from_head: its first ones, and not its last ones.
            err: on standard error.
        """
        streams = self._streams()
        for name in streams:
            lead = f"{name}  " if len(streams) > 1 else ""
            for message in self._read(name, limit=limit, startFromHead=from_head):
                click.echo(lead + readable(message), err=err)
        return len(streams)

    def _streams(self) -> list[str]:
        groups = self._host.every("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=self._group)
        if self._group not in [group["logGroupName"] for group in groups]:
            return []
        parameters = {"logStreamNamePrefix": self._instance} if self._instance else {}
        streams = self._host.every(
            "logs", "describe_log_streams", "logStreams", logGroupName=self._group, **parameters
        )
        return [stream["logStreamName"] for stream in streams]

    def _read(self, name: str, **beginning: Any) -> list[str]:
        """The new lines of an instance; `beginning` says which they are the first time."""
        where = {"nextToken": self._tokens[name]} if name in self._tokens else beginning
        page = self._host.call(
            "logs", "get_log_events", logGroupName=self._group, logStreamName=name, **where
        )
        self._tokens[name] = page["nextForwardToken"]
        return [event["message"] for event in page["events"]]
