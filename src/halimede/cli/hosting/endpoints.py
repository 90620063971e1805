"""`halimede endpoints`: the endpoints of a host, or one of them."""

import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from halimede.cli.hosting.client import HostClient, MissingError, host_options
from halimede.cli.hosting.deployments import deployment_tables
from halimede.cli.hosting.logs import InstanceLogs
from halimede.cli.hosting.shadows import comparisons
from halimede.cli.tables import table

_CHANGING = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")
_FAILED = ("Failed", "UpdateRollbackFailed")
_NO_ROOM = "InsufficientInstanceCapacity"
_INTERVAL_S = 0.5
_LINES = 1000
_RECENT_S = 120


@click.command("endpoints")
@click.argument("name", required=False)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the endpoint NAME has finished changing; show what its instances print and wait for.",
)
@host_options
def command(name: str | None, wait: bool, endpoint_url: str, region: str) -> int:
    """List the endpoints of a host, or describe the endpoint NAME.

    If NAME is being updated, show the progress of the update, and its alarms. The exit status is 1 if NAME has failed.
    """
    host = HostClient(endpoint_url, region)
    if name is None:
        if wait:
            raise click.UsageError("--wait needs the NAME of an endpoint")
        names = [entry["EndpointName"] for entry in host.every("sagemaker", "list_endpoints", "Endpoints")]
        endpoints = []
        for each in sorted(names):
            with suppress(MissingError):  # it was deleted meanwhile
                endpoints.append(_describe(host, each))
    else:
        if wait:
            _wait(host, name, StatusMessages(HostClient(endpoint_url, region), name))
        endpoints = [_describe(host, name)]
    if not endpoints:
        click.echo("There are no endpoints.")
        return 0
    headings = ["Endpoint", "Status", "Configuration", "Variant", "Weight", "Instances", "Created", "Reason"]
    click.echo(table(headings, [_row(endpoint) for endpoint in endpoints]))
    if name is not None:
        for each in deployment_tables(host, endpoints[0]):
            click.echo(each)
        try:
            for comparison in comparisons(host, endpoints[0]):
                click.echo(comparison)
        except click.ClickException as error:  # a key may describe endpoints and read no metrics
            click.echo(f"How its shadow variant compares cannot be shown: {error.message}", err=True)
        with suppress(click.ClickException):  # not everybody may read metrics
            _print_backlog(host, name)
    return int(name is not None and endpoints[0]["EndpointStatus"] in _FAILED)


def _describe(host: HostClient, name: str) -> Mapping[str, Any]:
    description: Mapping[str, Any] = host.call("sagemaker", "describe_endpoint", EndpointName=name)
    return description


class StatusMessages:
    """What the descriptions of an endpoint say that its variants wait for, asked for on a thread: answers are held."""

    def __init__(self, host: HostClient, name: str) -> None:
        """Messages that are not asked for yet; nobody else uses `host`."""
        self._host = host
        self._name = name
        self._shown = ""
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()

    def start(self) -> None:
        """Ask until the command ends."""
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        with suppress(click.ClickException):  # whoever waits for the endpoint is told the same
            while (found := _describe(self._host, self._name))["EndpointStatus"] in _CHANGING:
                self._told.put(_waits_for(found))
                time.sleep(_INTERVAL_S)

    def print_new(self) -> None:
        """Print what is new."""
        with suppress(queue.Empty):
            while True:
                message = self._told.get_nowait()
                if message not in ("", self._shown):
                    click.echo(f"{self._name}: {message}", err=True)
                self._shown = message


def _waits_for(endpoint: Mapping[str, Any]) -> str:
    """What the variants of an endpoint wait for, in a line; "" if for nothing."""
    summary = endpoint.get("PendingDeploymentSummary", {})
    pending = [*summary.get("ProductionVariants", ()), *summary.get("ShadowProductionVariants", ())]
    variants = [
        *endpoint.get("ProductionVariants", ()),
        *endpoint.get("ShadowProductionVariants", ()),
        *pending,
    ]
    statuses = {
        f"{variant['VariantName']} {_doing(status)}: {status['StatusMessage']}"
        for variant in variants
        for status in variant.get("VariantStatus", ())
        if "StatusMessage" in status
    }
    return "; ".join(sorted(statuses))


def _doing(status: Mapping[str, Any]) -> str:
    """What is done to a variant, in a word."""
    return "waits" if status["StatusMessage"].startswith(_NO_ROOM) else str(status["Status"])


def _wait(host: HostClient, name: str, messages: StatusMessages) -> None:
    """Return when the endpoint is not being changed any more.

    Until then, show what its instances print, and what they wait for.
    """
    logs = InstanceLogs(host, name)
    shown = ""
    # lists are answered at once, descriptions are held until something has happened
    while (status := _status(host, name)) in _CHANGING:
        if status != shown:
            click.echo(f"{name}: {status} …", err=True)
            if not shown:
                messages.start()
            if not shown and status != "Creating":
                logs.skip()  # of the instances that were there before
            shown = status
        logs.print_new(_LINES, from_head=True, err=True)
        messages.print_new()
        time.sleep(_INTERVAL_S)
    if shown:
        logs.print_new(_LINES, from_head=True, err=True)


def _status(host: HostClient, name: str) -> str:
    """The endpoint's status; "" if there is none."""
    entries = host.every("sagemaker", "list_endpoints", "Endpoints", NameContains=name)
    return next((entry["EndpointStatus"] for entry in entries if entry["EndpointName"] == name), "")


def _print_backlog(host: HostClient, name: str) -> None:
    """Print how many requests an asynchronous endpoint has not answered; nothing of another one."""
    size = _latest(host, name, "ApproximateBacklogSize")
    age = _latest(host, name, "ApproximateAgeOfOldestRequest")
    if size is not None and age is not None:
        oldest = f", the oldest {age:.0f} seconds old" if size else ""
        click.echo(f"Backlog, mean of the latest minute: {size:.3g} requests{oldest}")


def _latest(host: HostClient, name: str, metric: str) -> float | None:
    """The latest value of a metric of an endpoint; None if there is none."""
    end = datetime.now(UTC)
    answer = host.call(
        "cloudwatch",
        "get_metric_statistics",
        Namespace="AWS/SageMaker",
        MetricName=metric,
        Dimensions=[{"Name": "EndpointName", "Value": name}],
        StartTime=end - timedelta(seconds=_RECENT_S),
        EndTime=end,
        Period=60,
        Statistics=["Average"],
    )
    points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
    return float(points[-1]["Average"]) if points else None


def _row(endpoint: Mapping[str, Any]) -> list[str]:
    variants = [*endpoint.get("ProductionVariants", ()), *endpoint.get("ShadowProductionVariants", ())]
    productions = len(endpoint.get("ProductionVariants", ()))
    return [
        endpoint["EndpointName"],
        endpoint["EndpointStatus"],
        endpoint.get("EndpointConfigName", ""),
        "\n".join(
            each["VariantName"] + (" (shadow)" if number >= productions else "")
            for number, each in enumerate(variants)
        ),
        "\n".join(f"{each['CurrentWeight']:g}" for each in variants),
        "\n".join(f"{each['CurrentInstanceCount']}/{each['DesiredInstanceCount']}" for each in variants),
        f"{endpoint['CreationTime']:%Y-%m-%d %H:%M:%S}",
        endpoint.get("FailureReason", ""),
    ]
