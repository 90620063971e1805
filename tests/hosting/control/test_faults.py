"""Operations and faults in any order: nothing leaks, and what is kept is what there is."""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from halimede.hosting.control.database import DocumentKey
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import EndpointId
from tests.hosting.control.fakes import QUICK, World, on_loop, variant
from tests.support.waiting import let_pass_async, wait_until_async

NAMES = ("e", "f")
STEPS = 60


async def _operation(world: World, chance: random.Random) -> None:
    name = chance.choice(NAMES)
    what = chance.randrange(6)
    with suppress(ApiError):
        if what < 2:
            await world.create_endpoint(name, chance.choice(("c", "c2")))
        elif what == 2:
            await world.call("DeleteEndpoint", EndpointName=name)
        elif what == 3:
            await world.call(
                "UpdateEndpoint", EndpointName=name, EndpointConfigName=chance.choice(("c", "c2"))
            )
        else:
            wanted = [{"VariantName": "A", "DesiredInstanceCount": chance.randint(1, 3)}]
            await world.call(
                "UpdateEndpointWeightsAndCapacities",
                EndpointName=name,
                DesiredWeightsAndCapacities=wanted,
            )


async def _fault(world: World, chance: random.Random) -> None:
    substrate, source = world.substrate, world.source
    what = chance.randrange(9)
    if what < 3 and substrate.instances:
        substrate.kill(chance.choice(list(substrate.instances)))
    elif what == 3:
        substrate.die = chance.randint(0, 4)
    elif what == 4:
        substrate.refusal = chance.choice([None, invalid("no room"), RuntimeError("nobody foresaw this")])
    elif what == 5:
        source.failure = chance.choice([None, invalid("no archive"), RuntimeError("nobody foresaw this")])
    elif what == 6:
        (substrate.gate.clear if chance.random() < 0.5 else substrate.gate.set)()
    elif what == 7 and substrate.instances:
        chance.choice(list(substrate.instances.values())).ping = chance.choice([200, 500])
    elif what == 8 and chance.random() < 0.4:
        substrate.gate.set()  # a launch is seen through
        await world.restart()


@pytest.mark.parametrize("seed", range(12))
@on_loop
async def test_whatever_happens_nothing_leaks_and_the_state_is_consistent(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with World(tmp_path, replace(QUICK, drain_s=0.05, describe_hold_s=0)) as world:
        await world.create_model()
        await world.create_config("c", variant())
        await world.create_config("c2", variant(count=2), variant("B"))
        for _ in range(STEPS):
            await (_operation if chance.random() < 0.5 else _fault)(world, chance)
            for target in [each for name in NAMES for each in world.targets("A", name)]:
                if chance.random() < 0.2:
                    target.inflight += 1
                    asyncio.get_running_loop().call_later(chance.random() * 0.1, target.answered)
            await let_pass_async(
                chance.choice((0, 0, 0.001, 0.005, 0.02)), "the next fault comes at any moment"
            )
        _calm(world)
        await wait_until_async(lambda: all(each.is_settled for each in world.endpoints.values()))
        await wait_until_async(lambda: _is_consistent(world))
        await _check_kept(world)
        await world.restart()
        await wait_until_async(lambda: all(each.is_settled for each in world.endpoints.values()))
        await wait_until_async(lambda: _is_consistent(world))
        for *_, name in list(world.endpoints):
            await world.call("DeleteEndpoint", EndpointName=name)
        await wait_until_async(lambda: not world.endpoints)
        assert not world.substrate.instances
        assert not world.roles
        assert not list((tmp_path / "fleets").glob("*"))


def _calm(world: World) -> None:
    world.substrate.die = 0
    world.substrate.refusal = world.source.failure = None
    world.substrate.gate.set()
    for instance in world.substrate.instances.values():
        instance.ping = 200


def _is_consistent(world: World) -> bool:
    """Exactly the instances run that endpoints in service are to have, and they take requests."""
    _calm(world)
    wanted: dict[tuple[EndpointId, str], int] = {}
    for name, endpoint in world.endpoints.items():
        record = endpoint.record
        if record.status == "InService":
            assert record.current is not None
            assert record.pending is None
            wanted |= {(name, key): count for key, count in record.current.counts.items()}
    running: dict[tuple[EndpointId, str], set[str]] = {}
    for each in world.substrate.instances.values():
        request = each.running.request
        running.setdefault((request.endpoint_id, request.variant), set()).add(request.id)
    routed = {
        (route.id, name): {target.id for target in of.targets}
        for route in world.table.routes()
        for name, of in route.variants.items()
    }
    return {key: len(ids) for key, ids in running.items()} == wanted and routed == running


async def _check_kept(world: World) -> None:
    """What is on disk is what is in memory."""
    kept: dict[DocumentKey, object] = {}

    async def same() -> bool:
        kept.clear()
        kept.update(await world.controller._database.documents("endpoint"))  # noqa: SLF001 - as written
        return kept == {
            DocumentKey("endpoint", *name): {
                **endpoint.record.document(),
                "status": str(endpoint.record.status),
            }
            for name, endpoint in world.endpoints.items()
        }

    async with asyncio.timeout(60):
        while not await same():
            pass  # it gives way while the database is read
