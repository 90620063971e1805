"""What is wrong with a `DeploymentConfig`, beyond what AWS's service model says of it."""

from collections.abc import Collection, Mapping
from typing import Any

from halimede.hosting.control.deployments.policy import SIZE_MEMBERS, Policy, Size, Strategy
from halimede.hosting.errors import ApiError, invalid

_LIMITS: Mapping[Strategy, tuple[int, int]] = {
    Strategy.CANARY: (1, 50),
    Strategy.LINEAR: (10, 50),
    Strategy.ROLLING: (5, 50),
}
"""How many per cent of a fleet a step may be, at least and at most."""


def check_config(config: Mapping[str, Any]) -> None:
    """Refuse a `DeploymentConfig` that contradicts itself, whatever the endpoint is.

    Raises:
        ApiError: it has two policies or none where it needs one, sizes that its type does not take, or too little time.
    """
    if "BlueGreenUpdatePolicy" in config and "RollingUpdatePolicy" in config:
        raise _wrong("it has BlueGreenUpdatePolicy and RollingUpdatePolicy; use one of them")
    alarms = config.get("AutoRollbackConfiguration", {}).get("Alarms", ())
    if not all("AlarmName" in each for each in alarms):
        raise _wrong("an alarm of AutoRollbackConfiguration has no AlarmName")
    names = [each["AlarmName"] for each in alarms]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _wrong(f"AutoRollbackConfiguration has the alarm '{twice[0]}' twice")
    if (blue_green := config.get("BlueGreenUpdatePolicy")) is not None:
        _check_routing(blue_green["TrafficRoutingConfiguration"])
    if (rolling := config.get("RollingUpdatePolicy")) is not None:
        _check_percent(Strategy.ROLLING, "MaximumBatchSize", rolling["MaximumBatchSize"])
        back = rolling.get("RollbackMaximumBatchSize")
        if back is not None and Size.of(back).is_percent and back["Value"] > 100:
            raise _wrong(
                f"RollbackMaximumBatchSize is {back['Value']} % of the fleet; it may be 100 % at most"
            )


def _check_routing(routing: Mapping[str, Any]) -> None:
    strategy = Strategy(routing["Type"])
    needed = SIZE_MEMBERS.get(strategy)
    for member in SIZE_MEMBERS.values():
        if member == needed and member not in routing:
            raise _wrong(f"traffic routing of type {strategy} needs {member}")
        if member != needed and member in routing:
            raise _wrong(f"{member} is not for traffic routing of type {strategy}")
    if needed is not None:
        _check_percent(strategy, needed, routing[needed])


def _check_percent(strategy: Strategy, member: str, document: Mapping[str, Any]) -> None:
    least, most = _LIMITS[strategy]
    size = Size.of(document)
    if size.is_percent and not least <= size.value <= most:
        raise _wrong(f"{member} is {size.value} % of the fleet; it must be {least} to {most} %")


def check_fleet(config: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Refuse a `DeploymentConfig` that does not go with the fleet that is to be deployed.

    Args:
        config: the configuration, which `check_config` has checked.
        counts: variant → how many instances the new fleet is to have.

    Raises:
        ApiError: so many instances are no step of that fleet, or the waits take longer than the whole may.
    """
    policy = Policy.of(config)
    size = policy.size
    if size is not None and not size.is_percent:
        least, most = _LIMITS[policy.strategy]
        member = SIZE_MEMBERS.get(policy.strategy, "MaximumBatchSize")
        for name, count in counts.items():
            if not least * count <= 100 * size.value <= most * count:
                raise _wrong(
                    f"{member} is {_instances(size.value)}, and variant '{name}' has {count}; it must be {least} to "
                    f"{most} % of them. CAPACITY_PERCENT shifts requests of any number of instances"
                )
    back = policy.rollback_size
    if back is not None and not back.is_percent:
        for name, count in counts.items():
            if back.value > count:
                raise _wrong(
                    f"RollbackMaximumBatchSize is {_instances(back.value)}, and variant '{name}' has {count}"
                )
    waits_s = policy.waits_s(counts)
    if policy.timeout_s and policy.timeout_s <= waits_s:
        raise _wrong(
            f"MaximumExecutionTimeoutInSeconds is {policy.timeout_s}, and the deployment waits {waits_s} s: "
            f"WaitIntervalInSeconds {len(policy.shares(counts))} times, and TerminationWaitInSeconds; it must be more"
        )


def check_alarms(missing: Collection[str], alarming: Collection[str]) -> None:
    """Refuse a deployment that its alarms would not let begin.

    Args:
        missing: the alarms that do not exist.
        alarming: those that are in the state ALARM.

    Raises:
        ApiError: there are such alarms.
    """
    if missing:
        raise _wrong(f"there is no CloudWatch alarm '{sorted(missing)[0]}' in this account and region")
    if alarming:
        raise _wrong(
            f"the CloudWatch alarm '{sorted(alarming)[0]}' is in the state ALARM, so that the deployment would be "
            "rolled back at once; leave the alarm out of AutoRollbackConfiguration to deploy what mends it"
        )


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"


def _wrong(what: str) -> ApiError:
    return invalid(f"DeploymentConfig: {what}")
