"""Where a model goes that no instance holds, on virtual time."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.cluster.clients import Clients
from benchmarks.cluster.instances import Archives, Node
from benchmarks.cluster.substrate import ClusterSubstrate
from benchmarks.cluster.times import MODEL_BYTES
from benchmarks.cluster.virtual_loop import VirtualLoop, run
from halimede.hosting.identity import Scope
from halimede.hosting.routing.residency.entry import hash_of
from halimede.hosting.routing.residency.residency import MultiModelResidency
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.table import EndpointRoute, Target, VariantRoute
from halimede.hosting.specs import Container, Variant
from halimede.hosting.substrates.base import InstanceRequest, Resources
from halimede.http1.upstream import UpstreamPool


class Rig:
    """A multi-model variant whose instances, `0`, `1` …, are on the nodes `a` and `b` in turn."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.nodes = {name: Node(name, 10, 100) for name in "ab"}
        self.substrate = ClusterSubstrate(list(self.nodes.values()), 1, random.Random(0))
        container = Container("image", "s3://bucket/models/", multi_model=True)
        self.variant = VariantRoute(Variant("AllTraffic", "model", container, "ml.local.cpu"), 1.0)
        self.route = EndpointRoute("e", "arn", "us-east-1", "000000000000", "c", {"AllTraffic": self.variant})
        self.residency = MultiModelResidency(
            self.variant, Archives(), None, None, self.substrate.files, self.substrate.calls, loop.now_ns
        )
        self.variant.residency = self.residency
        self.clients = Clients(loop, self.substrate.instances)
        self.count = 0

    async def join(self, room: int) -> None:
        """Another instance, with room for so many models."""
        memory = int(room * MODEL_BYTES * 1.01 / ResidencySettings().memory_share)
        name = str(self.count)
        request = InstanceRequest(
            name, *Scope(), "e", "AllTraffic", "f", "image", {}, None, True, Resources(1, memory)
        )
        instance = await self.substrate.launch(request)
        target = Target(name, UpstreamPool(instance.host, instance.port))
        self.count += 1
        self.variant.targets.append(target)
        self.residency.joined(target, instance)

    async def leave(self, name: str) -> None:
        """An instance goes."""
        [target] = [each for each in self.variant.targets if each.id == name]
        self.variant.targets.remove(target)
        self.residency.left(target)
        await self.substrate.terminate(name)

    async def ask(self, *models: str) -> None:
        """Requests for models at the same time; each is answered."""
        for model in models:
            self.clients.send(self.route, model, 0.01)
        outcomes = self.clients.outcomes
        while outcomes.done < outcomes.sent:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.1)  # sleeps: in virtual time
        assert outcomes.answered == outcomes.sent

    def holding(self, model: str) -> str:
        """The instance that has a model."""
        [name] = [name for name, each in self.substrate.instances.items() if hash_of(model) in each.models]
        return name

    @property
    def fetches(self) -> int:
        """How many archives nodes have fetched."""
        return sum(node.fetches for node in self.nodes.values())


def placed(rooms: Sequence[int], test: Callable[[Rig], Awaitable[None]]) -> None:
    """Run a test with instances that have room for so many models."""

    async def work(loop: VirtualLoop) -> None:
        rig = Rig(loop)
        for room in rooms:
            await rig.join(room)
        await test(rig)
        await rig.residency.close()

    run(work)


def test_an_instance_that_has_the_files_loads_the_model_again() -> None:
    async def test(rig: Rig) -> None:
        names = [f"m{number}" for number in range(40)]
        where = {}
        for name in names:
            await rig.ask(name)
            where[name] = rig.holding(name)
        assert len(set(where.values())) == 4
        assert rig.fetches == 40
        lost = [name for name in names if not any(
            hash_of(name) in each.models for each in rig.substrate.instances.values()
        )]  # fmt: skip
        assert len(lost) >= 28
        for name in lost:
            await rig.ask(name)
            assert rig.holding(name) == where[name]
        assert rig.fetches == 40

    placed([3, 3, 3, 3], test)


def test_an_instance_of_the_machine_that_has_the_archive_takes_the_place_of_one_that_is_gone() -> None:
    async def test(rig: Rig) -> None:
        names = [f"m{number}" for number in range(30)]
        await rig.ask(*names)
        fetches = {name: node.fetches for name, node in rig.nodes.items()}
        moved = [name for name in names if rig.holding(name) == "0"]
        assert moved
        await rig.leave("0")
        await rig.ask(*moved)
        assert {rig.substrate.instances[rig.holding(name)].node.name for name in moved} == {"a"}
        assert {name: node.fetches for name, node in rig.nodes.items()} == fetches

    placed([100] * 6, test)


def test_room_matters_more_than_files() -> None:
    async def test(rig: Rig) -> None:
        await rig.ask("m0")
        await rig.ask("m1")  # for which m0 goes
        await rig.join(5)
        await rig.ask("m0")
        assert (rig.holding("m1"), rig.holding("m0")) == ("0", "1")

    placed([1], test)


def test_an_empty_instance_is_given_no_more_models_at_once_than_it_has_room_for() -> None:
    async def test(rig: Rig) -> None:
        for number in range(20):
            await rig.ask(f"before-{number}")
        await rig.join(5)
        await rig.ask(*(f"new-{number}" for number in range(12)))
        holding = [
            name for name in (f"new-{number}" for number in range(12))
            if hash_of(name) in rig.substrate.instances["4"].models
        ]  # fmt: skip
        assert len(holding) == 5

    placed([4] * 4, test)


def test_machines_that_do_not_answer_are_left_alone_while_others_load_the_model() -> None:
    async def test(rig: Rig) -> None:
        names = [f"m{number}" for number in range(12)]
        await rig.ask(*names)
        moved = [name for name in names if int(rig.holding(name)) % 2 == 0]
        assert moved
        for name in ("0", "2", "4"):  # the host does not know
            await rig.substrate.terminate(name)
        await rig.ask(*moved)
        assert {rig.substrate.instances[rig.holding(name)].node.name for name in moved} == {"b"}

    placed([10] * 6, test)
