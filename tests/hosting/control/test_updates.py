"""Updates: another fleet takes over, or the old one stays; weights and counts change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import EndpointId
from tests.hosting.control.fakes import CALLER, QUICK, World, on_loop, variant
from tests.support.waiting import let_pass_async, wait_until_async


async def _second_config(world: World, *variants: dict[str, Any]) -> None:
    await world.create_config("c2", *(variants or (variant(count=2),)))


async def _update(world: World, **further: Any) -> None:
    await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", **further)


async def _set(world: World, **desired: Any) -> None:
    await world.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "A", **desired}],
    )


# another fleet


@on_loop
async def test_requests_go_to_the_new_fleet_when_all_of_it_answers(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await _second_config(world)
        (old,) = world.targets()
        world.substrate.gate.clear()
        await _update(world)
        await wait_until_async(lambda: len(world.substrate.launched) == 3)
        assert [target.id for target in world.targets()] == [old.id]
        assert not old.draining
        record = world.endpoint().record
        assert record.status == "Updating"
        world.substrate.gate.set()
        described = await world.describe()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        assert len(world.targets()) == 2
        await wait_until_async(lambda: old.id not in world.substrate.instances)
        await wait_until_async(lambda: len(list((tmp_path / "fleets").iterdir())) == 1)


@on_loop
async def test_describe_tells_of_the_update_that_is_pending(tmp_path: Path) -> None:
    async with World(tmp_path, replace(QUICK, describe_hold_s=0)) as world:
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        await wait_until_async(lambda: world.now() == "InService")
        await _second_config(world)
        world.substrate.gate.clear()
        await _update(world)
        described = await world.describe()
        assert described["EndpointStatus"] == "Updating"
        assert described["EndpointConfigName"] == "c"
        assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 1
        pending = described["PendingDeploymentSummary"]
        assert pending["EndpointConfigName"] == "c2"
        assert pending["ProductionVariants"][0]["DesiredInstanceCount"] == 2
        world.substrate.gate.set()
        await wait_until_async(lambda: world.now() == "InService")
        assert "PendingDeploymentSummary" not in await world.describe()


@on_loop
async def test_what_is_deployed_is_what_serves_or_else_what_is_coming(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        endpoint = EndpointId(*CALLER.scope, "e")
        assert world.controller.deployed(endpoint) is None
        await world.create_model()
        await world.create_config("c")
        await world.create_config("c2", variant(count=2))
        world.substrate.gate.clear()
        await world.create_endpoint()
        coming = world.controller.deployed(endpoint)
        assert coming is not None
        assert (coming.status, coming.config_name, coming.reason) == ("Creating", "c", "")
        assert [each["InitialInstanceCount"] for each in coming.config["ProductionVariants"]] == [1]
        world.substrate.gate.set()
        assert await world.status() == "InService"
        world.substrate.refusal = invalid("there is no such image")
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
        updating = world.controller.deployed(endpoint)
        assert updating is not None
        assert (updating.status, updating.config_name, updating.config) == ("Updating", "c", coming.config)
        assert await world.status() == "InService"
        failed = world.controller.deployed(endpoint)
        assert failed is not None
        assert (failed.status, failed.config_name, failed.reason) == (
            "InService",
            "c",
            "there is no such image",
        )


@on_loop
async def test_the_old_fleet_ends_when_what_it_was_asked_is_answered(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await _second_config(world)
        (old,) = world.targets()
        old.inflight += 2
        await _update(world)
        assert await world.status() == "InService"
        await wait_until_async(lambda: old.draining)
        old.answered()
        await let_pass_async(0.05, "the old fleet does not end yet")
        assert old.id in world.substrate.instances
        old.answered()
        await wait_until_async(lambda: old.id not in world.substrate.instances)


@on_loop
async def test_the_old_fleet_ends_at_the_latest_when_draining_is_over(tmp_path: Path) -> None:
    async with World(tmp_path, replace(QUICK, drain_s=0.1)) as world:
        await world.serve()
        await _second_config(world)
        (old,) = world.targets()
        old.inflight += 1
        await _update(world)
        assert await world.status() == "InService"
        await wait_until_async(lambda: old.id not in world.substrate.instances)


@on_loop
async def test_an_instance_that_dies_while_it_drains_is_not_waited_for_nor_replaced(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await _second_config(world, variant())
        (old,) = world.targets()
        old.inflight += 1
        await _update(world)
        assert await world.status() == "InService"
        await wait_until_async(lambda: old.draining)
        world.substrate.kill(old.id)
        await wait_until_async(lambda: len(list((tmp_path / "fleets").iterdir())) == 1)
        [instance] = [world.substrate.instances[name] for name in world.substrate.of()]
        before = instance.pings
        await wait_until_async(
            lambda: instance.pings >= before + 2, "whoever looks after the instances has looked"
        )
        assert len(world.substrate.launched) == 2
        assert [target.id for target in world.targets()] == world.substrate.of()


@pytest.mark.parametrize("trouble", ["fetch", "launch", "end"])
@on_loop
async def test_an_update_that_fails_leaves_the_old_fleet(tmp_path: Path, trouble: str) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await _second_config(world)
        (old,) = world.targets()
        if trouble == "fetch":
            world.source.failure = invalid("there is no such archive")
        elif trouble == "launch":
            world.substrate.refusal = invalid("there is no such archive")
        else:
            world.substrate.die = 9
        await _update(world)
        described = await world.describe()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
        assert "did not pass" in described["FailureReason"] or "no such archive" in described["FailureReason"]
        assert "PendingDeploymentSummary" not in described
        assert world.targets() == [old]
        assert world.substrate.of() == [old.id]
        assert len(list((tmp_path / "fleets").iterdir())) == 1
        # and the next one may come about
        world.source.failure = world.substrate.refusal = None
        world.substrate.die = 0
        await _update(world)
        described = await world.describe()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        assert "FailureReason" not in described


@on_loop
async def test_an_endpoint_keeps_the_snapshot_that_it_was_made_from(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.call("DeleteEndpointConfig", EndpointConfigName="c")
        await world.call("DeleteModel", ModelName="m")
        await world.create_model("m", Image="other")
        world.substrate.kill(*world.substrate.of())
        await wait_until_async(lambda: len(world.targets()) == 1)
        assert [request.image for request in world.substrate.launched] == ["halimede"] * 2
        await world.restart()
        assert await world.status() == "InService"


@on_loop
async def test_an_update_retains_what_it_is_asked_to(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await _set(world, DesiredWeight=7.0, DesiredInstanceCount=3)
        assert await world.status() == "InService"
        await _second_config(world, variant(InitialVariantWeight=2.0))
        await _update(world, RetainAllVariantProperties=True)
        (described,) = (await world.describe())["ProductionVariants"]
        assert (described["DesiredWeight"], described["DesiredInstanceCount"]) == (7.0, 3)
        excluded = [{"VariantPropertyType": "DesiredInstanceCount"}]
        await _update(world, RetainAllVariantProperties=True, ExcludeRetainedVariantProperties=excluded)
        (described,) = (await world.describe())["ProductionVariants"]
        assert (described["DesiredWeight"], described["DesiredInstanceCount"]) == (7.0, 1)
        await _update(world)
        (described,) = (await world.describe())["ProductionVariants"]
        assert (described["DesiredWeight"], described["DesiredInstanceCount"]) == (2.0, 1)


@pytest.mark.parametrize("excluded", [[], [{"VariantPropertyType": "DesiredWeight"}]])
@on_loop
async def test_an_update_that_retains_has_a_new_variant_as_its_configuration_says(
    tmp_path: Path, excluded: list[dict[str, str]]
) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant("A", 2, InitialVariantWeight=3.0))
        await _second_config(world, variant("A"), variant("B", InitialVariantWeight=5.0))
        await _update(world, RetainAllVariantProperties=True, ExcludeRetainedVariantProperties=excluded)
        described = await world.describe()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        variants = [
            (each["VariantName"], each["CurrentInstanceCount"], each["CurrentWeight"])
            for each in described["ProductionVariants"]
        ]
        assert variants == [("A", 2, 1.0 if excluded else 3.0), ("B", 1, 5.0)]


@on_loop
async def test_a_variant_that_is_gone_after_the_update_takes_its_instances_along(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant("A"), variant("B", 2))
        await _second_config(world, variant("C"))
        await _update(world)
        assert await world.status() == "InService"
        route = world.route()
        assert route is not None
        assert set(route.variants) == {"C"}
        await wait_until_async(lambda: len(world.substrate.instances) == 1)


# weights and counts


@on_loop
async def test_weights_change_without_other_instances(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant("A"), variant("B"))
        before = set(world.substrate.instances)
        await _set(world, DesiredWeight=0.25)
        described = await world.describe()
        assert [each["CurrentWeight"] for each in described["ProductionVariants"]] == [0.25, 1.0]
        route = world.route()
        assert route is not None
        assert [each.weight for each in route.variants.values()] == [0.25, 1.0]
        assert set(world.substrate.instances) == before
        await world.restart()
        assert await world.status() == "InService"
        route = world.route()
        assert route is not None
        assert [each.weight for each in route.variants.values()] == [0.25, 1.0]


@on_loop
async def test_a_variant_grows_and_shrinks(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (first,) = world.targets()
        await _set(world, DesiredInstanceCount=3)
        assert await world.status() == "InService"
        assert len(world.targets()) == 3
        assert first in world.targets()
        await _set(world, DesiredInstanceCount=1)
        assert await world.status() == "InService"
        assert world.targets() == [first]
        assert world.substrate.of() == [first.id]
        assert len(world.source.fetched) == 1


@on_loop
async def test_an_instance_that_is_too_many_answers_what_it_was_asked(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=2))
        both = world.targets()
        for target in both:
            target.inflight += 1
        await _set(world, DesiredInstanceCount=1)
        await wait_until_async(lambda: len(world.targets()) == 1)
        [kept] = world.targets()
        [spare] = [target for target in both if target is not kept]
        kept.answered()
        assert spare.id in world.substrate.instances
        assert world.now() == "Updating"
        spare.answered()
        assert await world.status() == "InService"
        assert spare.id not in world.substrate.instances


@on_loop
async def test_growth_without_room_leaves_what_there_was(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=2))
        world.substrate.refusal = ApiError("ResourceLimitExceeded", "no room for another instance")
        await _set(world, DesiredInstanceCount=4, DesiredWeight=5.0)
        described = await world.describe()
        assert described["EndpointStatus"] == "InService"
        assert described["FailureReason"] == "no room for another instance"
        (of,) = described["ProductionVariants"]
        assert (of["CurrentInstanceCount"], of["DesiredInstanceCount"]) == (2, 2)
        await world.restart()
        (of,) = (await world.describe())["ProductionVariants"]
        assert of["DesiredInstanceCount"] == 2


@on_loop
async def test_desired_values_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        wanted = [{"VariantName": "Z", "DesiredWeight": 1.0}]
        text = await world.refused(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=wanted
        )
        assert text.startswith('The variant name "Z" does not exist for endpoint "arn:')
        assert text.endswith("Its variants are A.")
        wanted = [{"VariantName": "A", "DesiredInstanceCount": 0}]
        text = await world.refused(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=wanted
        )
        assert text == (
            'variant "A": DesiredInstanceCount is 0; it must be 1 or more, unless the endpoint is asynchronous'
        )
        serverless = [{"VariantName": "A", "ServerlessUpdateConfig": {"MaxConcurrency": 5}}]
        text = await world.refused(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=serverless
        )
        assert text == (
            'variant "A": ServerlessUpdateConfig is for serverless variants, and this one has instances; use '
            "DesiredInstanceCount"
        )
        assert world.now() == "InService"


@on_loop
async def test_last_deployment_is_described_as_it_was_asked_for(tmp_path: Path) -> None:
    routing = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
    policy = {"TrafficRoutingConfiguration": routing, "MaximumExecutionTimeoutInSeconds": 700}
    asked = {"BlueGreenUpdatePolicy": policy}
    described = {"BlueGreenUpdatePolicy": {**policy, "TerminationWaitInSeconds": 0}}
    update = {"EndpointName": "e", "EndpointConfigName": "c"}
    async with World(tmp_path) as world:
        await world.serve()
        assert "LastDeploymentConfig" not in await world.describe()
        await world.call("UpdateEndpoint", **update, DeploymentConfig=asked)
        assert (await world.describe())["LastDeploymentConfig"] == described
        await world.restart()
        assert await world.status() == "InService"
        await world.call("UpdateEndpoint", **update, RetainDeploymentConfig=True)
        assert (await world.describe())["LastDeploymentConfig"] == described
        await world.call("UpdateEndpoint", **update)
        assert await world.status() == "InService"
        assert "LastDeploymentConfig" not in await world.describe()
        await world.call("CreateEndpoint", EndpointName="f", EndpointConfigName="c", DeploymentConfig=asked)
        assert await world.status("f") == "InService"
        assert (await world.describe("f"))["LastDeploymentConfig"] == described


@on_loop
async def test_variant_of_an_asynchronous_endpoint_does_without_instances(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model()
        config = {"OutputConfig": {"S3OutputPath": "s3://results/out/"}}
        await world.call(
            "CreateEndpointConfig",
            EndpointConfigName="c",
            ProductionVariants=[variant()],
            AsyncInferenceConfig=config,
        )
        await world.create_endpoint()
        assert await world.status() == "InService"
        assert (await world.describe())["AsyncInferenceConfig"] == config
        route = world.route()
        assert route is not None
        assert route.asynchronous is not None
        assert route.asynchronous.output == "s3://results/out"
        wanted = [{"VariantName": "A", "DesiredInstanceCount": 0}]
        await world.call(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=wanted
        )
        assert await world.status() == "InService"
        assert not world.targets()
        assert world.route() is not None
        await world.restart()
        assert await world.status() == "InService"
        assert not world.substrate.instances
        await world.call(
            "CreateEndpointConfig",
            EndpointConfigName="c2",
            ProductionVariants=[variant()],
            AsyncInferenceConfig=config,
        )
        canary = {"TrafficRoutingConfiguration": {
            "Type": "CANARY", "WaitIntervalInSeconds": 0,
            "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10},
        }}  # fmt: skip
        await world.call(
            "UpdateEndpoint",
            EndpointName="e",
            EndpointConfigName="c2",
            RetainAllVariantProperties=True,
            DeploymentConfig={"BlueGreenUpdatePolicy": canary},
        )
        assert await world.status() == "InService"
        assert (await world.describe())["EndpointConfigName"] == "c2"
        assert not world.substrate.instances
        await world.create_config("sync")
        text = await world.refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="sync")
        assert (
            "was created with AsyncInferenceConfig and cannot be updated to a configuration without" in text
        )
