"""Experiments that could not be run are refused."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from halimede.hosting.deployed import Deployed
from halimede.hosting.errors import invalid
from halimede.hosting.experiments.records import ExperimentRecord, Status

DAY = 86_400
_USUAL_DAYS = 7
_MOST_DAYS = 30
_SKEW_S = 60
"""So long ago a start may be that is meant as now: clocks differ, and requests take time."""

Request = Mapping[str, Any]


def schedule_of(schedule: Request, now: float, start: float | None = None) -> tuple[float, float]:
    """When an experiment is to start and to end.

    Args:
        schedule: `InferenceExperimentSchedule`.
        now: the time.
        start: when it has started, or is to start unless the schedule says.

    Raises:
        ApiError: that is in the past, or too long.
    """
    begin = _seconds(schedule.get("StartTime"))
    if begin is None:
        begin = now if start is None else start
    elif begin < now - _SKEW_S:
        raise invalid("Schedule: StartTime is in the past; leave it out to start at once")
    end = _seconds(schedule.get("EndTime"))
    if end is None:
        end = begin + _USUAL_DAYS * DAY
    if end <= now:
        raise invalid("Schedule: EndTime is in the past")
    if end <= begin:
        raise invalid("Schedule: EndTime must be after StartTime")
    if end - begin > _MOST_DAYS * DAY:
        raise invalid(f"Schedule: an experiment runs for {_MOST_DAYS} days at most")
    return begin, end


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def check_experiment(request: Request, deployed: Deployed | None) -> None:
    """Refuse an experiment that its endpoint cannot have.

    Args:
        request: `CreateInferenceExperiment`, or what an update makes of it.
        deployed: its endpoint; None if there is none.

    Raises:
        ApiError: it contradicts itself, or its endpoint has not one production variant of the name that it says.
    """
    mode = request["ShadowModeConfig"]
    production = mode["SourceModelVariantName"]
    [shadow] = mode["ShadowModelVariants"]
    names = [variant["VariantName"] for variant in request["ModelVariants"]]
    wanted = [production, shadow["ShadowModelVariantName"]]
    if len(set(wanted)) < len(wanted):
        raise invalid(f"ShadowModeConfig: the variant '{production}' cannot be its own shadow")
    if sorted(names) != sorted(wanted):
        msg = (
            f"ModelVariants has {', '.join(names)}; it must have the production variant and the shadow variant of "
            f"ShadowModeConfig, {' and '.join(wanted)}"
        )
        raise invalid(msg)
    if not 0 <= shadow["SamplingPercentage"] <= 100:
        raise invalid(f"SamplingPercentage is {shadow['SamplingPercentage']}; it must be from 0 to 100")
    for variant in request["ModelVariants"]:
        count = variant["InfrastructureConfig"]["RealTimeInferenceConfig"]["InstanceCount"]
        if count < 1:
            raise invalid(
                f"variant '{variant['VariantName']}': InstanceCount is {count}; it must be 1 or more"
            )
    if deployed is None:
        raise invalid(f'Could not find endpoint "{request["EndpointName"]}".')
    if deployed.status == "Failed":
        raise invalid(f'Endpoint "{request["EndpointName"]}" has failed; an experiment needs one that serves')
    productions = [variant["VariantName"] for variant in deployed.config["ProductionVariants"]]
    if productions != [production]:
        msg = (
            f"SourceModelVariantName is {production}, and the production variants of endpoint "
            f'"{request["EndpointName"]}" are {", ".join(productions)}; it must have that one alone'
        )
        raise invalid(msg)


def check_update(record: ExperimentRecord, request: Request) -> None:
    """Refuse an update of what cannot be changed while an experiment runs.

    Raises:
        ApiError: it changes the start.
    """
    if record.status is Status.RUNNING and "StartTime" in request.get("Schedule", {}):
        raise invalid(
            f'Inference experiment "{record.name}" is running: only the EndTime of its schedule may change'
        )


def actions_of(record: ExperimentRecord, request: Request) -> tuple[str, str]:
    """What becomes of the production variant and of its shadow: ``Retain``, ``Remove`` or ``Promote``.

    Raises:
        ApiError: no production variant would be left, or two would.
    """
    actions: Mapping[str, str] = request["ModelVariantActions"]
    production, shadow = record.production, record.shadow
    others = sorted(set(actions) - {production, shadow})
    if others:
        msg = f"ModelVariantActions: the experiment has no variant '{others[0]}'; it has {production} and {shadow}"
        raise invalid(msg)
    first = actions.get(production, "Remove" if actions.get(shadow) == "Promote" else "Retain")
    second = actions.get(shadow, "Remove")
    if first == "Promote":
        raise invalid(f"ModelVariantActions: '{production}' is the production variant; it cannot be promoted")
    if first == "Remove" and second != "Promote":
        msg = f"ModelVariantActions: '{production}' can be removed only if its shadow '{shadow}' is promoted"
        raise invalid(msg)
    if first == "Retain" and second == "Promote":
        msg = (
            f"ModelVariantActions: '{shadow}' takes the place of '{production}' when it is promoted; set "
            f"'{production}' to Remove"
        )
        raise invalid(msg)
    return first, second
