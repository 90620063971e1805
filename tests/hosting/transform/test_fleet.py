"""The instances of jobs: those of the control plane's fleets, with what containers find in transform jobs."""

from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import TRANSFORM_JOBS
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.transform.fleet import InstanceFleet
from halimede.hosting.transform.job_record import JobRecord, Status
from halimede.hosting.transform.lanes import Lanes
from halimede.hosting.transform.spec import TransformSpec
from tests.hosting.control import fakes
from tests.hosting.control.fakes import CALLER, URL, on_loop
from tests.hosting.transform.fakes import request
from tests.support.waiting import wait_until_async


def fleet_of(
    world: fakes.World, lanes: Lanes, adopted: list[RunningInstance] | None = None, **members: Any
) -> InstanceFleet:
    document = request("j", Environment={"B": "job", "C": "job"}, MaxPayloadInMB=3, **members)
    container = {"Image": "image", "ModelDataUrl": URL, "Environment": {"A": "model", "B": "model"}}
    model = {"PrimaryContainer": container}
    record = JobRecord("j", *CALLER.scope, "arn", Status.IN_PROGRESS, document, model, "f-job", 0.0, 0.0)
    return InstanceFleet(world.dependencies(), record, TransformSpec.of(document), lanes, adopted or [])


@on_loop
async def test_instances_are_started_replaced_and_ended(tmp_path: Path) -> None:
    async with fakes.World(tmp_path) as world:
        lanes = Lanes(2, 5.0)
        fleet = fleet_of(world, lanes, InstanceCount=2)
        await fleet.start()
        assert len(lanes.targets) == 2
        launched = world.substrate.launched[0]
        assert (launched.endpoint, launched.variant, launched.fleet) == (TRANSFORM_JOBS, "j", "f-job")
        assert launched.environment == {
            "A": "model",
            "B": "job",
            "C": "job",
            "SAGEMAKER_BATCH": "true",
            "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
            "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "1",
            "SAGEMAKER_MAX_PAYLOAD_IN_MB": "3",
        }
        assert launched.model is not None
        assert not world.table.routes()
        assert world.roles == {("f-job", "j")}

        lane = await lanes.acquire()
        dead = lane.target.id
        world.substrate.instances.pop(dead).close()
        assert fleet.ended(dead, "it was killed")
        assert not fleet.ended("i-other", "it was killed")
        assert lane.lost.done()
        await wait_until_async(lambda: len(lanes.targets) == 2)
        assert dead not in {target.id for target in lanes.targets}

        lanes.release(lane)
        await fleet.retire()
        assert not world.substrate.instances
        assert not lanes.targets
        assert not world.roles
        assert not list((tmp_path / "fleets").iterdir())


@on_loop
async def test_instances_of_an_earlier_host_are_taken_over(tmp_path: Path) -> None:
    async with fakes.World(tmp_path) as world:
        lanes = Lanes(2, 5.0)
        fleet = fleet_of(world, lanes, InstanceCount=2)
        await fleet.start()
        before = set(world.substrate.instances)
        await fleet.forget()
        assert not lanes.targets
        assert set(world.substrate.instances) == before

        running = [instance.running for instance in world.substrate.instances.values()]
        again = fleet_of(world, lanes, running, InstanceCount=2)
        await again.start()
        assert {target.id for target in lanes.targets} == before
        assert len(world.substrate.launched) == 2
        await again.retire()
        assert not world.substrate.instances


@on_loop
async def test_an_instance_that_ends_before_it_is_taken_over_is_replaced(tmp_path: Path) -> None:
    async with fakes.World(tmp_path) as world:
        lanes = Lanes(2, 5.0)
        fleet = fleet_of(world, lanes)
        await fleet.start()
        await fleet.forget()
        [(name, instance)] = world.substrate.instances.items()
        again = fleet_of(world, lanes, [instance.running])
        world.substrate.instances.pop(name).close()
        assert again.ended(name, "it was killed")
        await again.start()
        assert [target.id for target in lanes.targets] == list(world.substrate.instances) != [name]
        await again.retire()


@on_loop
async def test_instances_of_a_job_that_is_over_are_ended_and_none_is_started(tmp_path: Path) -> None:
    async with fakes.World(tmp_path) as world:
        lanes = Lanes(2, 5.0)
        fleet = fleet_of(world, lanes)
        await fleet.start()
        await fleet.forget()
        running = [instance.running for instance in world.substrate.instances.values()]
        await fleet_of(world, lanes, running).retire()
        assert not world.substrate.instances
        assert len(world.substrate.launched) == 1


@on_loop
async def test_why_an_instance_does_not_come_up(tmp_path: Path) -> None:
    async with fakes.World(tmp_path) as world:
        world.substrate.die = 2
        fleet = fleet_of(world, Lanes(2, 5.0))

        def ended(instance_id: str, reason: str) -> None:
            fleet.ended(instance_id, reason)

        await world.substrate.start(ended)
        with pytest.raises(ApiError) as raised:
            await fleet.start()
        text = "The primary container for transform job j did not pass the ping health check"
        assert raised.value.message.startswith(text)
        assert "in /aws/sagemaker/TransformJobs" in raised.value.message
        await fleet.retire()
