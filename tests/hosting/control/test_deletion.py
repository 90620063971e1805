"""Endpoints are deleted in every state, and nothing is left of them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from halimede.hosting.errors import invalid
from tests.hosting.control.fakes import World, on_loop, variant
from tests.support.waiting import wait_until_async


async def _creating_fetching(world: World) -> None:
    world.source.gate.clear()
    await world.create_model()
    await world.create_config("c", variant(count=2))
    await world.create_endpoint()
    await wait_until_async(lambda: bool(world.source.fetched))


async def _creating_launching(world: World) -> None:
    world.substrate.gate.clear()
    await world.create_model()
    await world.create_config("c", variant(count=2))
    await world.create_endpoint()
    await wait_until_async(lambda: bool(world.substrate.launched))


async def _creating_pinging(world: World) -> None:
    world.substrate.ping = 503
    await world.create_model()
    await world.create_config("c", variant(count=2))
    await world.create_endpoint()
    await wait_until_async(lambda: len(world.substrate.instances) == 2)


async def _in_service(world: World) -> None:
    await world.serve(variant(count=2), variant("B"))


async def _replacing(world: World) -> None:
    await world.serve(variant(count=2))
    world.substrate.gate.clear()
    world.substrate.kill(world.substrate.of()[0])
    await wait_until_async(lambda: len(world.substrate.launched) == 3)


async def _updating(world: World) -> None:
    await world.serve(variant(count=2))
    world.substrate.gate.clear()
    await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
    await wait_until_async(lambda: len(world.substrate.launched) == 4)


async def _growing(world: World) -> None:
    await world.serve()
    world.substrate.gate.clear()
    wanted = [{"VariantName": "A", "DesiredInstanceCount": 3}]
    await world.call(
        "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=wanted
    )
    await wait_until_async(lambda: len(world.substrate.launched) == 3)


async def _draining(world: World) -> None:
    await world.serve()
    (target,) = world.targets()
    target.inflight += 1
    await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
    await wait_until_async(lambda: target.draining)
    asyncio.get_running_loop().call_later(0.1, target.answered)


async def _rolling_back(world: World) -> None:
    await world.serve()
    terminate = world.substrate.terminate

    async def slowly(instance_id: str, grace_s: float = 30.0) -> None:
        await asyncio.sleep(0.1)  # sleeps: the end of a process
        await terminate(instance_id, grace_s)

    world.substrate.terminate = slowly  # type: ignore[method-assign]
    world.substrate.die = 1
    world.substrate.ping = 503
    await world.create_config("c2", variant(ContainerStartupHealthCheckTimeoutInSeconds=0, count=3))
    await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    await wait_until_async(lambda: world.now() == "RollingBack")


async def _failed(world: World) -> None:
    world.source.failure = invalid("no")
    await world.create_model()
    await world.create_config()
    await world.create_endpoint()
    assert await world.status() == "Failed"


async def _recovering(world: World) -> None:
    await world.serve(variant(count=2))
    await world.controller.stop(leave=True)
    world.substrate.kill_unseen(world.substrate.of()[0])
    world.substrate.gate.clear()
    await world.start()
    assert world.now() == "SystemUpdating"


STATES: list[Callable[[World], Awaitable[None]]] = [
    _creating_fetching, _creating_launching, _creating_pinging, _in_service, _replacing, _updating, _growing,
    _draining, _rolling_back, _failed, _recovering,
]  # fmt: skip


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__.strip("_"))
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@on_loop
async def test_an_endpoint_is_deleted_in_every_state(
    tmp_path: Path, state: Callable[[World], Awaitable[None]], restarted: bool
) -> None:
    async with World(tmp_path) as world:
        await state(world)
        assert await world.call("DeleteEndpoint", EndpointName="e") == {}
        assert await world.call("DeleteEndpoint", EndpointName="e") == {}
        assert world.route() is None
        world.substrate.gate.set()
        world.source.gate.set()
        if restarted:
            await world.restart()
        await wait_until_async(lambda: not world.endpoints)
        assert world.deleted == ["e"]
        assert not world.substrate.instances
        assert not list((tmp_path / "fleets").glob("*"))
        assert (await world.call("ListEndpoints"))["Endpoints"] == []
        text = 'Could not find endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e".'
        assert await world.refused("DescribeEndpoint", EndpointName="e") == text
        # the name is free, and the next one of it is left alone
        world.substrate.ping, world.source.failure, world.substrate.die = 200, None, 0
        await world.create_endpoint()
        assert await world.status() == "InService"
        await world.restart()
        assert await world.status() == "InService"


@on_loop
async def test_a_held_describe_tells_that_the_endpoint_is_gone(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (target,) = world.targets()
        target.inflight += 1
        await world.call("DeleteEndpoint", EndpointName="e")
        describing = asyncio.ensure_future(world.refused("DescribeEndpoint", EndpointName="e"))
        refused = await world.refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
        assert refused.startswith("Cannot update in-progress endpoint")
        assert "already existing" in await world.refused(
            "CreateEndpoint", EndpointName="e", EndpointConfigName="c"
        )
        assert not describing.done()
        target.answered()
        assert (await describing).startswith("Could not find endpoint")


@on_loop
async def test_a_deletion_that_cannot_be_kept_has_not_happened(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        world.set_writable(False)
        with pytest.raises(Exception, match="cannot be read or written"):
            await world.call("DeleteEndpoint", EndpointName="e")
        with pytest.raises(Exception, match="cannot be read or written"):
            await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
        assert await world.status() == "InService"
        assert len(world.targets()) == 1
        await world.call("ListEndpoints")
        world.set_writable(True)
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
        assert await world.status() == "InService"


@on_loop
async def test_an_endpoint_settles_when_its_state_can_be_written_again(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.gate.clear()
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        await wait_until_async(lambda: bool(world.substrate.launched))
        world.set_writable(False)
        world.substrate.gate.set()
        assert await world.status() == "InService"
        world.set_writable(True)
        await world.call("DeleteEndpoint", EndpointName="e")
        await wait_until_async(lambda: not world.endpoints)
