"""What UpdateEndpoint asks for, held against the endpoint as it is."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from halimede.hosting.control.defaults import complete_deployment
from halimede.hosting.control.deployments.checks import check_alarms, check_config, check_fleet
from halimede.hosting.control.deployments.policy import Policy, Strategy
from halimede.hosting.control.records import EndpointRecord, FleetRecord
from halimede.hosting.errors import invalid
from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms.alarm import Alarm
from halimede.hosting.metering.alarms.states import AlarmState


def deployment_of(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `DeploymentConfig` of a request, with AWS's defaults; None if it says nothing.

    Raises:
        ApiError: it contradicts itself.
    """
    deployment = request.get("DeploymentConfig")
    if not deployment:
        return None
    check_config(deployment)
    return complete_deployment(deployment)


def retain(current: FleetRecord | None, fleet: FleetRecord, excluded: Iterable[Mapping[str, str]]) -> None:
    """Let the fleet have the weights and counts of the one that serves, as far as they are not excluded."""
    kinds = {entry["VariantPropertyType"] for entry in excluded}
    if current is None:
        return
    for name in fleet.counts:
        if name in current.counts and "DesiredInstanceCount" not in kinds:
            fleet.counts[name] = current.counts[name]
        if name in current.weights and "DesiredWeight" not in kinds:
            fleet.weights[name] = current.weights[name]


def check_update(
    record: EndpointRecord,
    fleet: FleetRecord,
    deployment: Mapping[str, Any] | None,
    alarm_of: Callable[[Scope, str], Alarm | None],
) -> None:
    """Refuse an update that cannot go as it is to.

    Args:
        record: the endpoint.
        fleet: what is to take the place of the fleet that serves.
        deployment: how, as `deployment_of` has it.
        alarm_of: the CloudWatch alarm of a name.

    Raises:
        ApiError: the policy does not go with the fleet or the endpoint's state, or an alarm stands against it.
    """
    if deployment is None:
        return
    check_fleet(deployment, fleet.counts)
    policy = Policy.of(deployment)
    if policy.strategy is Strategy.ROLLING and record.mixed is not None:
        raise invalid(
            f'The endpoint "{record.arn}" has instances of two configurations, as a rolling update could not be rolled '
            "back; update it with a BlueGreenUpdatePolicy"
        )
    alarms = {name: alarm_of(record.id.scope, name) for name in policy.alarms}
    check_alarms(
        [name for name, alarm in alarms.items() if alarm is None],
        [name for name, alarm in alarms.items() if alarm is not None and alarm.state is AlarmState.ALARM],
    )
