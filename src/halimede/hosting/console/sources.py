"""What the host's console shows, and where it is read."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from halimede.hosting.api.services import Operation
from halimede.hosting.control.controller import Controller
from halimede.hosting.identity import EndpointId
from halimede.hosting.metering.metering import Metering
from halimede.hosting.routing.table import RoutingTable, VariantRoute
from halimede.hosting.store.objects import Objects
from halimede.hosting.substrates.base import RunningInstance


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the console reads.

    Attributes:
        controller: the endpoints.
        table: the routes of their requests.
        metering: what is measured of them.
        instances: gives all that run.
        backlogs: asynchronous endpoint → how many of its requests have not been answered.
        copies: gives how many copies for a shadow variant have not come to their end; None if other processes have
            them.
        alarms: CloudWatch's operations on alarms.
        activities: DescribeScalingActivities.
        logs: CloudWatch Logs' operations.
        objects_of: what an account may read of the object store.
    """

    controller: Controller
    table: RoutingTable
    metering: Metering
    instances: Callable[[], Iterable[RunningInstance]]
    backlogs: Callable[[], Mapping[EndpointId, int]]
    copies: Callable[[VariantRoute], int] | None
    alarms: Mapping[str, Operation]
    activities: Operation
    logs: Mapping[str, Operation]
    objects_of: Callable[[str], Objects]
