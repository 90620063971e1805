"""A cluster of nodes that are models of time, as the host sees it."""

import asyncio
import random
from collections.abc import Mapping, Sequence

from benchmarks.cluster.instances import Files, Instance, Node
from benchmarks.cluster.times import PING_S, START_S
from halimede.hosting.errors import ApiError
from halimede.hosting.routing.residency.model_calls import ModelCalls
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.table import Target
from halimede.hosting.substrates.base import (
    InstanceRequest,
    ModelArchive,
    ModelFiles,
    OnExit,
    Resources,
    RunningInstance,
)
from halimede.hosting.substrates.use import InstanceUse

_SPREAD = (0.8, 1.6)
"""Of the time that a start takes; they do not all take the same."""


class ClusterSubstrate:
    """Instances on the nodes of a cluster (`Substrate`).

    Attributes:
        nodes: the machines.
        instances: those that run, by id.
        instance_s: how long instances have run together, those that have ended.
    """

    def __init__(self, nodes: Sequence[Node], processors: int, draw: random.Random) -> None:
        """Nodes on which nothing runs; an instance has so many processors."""
        self.nodes = nodes
        self.instances: dict[str, Instance] = {}
        self.instance_s = 0.0
        self._processors = processors
        self._draw = draw
        self._loop = asyncio.get_running_loop()
        self._began: dict[str, float] = {}
        self._ready_at: dict[int, float] = {}
        self._ports: dict[str, int] = {}
        self._running: dict[str, RunningInstance] = {}
        self._on_exit: OnExit
        self._launches = 0

    # Substrate

    async def open(self) -> str:
        """There is nothing to connect to."""
        return ""

    async def start(self, on_exit: OnExit) -> Sequence[RunningInstance]:
        """Begin; nothing runs."""
        self._on_exit = on_exit
        return ()

    async def prepare(self, archive: ModelArchive) -> None:
        """Nodes fetch archives when they need them."""

    async def launch(
        self,
        request: InstanceRequest,
        variables: Mapping[str, str] | None = None,
        archives: Mapping[str, ModelArchive] | None = None,
    ) -> RunningInstance:
        """Start an instance on the node that has the most room."""
        able = [node for node in self.nodes if node.is_up and len(node.instances) < node.room]
        if not able:
            raise ApiError("ResourceLimitExceeded", "no node has room for an instance")
        node = max(able, key=lambda node: node.room - len(node.instances))
        instance = Instance(request.id, node, self._processors, request.resources.memory_bytes)
        node.instances[request.id] = self.instances[request.id] = instance
        self._launches += 1
        port = self._ports[request.id] = self._launches
        self._began[request.id] = self._loop.time()
        self._ready_at[port] = self._loop.time() + START_S * self._draw.uniform(*_SPREAD)
        running = self._running[request.id] = RunningInstance(request, node.name, port, node=node.name)
        return running

    def running(self) -> Sequence[RunningInstance]:
        """The instances that run."""
        return list(self._running.values())

    def files(self, instance: RunningInstance) -> ModelFiles:
        """The archives of a multi-model instance."""
        return Files(self.instances[instance.request.id])

    async def usage(self) -> Mapping[str, InstanceUse]:
        """Nothing is measured."""
        return {}

    async def failure(self, instance_id: str) -> str:
        """Nothing is printed."""
        return ""

    async def terminate(self, instance_id: str, grace_s: float = 30.0) -> None:
        """End an instance."""
        instance = self.instances.get(instance_id)
        if instance is not None:
            self._end(instance)

    def waiting(self, instance_id: str) -> str:
        """Launches do not wait for room."""
        return ""

    def largest(self) -> Resources:
        """The most that one instance can have."""
        return Resources(float(self._processors), 1 << 40)

    async def stop(self, *, leave: bool) -> None:
        """End all of them."""
        for instance in list(self.instances.values()):
            self._end(instance)

    # what else the simulation needs

    def calls(self, target: Target, instance: RunningInstance, settings: ResidencySettings) -> ModelCalls:
        """How an instance is asked to load and unload models."""
        return self.instances[target.id]

    async def ping(self, host: str, port: int, timeout_s: float) -> str:
        """Whether an instance answers."""
        await asyncio.sleep(PING_S)
        ready_at = self._ready_at.get(port)
        return "" if ready_at is not None and ready_at <= self._loop.time() else "it accepts no connection"

    def fail(self, node: Node, noticed_s: float, back_s: float) -> int:
        """Let a node fail; the host hears of it later, and later still it is back, empty: how many instances it had."""
        node.is_up = False
        node.forget()
        lost = list(node.instances.values())
        for instance in lost:
            self._end(instance)
            self._loop.call_later(noticed_s, self._on_exit, instance.id, f"node {node.name} has failed")
        self._loop.call_later(back_s, self._return, node)
        return len(lost)

    def _return(self, node: Node) -> None:
        node.is_up = True

    def _end(self, instance: Instance) -> None:
        del self.instances[instance.id]
        del self._running[instance.id]
        del instance.node.instances[instance.id]
        del self._ready_at[self._ports.pop(instance.id)]
        self.instance_s += self._loop.time() - self._began.pop(instance.id)
        instance.fail()

    def used_s(self) -> float:
        """How long instances have run together."""
        now = self._loop.time()
        return self.instance_s + sum(now - began for began in self._began.values())
