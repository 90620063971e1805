"""Another controller takes over what one before it left."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from halimede.hosting.errors import invalid
from halimede.hosting.identity import Scope
from halimede.hosting.substrates.base import InstanceRequest, OnExit, Resources, RunningInstance
from tests.hosting.control.fakes import World, on_loop, variant
from tests.support.waiting import wait_until_async


@on_loop
async def test_instances_that_run_on_are_taken_over(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant("A", 2), variant("B"))
        before = set(world.substrate.instances)
        created = (await world.describe())["CreationTime"]
        await world.restart()
        described = await world.describe()
        assert described["EndpointStatus"] == "InService"
        assert described["CreationTime"] == created
        assert set(world.substrate.instances) == before
        assert {target.id for name in "AB" for target in world.targets(name)} == before
        assert len(world.source.fetched) == 2
        # and they are looked after
        world.substrate.kill(world.substrate.of("B")[0])
        await wait_until_async(lambda: len(world.substrate.launched) == 4 and len(world.targets("B")) == 1)


@on_loop
async def test_what_is_missing_is_started_and_what_is_too_many_ends(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant("A", 2))
        victim, kept = world.substrate.of()
        fleet = world.substrate.launched[0].fleet
        await world.controller.stop(leave=True)
        world.substrate.kill_unseen(victim)
        for number, of in enumerate((fleet, fleet, "f-unknown")):
            resources = Resources(1, 1)
            await world.substrate.launch(
                InstanceRequest(f"i-{number}", *Scope(), "e", "A", of, "halimede", {}, None, False, resources)
            )
        await world.start()
        assert await world.status() == "InService"
        assert len(world.substrate.instances) == 2
        assert kept in world.substrate.instances
        assert "i-2" not in world.substrate.instances


@on_loop
async def test_directories_of_fleets_that_are_no_more_are_removed(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (fleet,) = (tmp_path / "fleets").iterdir()
        await world.controller.stop(leave=True)
        (tmp_path / "fleets" / "f-old" / "A").mkdir(parents=True)
        await world.start()
        assert list((tmp_path / "fleets").iterdir()) == [fleet]
        assert await world.status() == "InService"


@on_loop
async def test_creating_goes_on(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.ping = 503
        await world.create_model()
        await world.create_config("c", variant(count=2))
        await world.create_endpoint()
        await wait_until_async(lambda: len(world.substrate.instances) == 2)
        before = set(world.substrate.instances)
        await world.restart()
        assert world.now() == "Creating"
        for instance in world.substrate.instances.values():
            instance.ping = 200
        assert await world.status() == "InService"
        assert set(world.substrate.instances) == before


@on_loop
async def test_updating_goes_on_beside_the_fleet_that_serves(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (old,) = world.substrate.of()
        await world.create_config("c2", variant(count=2))
        world.substrate.ping = 503
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
        await wait_until_async(lambda: len(world.substrate.instances) == 3)
        before = set(world.substrate.instances)
        await world.restart()
        await wait_until_async(lambda: [target.id for target in world.targets()] == [old])
        assert world.now() == "Updating"
        for instance in world.substrate.instances.values():
            instance.ping = 200
        described = await world.describe()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        await wait_until_async(lambda: set(world.substrate.instances) == before - {old})


@on_loop
async def test_rolling_back_goes_on(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (old,) = world.substrate.of()
        await world.create_config("c2", variant(count=2, ContainerStartupHealthCheckTimeoutInSeconds=0))
        world.substrate.ping = 503
        terminating = asyncio.Event()
        terminate = world.substrate.terminate

        async def never(instance_id: str, grace_s: float = 30.0) -> None:
            terminating.set()
            await asyncio.Event().wait()

        world.substrate.terminate = never  # type: ignore[method-assign]
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
        await wait_until_async(lambda: world.now() == "RollingBack" and terminating.is_set())
        await world.controller.stop(leave=True)
        world.substrate.terminate = terminate  # type: ignore[method-assign]
        await world.start()
        described = await world.describe()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
        assert "did not pass the ping health check" in described["FailureReason"]
        assert world.substrate.of() == [old]


@on_loop
async def test_growing_goes_on(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        world.substrate.ping = 503
        wanted = [{"VariantName": "A", "DesiredInstanceCount": 3, "DesiredWeight": 2.0}]
        await world.call(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=wanted
        )
        await wait_until_async(lambda: len(world.substrate.instances) == 3)
        await world.restart()
        for instance in world.substrate.instances.values():
            instance.ping = 200
        assert await world.status() == "InService"
        (of,) = (await world.describe())["ProductionVariants"]
        assert (of["CurrentInstanceCount"], of["CurrentWeight"]) == (3, 2.0)


@on_loop
async def test_a_failed_endpoint_stays_failed_with_its_reason(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.source.failure = invalid("there is no such archive")
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        assert await world.status() == "Failed"
        world.source.failure = None
        await world.restart()
        described = await world.describe()
        assert (described["EndpointStatus"], described["FailureReason"]) == (
            "Failed",
            "there is no such archive",
        )
        assert not world.substrate.launched


@on_loop
async def test_an_endpoint_that_served_does_not_fail_because_an_instance_does_not_come_up(
    tmp_path: Path,
) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=2))
        victim, kept = world.substrate.of()
        await world.controller.stop(leave=True)
        world.substrate.kill_unseen(victim)
        world.substrate.refusal = invalid("no room for another instance")
        await world.start()
        described = await world.describe()
        assert described["EndpointStatus"] == "InService"
        assert described["FailureReason"] == "no room for another instance"
        assert [target.id for target in world.targets()] == [kept]
        world.substrate.refusal = None
        await wait_until_async(lambda: len(world.targets()) == 2)


@on_loop
async def test_an_adopted_instance_that_dies_before_it_is_looked_at_is_replaced(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.controller.stop(leave=True)
        start = world.substrate.start

        async def start_and_kill(on_exit: OnExit) -> Sequence[RunningInstance]:
            running = await start(on_exit)
            asyncio.get_running_loop().call_soon(world.substrate.kill, running[0].request.id)
            return running

        world.substrate.start = start_and_kill  # type: ignore[method-assign]
        await world.start()
        assert await world.status() == "InService"
        assert len(world.targets()) == 1
        assert len(world.substrate.launched) == 2


@on_loop
async def test_stopping_without_leaving_ends_what_is_being_started(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world:
        world.substrate.gate.clear()
        await world.create_model()
        await world.create_config("c", variant(count=3))
        await world.create_endpoint()
        await wait_until_async(lambda: len(world.substrate.launched) == 3)
        asyncio.get_running_loop().call_later(0.05, world.substrate.gate.set)
    assert not world.substrate.instances
