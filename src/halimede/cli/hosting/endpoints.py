"""`halimede endpoints`: the endpoints of a host, or one of them."""

import time
from collections.abc import Mapping
from typing import Any

import click

from halimede.cli.hosting.client import HostClient, host_options
from halimede.cli.hosting.logs import InstanceLogs
from halimede.cli.tables import table

_CHANGING = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")
_INTERVAL_S = 0.5
_LINES = 1000


@click.command("endpoints")
@click.argument("name", required=False)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the endpoint NAME is not being changed any more; show what its instances print.",
)
@host_options
def command(name: str | None, wait: bool, endpoint_url: str, region: str) -> int:
    """List the endpoints of a host, or describe the endpoint NAME; exit with 1 if that one has failed."""
    host = HostClient(endpoint_url, region)
    if name is None:
        if wait:
            raise click.UsageError("--wait needs the NAME of an endpoint")
        names = [entry["EndpointName"] for entry in host.every("sagemaker", "list_endpoints", "Endpoints")]
        endpoints = [_describe(host, each) for each in sorted(names)]
    else:
        endpoints = [_described(host, name, wait=wait)]
    if not endpoints:
        click.echo("There are no endpoints.")
        return 0
    headings = ["Endpoint", "Status", "Configuration", "Variant", "Weight", "Instances", "Created", "Reason"]
    click.echo(table(headings, [_row(endpoint) for endpoint in endpoints]))
    return int(name is not None and endpoints[0]["EndpointStatus"] == "Failed")


def _describe(host: HostClient, name: str) -> Mapping[str, Any]:
    description: Mapping[str, Any] = host.call("sagemaker", "describe_endpoint", EndpointName=name)
    return description


def _described(host: HostClient, name: str, *, wait: bool) -> Mapping[str, Any]:
    """The endpoint; if it is to be waited for, when it is not being changed any more."""
    if wait:
        _wait(host, name)
    return _describe(host, name)


def _wait(host: HostClient, name: str) -> None:
    """Return when the endpoint is not being changed any more; until then, show what its instances print."""
    logs = InstanceLogs(host, name)
    shown = ""
    # lists are answered at once, descriptions are held until something has happened
    while (status := _status(host, name)) in _CHANGING:
        if status != shown:
            click.echo(f"{name}: {status} …", err=True)
            if not shown and status != "Creating":
                logs.skip()  # of the instances that were there before
            shown = status
        logs.print_new(_LINES, from_head=True, err=True)
        time.sleep(_INTERVAL_S)


def _status(host: HostClient, name: str) -> str:
    """The endpoint's status; "" if there is none."""
    entries = host.every("sagemaker", "list_endpoints", "Endpoints", NameContains=name)
    return next((entry["EndpointStatus"] for entry in entries if entry["EndpointName"] == name), "")


def _row(endpoint: Mapping[str, Any]) -> list[str]:
    variants = endpoint.get("ProductionVariants", ())
    return [
        endpoint["EndpointName"],
        endpoint["EndpointStatus"],
        endpoint.get("EndpointConfigName", ""),
        "\n".join(each["VariantName"] for each in variants),
        "\n".join(f"{each['CurrentWeight']:g}" for each in variants),
        "\n".join(f"{each['CurrentInstanceCount']}/{each['DesiredInstanceCount']}" for each in variants),
        f"{endpoint['CreationTime']:%Y-%m-%d %H:%M:%S}",
        endpoint.get("FailureReason", ""),
    ]
