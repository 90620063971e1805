"""Instances that die or hang are replaced."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.substrates.base import InstanceRequest, RunningInstance
from tests.hosting.control.fakes import QUICK, World, on_loop, variant
from tests.support.waiting import wait_until_async


@on_loop
async def test_an_instance_that_dies_is_replaced(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=2))
        victim, other = world.substrate.of()
        world.substrate.kill(victim)
        await wait_until_async(lambda: [target.id for target in world.targets()] == [other])
        described = await world.describe()
        assert described["EndpointStatus"] == "InService"
        assert described["ProductionVariants"][0]["DesiredInstanceCount"] == 2
        await wait_until_async(lambda: len(world.targets()) == 2)
        assert victim not in {target.id for target in world.targets()}
        # the archive is fetched once for the fleet
        assert len(world.source.fetched) == 1


@pytest.mark.parametrize("ping", [500, 0])
@on_loop
async def test_an_instance_that_stops_answering_is_replaced(tmp_path: Path, ping: int) -> None:
    async with World(tmp_path, replace(QUICK, ping_timeout_s=0.1)) as world:
        await world.serve()
        (sick,) = world.substrate.of()
        world.substrate.instances[sick].ping = ping
        await wait_until_async(lambda: bool(world.targets()) and world.targets()[0].id != sick)
        assert sick not in world.substrate.instances


@on_loop
async def test_one_ping_without_an_answer_is_forgiven(tmp_path: Path) -> None:
    async with World(tmp_path, replace(QUICK, failed_pings=50)) as world:
        await world.serve()
        (instance,) = world.substrate.instances.values()
        instance.ping = 500
        before = instance.pings
        await wait_until_async(lambda: instance.pings >= before + 2, "pings with an error for an answer")
        instance.ping, before = 200, instance.pings
        await wait_until_async(lambda: instance.pings >= before + 3, "pings that are answered")
        assert len(world.substrate.launched) == 1


@on_loop
async def test_replacing_is_tried_again_and_again(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        world.substrate.refusal = ApiError("ResourceLimitExceeded", "no room")
        world.substrate.kill(*world.substrate.of())
        await wait_until_async(lambda: len(world.substrate.launched) >= 4)
        world.substrate.refusal = RuntimeError("nobody foresaw this")
        await wait_until_async(lambda: len(world.substrate.launched) >= 7)
        world.substrate.refusal = None
        world.substrate.die = 3
        await wait_until_async(lambda: len(world.targets()) == 1)
        assert await world.status() == "InService"


@on_loop
async def test_replacing_takes_longer_each_time(tmp_path: Path) -> None:
    async with World(tmp_path, replace(QUICK, backoff_s=0.02, longest_backoff_s=0.08)) as world:
        await world.serve()
        world.substrate.refusal = invalid("no")
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        launch = world.substrate.launch

        async def timed(request: InstanceRequest, *further: Any) -> RunningInstance:
            times.append(loop.time())
            return await launch(request, *further)

        world.substrate.launch = timed  # type: ignore[assignment, method-assign]
        world.substrate.kill(*world.substrate.of())
        await wait_until_async(lambda: len(times) >= 6)
        waits = [after - before for before, after in pairwise(times)]
        for wait, least in zip(waits[:5], (0.02, 0.04, 0.08, 0.08, 0.08), strict=True):
            assert wait > 0.9 * least
        world.substrate.refusal = None


@on_loop
async def test_a_model_that_was_removed_is_fetched_for_the_next_instance(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        model = world.substrate.launched[0].model
        assert model is not None
        (model / "config.pbtxt").unlink()
        model.rmdir()
        world.substrate.kill(*world.substrate.of())
        await wait_until_async(lambda: len(world.substrate.launched) == 2)
        assert (model / "config.pbtxt").exists()


@on_loop
async def test_residency_learns_of_instances_that_come_and_go(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model(Mode="MultiModel", ModelDataUrl="s3://bucket/models/")
        await world.create_config("c", variant(count=2))
        await world.create_endpoint()
        assert await world.status() == "InService"
        (residency,) = world.residencies
        victim = residency.targets[0]
        world.substrate.kill(victim)
        await wait_until_async(lambda: victim not in residency.targets)
        await wait_until_async(lambda: len(residency.targets) == 2)


@on_loop
async def test_an_instance_is_replaced_whose_end_fails_in_a_way_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (victim,) = world.substrate.of()
        terminate, failures = world.substrate.terminate, [RuntimeError("unforeseen")]

        async def fail(*arguments: Any) -> None:
            if failures:
                raise failures.pop()
            await terminate(*arguments)

        monkeypatch.setattr(world.substrate, "terminate", fail)
        world.substrate.kill(victim)
        await wait_until_async(lambda: not failures and len(world.targets()) == 1)
        assert world.targets()[0].id != victim
        assert any(f"instance {victim} does not end" in message for message in caplog.messages)
