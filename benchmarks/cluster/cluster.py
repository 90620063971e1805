"""The host's control plane, routing and residency before a cluster of nodes that are models of time."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from benchmarks.cluster.clients import Clients
from benchmarks.cluster.instances import Archives, Node
from benchmarks.cluster.substrate import ClusterSubstrate
from benchmarks.cluster.times import MODEL_BYTES
from benchmarks.cluster.virtual_loop import VirtualLoop
from halimede.hosting.control.controller import Controller
from halimede.hosting.control.settings import ControlSettings, Dependencies
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.metering.alarms.alarms import Alarms
from halimede.hosting.metering.metering import Metering
from halimede.hosting.metering.pace import Pace
from halimede.hosting.routing.residency.residency import MultiModelResidency
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.table import EndpointRoute, Residency, RoutingTable, VariantRoute
from halimede.hosting.scaling.autoscaling import Autoscaling
from halimede.hosting.substrates.base import Resources

CALLER = Caller()
ENDPOINT, VARIANT = "many", "AllTraffic"
_ROLE = "arn:aws:iam::000000000000:role/x"
_NODE_CACHE = 1000
"""Archives that a node keeps: 95 GB."""

CONTROL = ControlSettings(first_ping_s=0.1, ping_s=30.0, describe_hold_s=600.0)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What there is.

    Attributes:
        nodes: how many machines.
        per_node: how many instances each of them takes.
        processors: of an instance.
        each: how many models an instance has memory for.
        volume_gb: disk of an instance.
    """

    nodes: int
    per_node: int
    processors: int = 2
    each: int = 20
    volume_gb: int = 20

    @property
    def memory_bytes(self) -> int:
        """Memory of an instance."""
        return int(self.each * MODEL_BYTES * 1.01 / ResidencySettings().memory_share)


class Cluster:
    """One endpoint of many models on a cluster. `async with` starts and stops it.

    Attributes:
        loop: where it is.
        substrate: its nodes and instances.
        table: where requests go.
        clients: who sends them.
        metering: counts and keeps metrics.
        alarms: watch them.
        controller: the control plane.
        autoscaling: sets counts.
        pace: how long AWS's times take here.
    """

    def __init__(self, loop: VirtualLoop, hardware: Hardware, draw: random.Random, pace: Pace) -> None:
        """A cluster on which nothing runs."""
        self.loop = loop
        self.pace = pace
        nodes = [Node(f"node-{number}", hardware.per_node, _NODE_CACHE) for number in range(hardware.nodes)]
        self.substrate = ClusterSubstrate(nodes, hardware.processors, draw)
        self.table = RoutingTable()
        self.clients = Clients(loop, self.substrate.instances)
        self.metering: Metering
        self.alarms: Alarms
        self.controller: Controller
        self.autoscaling: Autoscaling
        self._hardware = hardware
        self._parts = AsyncExitStack()

    async def __aenter__(self) -> Self:
        parts, now = self._parts, self.loop.wall_time
        directory = Path(parts.enter_context(TemporaryDirectory()))
        substrate = self.substrate
        self.metering = Metering(
            directory / "metrics.db",
            directory / "logs",
            substrate.running,
            substrate.usage,
            self.table,
            now,
            pace=self.pace,
        )
        self.alarms = Alarms(directory / "alarms.db", self.metering.stores, now, self.pace)
        resources = Resources(self._hardware.processors, self._hardware.memory_bytes)
        dependencies = Dependencies(
            substrate,
            lambda _: Archives(),
            self.table,
            directory / "fleets",
            lambda _: resources,
            self._make_residency,
            self.metering.meter,
            CONTROL,
            ping=substrate.ping,
        )
        self.controller = Controller(dependencies, directory / "state.db")
        self.autoscaling = Autoscaling(
            directory / "scaling.db", self.controller, self.alarms, self.pace.seconds, now
        )
        await self.metering.start()
        parts.push_async_callback(self.metering.stop)
        await self.alarms.start()
        parts.push_async_callback(self.alarms.stop)
        await self.controller.start()
        parts.push_async_callback(self.controller.stop, leave=False)
        await self.autoscaling.start()
        parts.push_async_callback(self.autoscaling.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    def _make_residency(self, endpoint: EndpointId, route: VariantRoute) -> Residency:
        return MultiModelResidency(
            route,
            Archives(),
            self.metering.meter(endpoint, route.spec.name),
            ResidencySettings(),
            self.substrate.files,
            self.substrate.calls,
            self.loop.now_ns,
        )

    async def call(self, operation: str, **request: Any) -> Mapping[str, Any]:
        """Ask the control plane."""
        return await self.controller.operations()[operation](request, CALLER)

    async def create(self, count: int) -> None:
        """Have the endpoint with so many instances."""
        container = {"Image": "triton", "ModelDataUrl": "s3://bucket/models/", "Mode": "MultiModel"}
        await self.call("CreateModel", ModelName="m", ExecutionRoleArn=_ROLE, PrimaryContainer=container)
        variant = {
            "VariantName": VARIANT,
            "ModelName": "m",
            "InstanceType": "ml.local.cpu",
            "InitialInstanceCount": count,
            "VolumeSizeInGB": self._hardware.volume_gb,
        }
        await self.call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[variant])
        await self.call("CreateEndpoint", EndpointName=ENDPOINT, EndpointConfigName="c")
        await self.settled()

    async def track(self, target: float, minimum: int, maximum: int) -> None:
        """Have the endpoint scaled by its requests a minute for each instance, with AWS's cooldowns."""
        operations = self.autoscaling.service().operations
        which = {
            "ServiceNamespace": "sagemaker",
            "ResourceId": f"endpoint/{ENDPOINT}/variant/{VARIANT}",
            "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        }
        bounds = {"MinCapacity": minimum, "MaxCapacity": maximum}
        await operations["RegisterScalableTarget"]({**which, **bounds}, CALLER)
        metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
        config = {"TargetValue": target, "PredefinedMetricSpecification": metric}
        request = {
            **which,
            "PolicyName": "requests",
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": config,
        }
        await operations["PutScalingPolicy"](request, CALLER)

    async def settled(self) -> None:
        """Return once nothing is done to the endpoint.

        Raises:
            RuntimeError: it is not in service.
        """
        described = await self.call("DescribeEndpoint", EndpointName=ENDPOINT)
        if described["EndpointStatus"] != "InService":
            raise RuntimeError(
                f"the endpoint is {described['EndpointStatus']}: {described.get('FailureReason')}"
            )

    @property
    def route(self) -> EndpointRoute:
        """Where the endpoint's requests go."""
        route = self.table.find(*CALLER.scope, ENDPOINT)
        assert route is not None
        return route

    @property
    def loads(self) -> int:
        """How often an instance has loaded a model."""
        self.metering.flush()
        [meter] = self.metering.meters().values()
        return int(meter.counts["ModelLoadingTime"])

    @property
    def serving(self) -> int:
        """How many instances take requests."""
        return len(self.route.variants[VARIANT].targets)

    @property
    def desired(self) -> int:
        """How many instances there are to be."""
        capacity = self.controller.capacity(self.route.id, VARIANT)
        assert capacity is not None
        return capacity.desired

    async def drained(self) -> None:
        """Return once each request is over."""
        outcomes = self.clients.outcomes
        while outcomes.done < outcomes.sent:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(1)

    @property
    def nodes(self) -> Sequence[Node]:
        """The machines that run."""
        return [node for node in self.substrate.nodes if node.is_up]
