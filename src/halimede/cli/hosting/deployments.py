"""The update of an endpoint that is under way, as tables: how far it has come, and its alarms."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from halimede.cli.hosting.client import HostClient
from halimede.cli.tables import table

_VARIANTS = ["Update to", "Variant", "Weight", "Instances", "Stage", "Progress", "Since"]
_ALARMS = ["Alarm", "State", "Reason"]


def deployment_tables(host: HostClient, endpoint: Mapping[str, Any]) -> Iterator[str]:
    """The tables of an endpoint's update; none if it is not being updated.

    Args:
        host: where the endpoint is.
        endpoint: what DescribeEndpoint says of it.
    """
    pending = endpoint.get("PendingDeploymentSummary")
    if pending is None or endpoint["EndpointStatus"] == "Creating":
        return
    rows = [_row(pending["EndpointConfigName"], variant) for variant in pending["ProductionVariants"]]
    rows += [
        _row(endpoint["EndpointConfigName"], variant)
        for variant in endpoint["ProductionVariants"]
        if "VariantStatus" in variant
    ]
    yield table(_VARIANTS, rows)
    config = endpoint.get("LastDeploymentConfig", {})
    names = [each["AlarmName"] for each in config.get("AutoRollbackConfiguration", {}).get("Alarms", ())]
    if names:
        yield table(_ALARMS, _alarms(host, names))


def _row(config: str, variant: Mapping[str, Any]) -> list[str]:
    [status] = variant.get("VariantStatus", [{}])[:1]
    return [
        config,
        variant["VariantName"],
        f"{variant['CurrentWeight']:g}",
        f"{variant['CurrentInstanceCount']}/{variant['DesiredInstanceCount']}",
        status.get("Status", ""),
        status.get("StatusMessage", ""),
        f"{status['StartTime']:%Y-%m-%d %H:%M:%S}" if "StartTime" in status else "",
    ]


def _alarms(host: HostClient, names: Sequence[str]) -> list[list[str]]:
    found = host.call(
        "cloudwatch", "describe_alarms", AlarmNames=names, AlarmTypes=["MetricAlarm", "CompositeAlarm"]
    )
    alarms = {each["AlarmName"]: each for each in (*found["MetricAlarms"], *found["CompositeAlarms"])}
    return [
        [name, alarms[name]["StateValue"], alarms[name]["StateReason"]] if name in alarms else [name, "", ""]
        for name in names
    ]
