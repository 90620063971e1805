"""Endpoints with a shadow variant: its instances are the endpoint's, its requests are copies alone."""

from pathlib import Path
from typing import Any

from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.table import VariantRoute
from halimede.hosting.routing.taps import NoObserver
from tests.hosting.control.fakes import CALLER, World, on_loop, variant
from tests.support.waiting import wait_until_async


async def serve(world: World, shadow: dict[str, Any] | None = None) -> None:
    """Have the endpoint ``e`` in service with the production variant ``A`` and its shadow ``B``."""
    await world.create_model()
    await create_config(world, "c", shadow or variant("B"))
    await world.create_endpoint()
    assert await world.status() == "InService"


async def create_config(world: World, name: str, shadow: dict[str, Any]) -> None:
    await world.call(
        "CreateEndpointConfig",
        EndpointConfigName=name,
        ProductionVariants=[variant()],
        ShadowProductionVariants=[shadow],
    )


@on_loop
async def test_the_shadow_has_instances_of_its_own_and_is_described(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await serve(world, variant("B", count=2, InitialVariantWeight=0.5))
        assert (len(world.substrate.of("A")), len(world.substrate.of("B"))) == (1, 2)
        described = await world.describe()
        [production], [shadow] = described["ProductionVariants"], described["ShadowProductionVariants"]
        assert (production["VariantName"], production["CurrentInstanceCount"]) == ("A", 1)
        assert shadow["VariantName"] == "B"
        assert (shadow["CurrentInstanceCount"], shadow["DesiredInstanceCount"]) == (2, 2)
        assert (shadow["CurrentWeight"], shadow["DesiredWeight"]) == (0.5, 0.5)
        assert shadow["DeployedImages"][0]["SpecifiedImage"] == "halimede"
        config = await world.call("DescribeEndpointConfig", EndpointConfigName="c")
        assert config["ShadowProductionVariants"] == [variant("B", count=2, InitialVariantWeight=0.5)]


@on_loop
async def test_requests_go_to_the_production_variant_alone(tmp_path: Path) -> None:
    pairs: list[tuple[VariantRoute, VariantRoute]] = []

    def make_shadow(production: VariantRoute, shadow: VariantRoute) -> NoObserver:
        pairs.append((production, shadow))
        return NoObserver()

    async with World(tmp_path, make_shadow=make_shadow) as world:
        await serve(world)
        route = world.route()
        assert route is not None
        assert list(route.variants) == ["A"]
        assert list(route.by_name()) == ["A", "B"]
        production = route.variants["A"]
        assert route.only_variant is production
        assert pairs == [(production, route.by_name()["B"][0])]
        assert production.shadow is route.by_name()["B"][0]
        assert len(production.observers) == 1
        assert production.shadow.observers == ()


@on_loop
async def test_instances_of_the_shadow_make_way_for_others_once_they_have_come_up(tmp_path: Path) -> None:
    behind: list[int] = []
    async with World(tmp_path, lower_priority=behind.append) as world:
        await serve(world, variant("B", count=2))
        assert sorted(behind) == sorted(
            world.substrate.instances[each].running.pid for each in world.substrate.of("B")
        )


@on_loop
async def test_its_share_and_its_instances_are_changed(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await serve(world)
        await world.call(
            "UpdateEndpointWeightsAndCapacities",
            EndpointName="e",
            DesiredWeightsAndCapacities=[
                {"VariantName": "B", "DesiredWeight": 0.2, "DesiredInstanceCount": 2}
            ],
        )
        assert await world.status() == "InService"
        route = world.route()
        assert route is not None
        shadow = route.by_name()["B"][0]
        assert (shadow.weight, len(shadow.targets), len(world.substrate.of("B"))) == (0.2, 2, 2)
        assert len(world.substrate.of("A")) == 1


@on_loop
async def test_capacity_of_a_shadow_is_scaled_like_any(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await serve(world)
        endpoint = EndpointId(*CALLER.scope, "e")
        await world.controller.set_count(endpoint, "B", 3)
        assert await world.status() == "InService"
        capacity = world.controller.capacity(endpoint, "B")
        assert capacity is not None
        assert (capacity.desired, capacity.running, capacity.instance_type) == (3, 3, "ml.local.cpu")


@on_loop
async def test_an_update_takes_the_shadow_away_and_brings_one(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await serve(world)
        await world.create_config("plain")
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="plain")
        described = await world.describe()
        assert "ShadowProductionVariants" not in described
        await wait_until_async(lambda: not world.substrate.of("B"))
        world.substrate.gate.clear()
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
        world.endpoint().release()
        pending = (await world.describe())["PendingDeploymentSummary"]
        assert [each["VariantName"] for each in pending["ShadowProductionVariants"]] == ["B"]
        world.substrate.gate.set()
        await wait_until_async(lambda: world.now() == "InService")
        assert [each["VariantName"] for each in (await world.describe())["ShadowProductionVariants"]] == ["B"]


@on_loop
async def test_a_shadow_is_there_again_after_a_restart(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await serve(world)
        before = set(world.substrate.instances)
        await world.restart()
        assert await world.status() == "InService"
        assert set(world.substrate.instances) == before
        route = world.route()
        assert route is not None
        assert list(route.by_name()) == ["A", "B"]
        assert len(route.by_name()["B"][0].targets) == 1


@on_loop
async def test_a_shadow_that_does_not_come_up_fails_the_update_and_not_what_serves(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await create_config(world, "shadowed", variant("B"))
        world.substrate.die = 10
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="shadowed")
        assert await world.status() == "InService"
        described = await world.describe()
        assert described["EndpointConfigName"] == "c"
        assert described["FailureReason"]


@on_loop
async def test_a_model_or_an_instance_type_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model()
        await world.create_model("many", Mode="MultiModel", ModelDataUrl="s3://bucket/models/")
        for shadow, text in (
            (variant("B", ModelName="x"), "Could not find model"),
            (variant("B", InstanceType="ml.none"), "ml.none"),
            (variant("B", ModelName="many"), "multi-model endpoints have no shadow variants"),
        ):
            message = await world.refused(
                "CreateEndpointConfig",
                EndpointConfigName="c",
                ProductionVariants=[variant()],
                ShadowProductionVariants=[shadow],
            )
            assert text in message
