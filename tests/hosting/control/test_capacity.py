"""The numbers of instances, as autoscaling sees and sets them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from halimede.hosting.capacity import VariantCapacity, Variants
from halimede.hosting.control.controller import Controller
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import EndpointId
from tests.hosting.control.fakes import CALLER, World, on_loop, variant
from tests.support.waiting import wait_until_async

ENDPOINT = EndpointId(*CALLER.scope, "e")
_: type[Variants] = Controller


def capacity(world: World, name: str = "A") -> VariantCapacity | None:
    return world.controller.capacity(ENDPOINT, name)


@on_loop
async def test_the_number_of_instances_of_a_variant_is_set(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant("A", 1), variant("B", 2))
        assert capacity(world) == VariantCapacity(1, 1, is_settled=True, instance_type="ml.local.cpu")
        await world.controller.set_count(ENDPOINT, "A", 3)
        changing = capacity(world)
        assert changing is not None
        assert (changing.desired, changing.is_settled) == (3, False)
        assert await world.status() == "InService"
        assert capacity(world) == VariantCapacity(3, 3, is_settled=True, instance_type="ml.local.cpu")
        assert capacity(world, "B") == VariantCapacity(2, 2, is_settled=True, instance_type="ml.local.cpu")
        await world.controller.set_count(ENDPOINT, "A", 1)
        assert await world.status() == "InService"
        assert capacity(world) == VariantCapacity(1, 1, is_settled=True, instance_type="ml.local.cpu")


@on_loop
async def test_instances_that_find_no_room_leave_the_number_and_the_reason(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        world.substrate.refusal = invalid("there is no room for another instance")
        await world.controller.set_count(ENDPOINT, "A", 3)
        assert await world.status() == "InService"
        found = capacity(world)
        assert found is not None
        assert (found.desired, found.running, found.reason) == (1, 1, "there is no room for another instance")
        world.substrate.refusal = None
        await world.controller.set_count(ENDPOINT, "A", 2)
        assert await world.status() == "InService"
        assert capacity(world) == VariantCapacity(2, 2, is_settled=True, instance_type="ml.local.cpu")


@on_loop
async def test_what_is_not_there_has_no_capacity(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        assert capacity(world) is None
        await world.serve()
        assert capacity(world, "B") is None
        with pytest.raises(ApiError, match='Could not find variant "B" of endpoint'):
            await world.controller.set_count(ENDPOINT, "B", 2)
        await world.call("DeleteEndpoint", EndpointName="e")
        assert capacity(world) is None


@on_loop
async def test_an_endpoint_that_is_changed_is_not_settled(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.gate.clear()
        await world.create_model()
        await world.create_config("c", variant(count=2))
        await world.create_endpoint()
        creating = VariantCapacity(2, 0, is_settled=False, instance_type="ml.local.cpu")
        assert capacity(world) == creating
        with pytest.raises(ApiError, match='Could not find variant "A"'):
            await world.controller.set_count(ENDPOINT, "A", 1)
        world.substrate.gate.set()
        assert await world.status() == "InService"
        world.substrate.gate.clear()
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
        await wait_until_async(lambda: world.now() == "Updating")
        with pytest.raises(ApiError, match="Cannot update in-progress endpoint"):
            await world.controller.set_count(ENDPOINT, "A", 1)


@on_loop
async def test_the_number_survives_an_update_that_retains_it(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.controller.set_count(ENDPOINT, "A", 3)
        assert await world.status() == "InService"
        await world.create_config("c2", variant(count=1))
        await world.call(
            "UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", RetainAllVariantProperties=True
        )
        assert await world.status() == "InService"
        assert len(world.targets()) == 3
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
        assert await world.status() == "InService"
        assert len(world.targets()) == 1


@on_loop
async def test_an_update_that_is_not_allowed_changes_nothing(tmp_path: Path) -> None:
    asked = []

    def refuse(endpoint: EndpointId, instance_types: Mapping[str, str]) -> None:
        asked.append((endpoint, dict(instance_types)))
        raise invalid("the variant is scaled")

    async with World(tmp_path, check_update=refuse) as world:
        await world.serve()
        await world.create_config("c2", variant("A"), variant("B"))
        refused = await world.refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
        assert refused == "the variant is scaled"
        assert asked == [(ENDPOINT, {"A": "ml.local.cpu", "B": "ml.local.cpu"})]
        assert (await world.describe())["EndpointConfigName"] == "c"
