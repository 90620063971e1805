"""Updates as their policies say: requests are shifted step by step, alarms roll back, batches come and go."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.control.deployments.progress import Stage
from halimede.hosting.control.descriptions import describe_endpoint
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.metering.alarms.states import AlarmState
from halimede.hosting.routing.selection import choose_variant
from tests.hosting.control.deployments.test_policies import blue_green, instances, percent, rolling
from tests.hosting.control.fakes import QUICK, World, on_loop, variant
from tests.support.waiting import wait_until_async

LONG_S = 3600
"""A wait that does not end in a test."""


async def update(world: World, deployment: Mapping[str, Any], *alarms: str) -> None:
    """Have endpoint `e` be of configuration `c2`."""
    if alarms:
        names = [{"AlarmName": name} for name in alarms]
        deployment = {**deployment, "AutoRollbackConfiguration": {"Alarms": names}}
    await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=deployment)


def stage(world: World) -> Stage | None:
    progress = world.endpoint().record.progress
    return None if progress is None else progress.stage


def shares(world: World) -> list[float]:
    """The shares of the endpoint's fleets, first that of the one that serves."""
    route = world.route()
    assert route is not None
    beside = [fleet.share for fleet in route.beside]
    assert all(0 <= share <= 1 for share in beside)
    return [1 - sum(beside), *beside]


def per_fleet(world: World) -> Counter[str]:
    """Fleet → how many instances it has."""
    return Counter(each.running.request.fleet for each in world.substrate.instances.values())


def invoked(world: World, count: int = 4000, wanted: str | None = None) -> Counter[str]:
    """Which configuration's instances so many requests come to."""
    route = world.route()
    assert route is not None
    configs = {id(each): route.config for each in route.variants.values()}
    for fleet in route.beside:
        configs.update({id(each): fleet.config for each in fleet.variants.values()})
    return Counter(configs[id(choose_variant(route, wanted))] for _ in range(count))


def of_fleet(world: World, fleet: str = "") -> list[str]:
    """The ids of the instances of a fleet, or of all."""
    instances = world.substrate.instances
    return [name for name, each in instances.items() if fleet in ("", each.running.request.fleet)]


def beside(world: World) -> set[str]:
    """The ids of the instances that take requests of the fleets beside the one that serves."""
    route = world.route()
    fleets = [] if route is None else route.beside
    variants = [each for fleet in fleets for each in fleet.variants.values()]
    return {target.id for each in variants for target in each.targets}


async def settled(world: World) -> Mapping[str, Any]:
    """The description of the endpoint when its update is over."""
    await wait_until_async(lambda: world.endpoint().is_settled)
    return await world.describe()


# blue/green


@on_loop
async def test_a_canary_gets_its_share_and_then_everything(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=2))
        await world.create_config("c2", variant(count=2))
        alarm = world.put_alarm("errors")
        policy = blue_green("CANARY", LONG_S, {"TerminationWaitInSeconds": LONG_S}, CanarySize=percent(10))
        await update(world, policy, "errors")
        await wait_until_async(lambda: stage(world) is Stage.BAKING and shares(world) == [0.9, 0.1])
        assert sorted(per_fleet(world).values()) == [2, 2]
        assert invoked(world)["c2"] == pytest.approx(400, abs=100)
        assert invoked(world, wanted="A")["c2"] == pytest.approx(400, abs=100)
        described = await world.describe()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("Updating", "c")
        (pending,) = described["PendingDeploymentSummary"]["ProductionVariants"]
        (status,) = pending["VariantStatus"]
        assert (pending["CurrentInstanceCount"], status["Status"]) == (2, "Baking")
        assert status["StatusMessage"].startswith("10 % of the requests, until 20")
        assert alarm.state is AlarmState.OK
        # time passes
        await pass_time(world)
        await wait_until_async(lambda: stage(world) is Stage.BAKING and shares(world) == [0.0, 1.0])
        assert set(invoked(world)) == {"c2"}
        await pass_time(world)
        await wait_until_async(lambda: stage(world) is Stage.TERMINATION_WAIT)
        (pending,) = (await world.describe())["PendingDeploymentSummary"]["ProductionVariants"]
        assert "the old fleet is kept until" in pending["VariantStatus"][0]["StatusMessage"]
        assert sorted(per_fleet(world).values()) == [2, 2]
        await pass_time(world)
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        assert shares(world) == [1.0]
        await wait_until_async(lambda: list(per_fleet(world).values()) == [2])


async def pass_time(world: World) -> None:
    """Let the stage that waits be over: after a restart its time would begin anew, so the progress is changed."""
    endpoint = world.endpoint()
    await wait_until_async(
        lambda: endpoint.record.progress is not None and endpoint.record.progress.until > 0
    )
    progress = endpoint.record.progress
    assert progress is not None
    endpoint.record.progress = replace(progress, until=progress.since)
    endpoint.work()

    def has_gone_on() -> bool:
        now = endpoint.record.progress
        return now is None or (now.stage, now.share) != (progress.stage, progress.share)

    await wait_until_async(has_gone_on, "the next step")


@on_loop
async def test_a_linear_update_shifts_step_by_step(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.create_config("c2")
        seen: list[list[float]] = []
        publish = world.table.publish

        def note(route: Any) -> None:
            publish(route)
            seen.append(shares(world))

        world.table.publish = note  # type: ignore[method-assign]
        await update(world, blue_green("LINEAR", LinearStepSize=percent(25)))
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        shifted = [each[1] for each in seen if len(each) > 1]
        assert [share for number, share in enumerate(shifted) if shifted.index(share) == number] == [
            0.25, 0.5, 0.75, 1.0,
        ]  # fmt: skip


@pytest.mark.parametrize("when", ["provisioning", "canary", "all", "termination wait"])
@on_loop
async def test_an_alarm_rolls_everything_back(tmp_path: Path, when: str) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (old,) = world.targets()
        await world.create_config("c2", variant(count=2))
        world.put_alarm("quiet")
        world.put_alarm("errors")
        if when == "provisioning":
            world.substrate.ping = 503
        policy = blue_green("CANARY", LONG_S, {"TerminationWaitInSeconds": LONG_S}, CanarySize=percent(50))
        await update(world, policy, "quiet", "errors")
        if when == "provisioning":
            await wait_until_async(lambda: len(world.substrate.instances) == 3)
        else:
            await wait_until_async(lambda: shares(world) == [0.5, 0.5])
            for _ in range(("canary", "all", "termination wait").index(when)):
                await pass_time(world)
        alarm = world.put_alarm("errors", AlarmState.ALARM)
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
        assert described["FailureReason"] == (
            f"The deployment was rolled back: the CloudWatch alarm 'errors' went to ALARM ({alarm.reason})."
        )
        assert shares(world) == [1.0]
        assert world.targets() == [old]
        assert world.substrate.of() == [old.id]
        assert "PendingDeploymentSummary" not in described
        # and the next update may come about
        world.put_alarm("errors")
        world.substrate.ping = 200
        await update(world, blue_green("ALL_AT_ONCE"), "errors")
        assert (await settled(world))["EndpointConfigName"] == "c2"


@on_loop
async def test_an_alarm_that_is_in_alarm_for_a_moment_only_rolls_back_too(tmp_path: Path) -> None:
    async with World(tmp_path, replace(QUICK, look_s=0.2)) as world:
        await world.serve()
        await world.create_config("c2")
        world.put_alarm("errors")
        await update(world, blue_green("ALL_AT_ONCE", LONG_S), "errors")
        await wait_until_async(lambda: stage(world) is Stage.BAKING)
        world.put_alarm("errors", AlarmState.ALARM).state = AlarmState.OK
        described = await settled(world)
        assert "the CloudWatch alarm 'errors' went to ALARM" in described["FailureReason"]


@on_loop
async def test_an_alarm_that_is_deleted_meanwhile_rolls_back(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.create_config("c2")
        world.put_alarm("errors")
        await update(world, blue_green("ALL_AT_ONCE", LONG_S), "errors")
        await wait_until_async(lambda: stage(world) is Stage.BAKING)
        del world.alarms["errors"]
        assert "'errors' does not exist any more" in (await settled(world))["FailureReason"]


@on_loop
async def test_updates_whose_alarms_stand_against_them_are_refused(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.create_config("c2")
        with pytest.raises(ApiError, match="there is no CloudWatch alarm 'errors'"):
            await update(world, blue_green("ALL_AT_ONCE"), "errors")
        world.put_alarm("errors", AlarmState.ALARM)
        with pytest.raises(ApiError, match="the CloudWatch alarm 'errors' is in the state ALARM"):
            await update(world, blue_green("ALL_AT_ONCE"), "errors")
        assert world.now() == "InService"
        world.put_alarm("errors", AlarmState.INSUFFICIENT_DATA)
        await update(world, blue_green("ALL_AT_ONCE"), "errors")
        assert (await settled(world))["EndpointConfigName"] == "c2"
        # alarms of the policy that CreateEndpoint remembers are put when there is an endpoint
        deployment = {
            **blue_green("ALL_AT_ONCE"),
            "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "later"}]},
        }
        await world.call(
            "CreateEndpoint", EndpointName="f", EndpointConfigName="c", DeploymentConfig=deployment
        )
        assert await world.status("f") == "InService"
        text = await world.refused(
            "UpdateEndpoint", EndpointName="f", EndpointConfigName="c2", RetainDeploymentConfig=True
        )
        assert "there is no CloudWatch alarm 'later'" in text


@on_loop
async def test_policies_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.create_config("c2", variant(count=3))
        with pytest.raises(ApiError, match="CanarySize is 2 instances, and variant 'A' has 3"):
            await update(world, blue_green("CANARY", CanarySize=instances(2)))
        text = await world.refused(
            "CreateEndpoint", EndpointName="g", EndpointConfigName="c", DeploymentConfig=blue_green("CANARY")
        )
        assert text == "DeploymentConfig: traffic routing of type CANARY needs CanarySize"


@on_loop
async def test_an_update_that_takes_too_long_is_rolled_back(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.create_config("c2")
        world.substrate.ping = 503  # it never comes up
        await update(world, blue_green("ALL_AT_ONCE", 0, {"MaximumExecutionTimeoutInSeconds": 600}))
        await wait_until_async(lambda: len(world.substrate.instances) == 2)
        endpoint = world.endpoint()
        assert endpoint.record.progress is not None
        endpoint.record.progress = replace(endpoint.record.progress, began=endpoint.record.created - 601)
        endpoint.work()
        described = await settled(world)
        assert described["FailureReason"] == (
            "The deployment was rolled back: it took longer than MaximumExecutionTimeoutInSeconds (600 s)."
        )
        assert len(world.substrate.instances) == 1


@on_loop
async def test_a_new_fleet_that_dies_half_way_is_rolled_back_and_no_request_goes_there(
    tmp_path: Path,
) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (old,) = world.targets()
        await world.create_config("c2", variant(count=2))
        await update(world, blue_green("CANARY", LONG_S, CanarySize=percent(50)))
        await wait_until_async(lambda: shares(world) == [0.5, 0.5])
        for name in world.substrate.of():
            if name != old.id:
                world.substrate.kill(name)
        assert set(invoked(world, 100)) == {"c"}  # at once
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
        assert "no instance of variant 'A' of the new fleet answers" in described["FailureReason"]
        assert world.substrate.of() == [old.id]


@on_loop
async def test_an_instance_of_the_new_fleet_that_ends_is_replaced_before_more_requests_come(
    tmp_path: Path,
) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (old,) = world.targets()
        await world.create_config("c2", variant(count=2))
        await update(world, blue_green("CANARY", LONG_S, CanarySize=percent(50)))
        await wait_until_async(lambda: shares(world) == [0.5, 0.5])
        world.substrate.gate.clear()
        world.substrate.kill(next(name for name in world.substrate.of() if name != old.id))
        await pass_time(world)
        assert stage(world) is Stage.PROVISIONING
        world.controller.release()  # as the answer would be held
        (pending,) = (await world.describe())["PendingDeploymentSummary"]["ProductionVariants"]
        assert (pending["CurrentInstanceCount"], pending["VariantStatus"][0]["Status"]) == (1, "Creating")
        assert shares(world) == [0.5, 0.5]
        world.substrate.gate.set()
        await wait_until_async(lambda: shares(world) == [0.0, 1.0])
        await pass_time(world)
        assert (await settled(world))["EndpointConfigName"] == "c2"


@on_loop
async def test_a_new_fleet_that_ends_again_and_again_is_rolled_back(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (old,) = world.targets()
        await world.create_config("c2", variant(count=2))
        await update(world, blue_green("CANARY", LONG_S, CanarySize=percent(50)))
        await wait_until_async(lambda: shares(world) == [0.5, 0.5])
        pending = world.endpoint().fleets.pending
        assert pending is not None
        for _ in range(3):
            await wait_until_async(lambda: stage(world) is None or len(world.substrate.of()) == 3)
            await wait_until_async(lambda: stage(world) is None or dict(pending.instances()) == {"A": 2})
            world.substrate.kill(next(name for name in world.substrate.of() if name != old.id))
        described = await settled(world)
        assert "3 instances of the new fleet have ended" in described["FailureReason"]
        assert world.substrate.of() == [old.id]


@pytest.mark.parametrize("kind", ["canary", "rolling"])
@pytest.mark.parametrize("time", ["provisioning", "baking", "rolling back"])
@on_loop
async def test_an_endpoint_can_be_deleted_at_any_time(tmp_path: Path, kind: str, time: str) -> None:
    policy = (
        blue_green("CANARY", LONG_S, CanarySize=percent(50))
        if kind == "canary"
        else rolling(percent(50), LONG_S)
    )
    async with World(tmp_path) as world:
        await world.serve(variant(count=2))
        await world.create_config("c2", variant(count=2))
        world.put_alarm("errors")
        if time == "provisioning":
            world.substrate.ping = 503
        await update(world, policy, "errors")
        if time == "provisioning":
            await wait_until_async(lambda: len(world.substrate.instances) > 2)
        else:
            await wait_until_async(lambda: shares(world) == [0.5, 0.5])
        if time == "rolling back":
            [busy] = world.endpoint().fleets.pending.routes()["A"].targets[:1]  # type: ignore[union-attr]
            busy.inflight += 1
            world.put_alarm("errors", AlarmState.ALARM)
            await wait_until_async(lambda: world.now() == "RollingBack")
            asyncio.get_running_loop().call_later(0.05, busy.answered)
        await world.call("DeleteEndpoint", EndpointName="e")
        await wait_until_async(lambda: world.deleted == ["e"])
        assert not world.substrate.instances
        assert not list((tmp_path / "fleets").iterdir())


@on_loop
async def test_another_update_is_refused_while_one_is_under_way(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.create_config("c2")
        await update(world, blue_green("ALL_AT_ONCE", LONG_S))
        await wait_until_async(lambda: stage(world) is Stage.BAKING)
        text = await world.refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
        assert text.startswith("Cannot update in-progress endpoint")
        desired = [{"VariantName": "A", "DesiredInstanceCount": 2}]
        text = await world.refused(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired
        )
        assert text.startswith("Cannot update in-progress endpoint")


@on_loop
async def test_each_stage_is_described_as_a_status_of_its_variants(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=2))
        await world.create_config("c2", variant(count=2))
        await update(world, blue_green("CANARY", LONG_S, CanarySize=percent(50)))
        await wait_until_async(lambda: shares(world) == [0.5, 0.5])
        endpoint = world.endpoint()
        progress = endpoint.record.progress
        assert progress is not None

        def statuses(now: Stage) -> tuple[str, str]:
            """Of the fleet that serves, and of the new one."""
            endpoint.record.progress = replace(progress, stage=now)
            described = describe_endpoint(endpoint.record, endpoint.fleets)
            (serving,) = described["ProductionVariants"]
            (pending,) = described["PendingDeploymentSummary"]["ProductionVariants"]
            assert described["PendingDeploymentSummary"]["StartTime"].timestamp() == pytest.approx(
                progress.began
            )
            of_serving = serving.get("VariantStatus", [{"Status": ""}])
            return of_serving[0]["Status"], pending["VariantStatus"][0]["Status"]

        assert statuses(Stage.PROVISIONING) == ("", "ActivatingTraffic")
        assert statuses(Stage.BAKING) == ("", "Baking")
        assert statuses(Stage.SHRINKING) == ("Deleting", "Updating")
        assert statuses(Stage.TERMINATION_WAIT) == ("", "Baking")
        assert statuses(Stage.GROWING_BACK) == ("Updating", "Deleting")
        assert statuses(Stage.SHRINKING_BACK) == ("", "Deleting")
        endpoint.record.progress = progress


@on_loop
async def test_an_update_that_an_earlier_version_began_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.create_config("c2")
        world.substrate.ping = 503
        await update(world, {})
        await wait_until_async(lambda: len(world.substrate.instances) == 2)
        await world.controller.stop(leave=True)
        _forget_what_is_new(tmp_path / "state.db")
        await world.start()
        for instance in world.substrate.instances.values():
            instance.ping = 200
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        assert len(world.substrate.launched) == 2


def _forget_what_is_new(path: Path) -> None:
    """Have the state of endpoints as it was kept before there were policies, which noted what updates are."""
    with sqlite3.connect(path) as database:
        [(document,)] = database.execute("SELECT document FROM documents WHERE kind = 'endpoint'").fetchall()
        endpoint = json.loads(document)
        del endpoint["progress"], endpoint["mixed"]
        endpoint["current"]["is_update"], endpoint["pending"]["is_update"] = False, True
        changed = json.dumps(endpoint)
        database.execute("UPDATE documents SET document = ? WHERE kind = 'endpoint'", (changed,))
    database.close()


# rolling


@on_loop
async def test_a_rolling_update_replaces_batch_by_batch(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=4))
        (old,) = per_fleet(world)
        await world.create_config("c2", variant(count=4))
        await update(world, rolling(percent(25), LONG_S))
        for batch in range(1, 5):
            await wait_until_async(lambda batch=batch: shares(world)[1:] == [batch / 4])  # type: ignore[misc]
            counts = per_fleet(world)
            assert (counts[old], sum(counts.values())) == (5 - batch, 5)
            assert invoked(world)["c2"] == pytest.approx(1000 * batch, abs=150)
            await pass_time(world)
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        await wait_until_async(lambda: old not in per_fleet(world))
        assert list(per_fleet(world).values()) == [4]


@pytest.mark.parametrize("batches", [1, 2, 4])
@pytest.mark.parametrize("back", [None, percent(25)])
@on_loop
async def test_a_rolling_update_is_rolled_back_batch_by_batch(
    tmp_path: Path, batches: int, back: dict[str, Any] | None
) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=4))
        (old,) = per_fleet(world)
        await world.create_config("c2", variant(count=4))
        world.put_alarm("errors")
        further = {"RollbackMaximumBatchSize": back} if back else {}
        await update(world, rolling(instances(1), LONG_S, **further), "errors")
        for batch in range(1, batches + 1):
            await wait_until_async(lambda batch=batch: shares(world)[1:] == [batch / 4])  # type: ignore[misc]
            if batch < batches:
                await pass_time(world)
        world.put_alarm("errors", AlarmState.ALARM)
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
        assert "went to ALARM" in described["FailureReason"]
        assert per_fleet(world) == {old: 4}
        assert shares(world) == [1.0]


@on_loop
async def test_a_rollback_goes_on_after_a_restart_with_the_instances_that_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=4))
        (old,) = per_fleet(world)
        await world.create_config("c2", variant(count=4))
        world.put_alarm("errors")
        await update(world, rolling(instances(1), LONG_S), "errors")
        await wait_until_async(lambda: shares(world)[1:] == [0.25])
        await pass_time(world)
        await wait_until_async(lambda: shares(world)[1:] == [0.5])
        assert sorted(per_fleet(world).values()) == [2, 3]
        served = {target.id for target in world.targets()}
        world.substrate.ping = 503
        world.put_alarm("errors", AlarmState.ALARM)
        await wait_until_async(lambda: per_fleet(world)[old] == 4)
        before = set(world.substrate.instances)
        new = set(of_fleet(world)) - set(of_fleet(world, old))
        await world.restart()
        assert set(world.substrate.instances) == before
        await wait_until_async(lambda: {target.id for target in world.targets()} == served)
        assert (stage(world), shares(world)) == (Stage.GROWING_BACK, [0.75, 0.25])
        # what is left of the new fleet answers its share
        await wait_until_async(lambda: beside(world) and beside(world) <= new)
        for instance in world.substrate.instances.values():
            instance.ping = 200
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
        assert "went to ALARM" in described["FailureReason"]
        assert per_fleet(world) == {old: 4}
        assert set(world.substrate.instances) < before, "none was started again"
        assert not [each for each in caplog.records if each.exc_info]


@on_loop
async def test_a_rolling_update_goes_on_after_a_restart_with_as_many_instances_of_each_fleet(
    tmp_path: Path,
) -> None:
    async with World(tmp_path) as world:
        await world.serve(variant(count=4))
        (old,) = per_fleet(world)
        await world.create_config("c2", variant(count=4))
        await update(world, rolling(percent(50), LONG_S))
        await wait_until_async(lambda: shares(world)[1:] == [0.5])
        await pass_time(world)
        await wait_until_async(lambda: shares(world)[1:] == [1.0])
        assert (per_fleet(world)[old], sum(per_fleet(world).values())) == (2, 6)
        await world.restart()
        await wait_until_async(lambda: len(beside(world)) == 4 and len(world.targets()) == 2)
        await pass_time(world)
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c2")
        assert len(world.substrate.launched) == 8, "none was started again"


@pytest.mark.parametrize("mixed", [False, True], ids=["current", "mixed"])
@on_loop
async def test_what_served_before_the_update_is_started_again_until_it_comes_up_after_a_restart(
    tmp_path: Path, mixed: bool
) -> None:
    async with World(tmp_path) as world:
        if mixed:
            await mix(world)
        else:
            await world.serve(variant(count=2))
            await world.create_config("c2", variant(count=2))
        victim = beside(world).pop() if mixed else world.targets()[0].id
        before = {target.id for target in world.targets()} | beside(world)
        await world.create_config("c3", variant(count=2))
        canary = blue_green("CANARY", LONG_S, CanarySize=percent(10))
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c3", DeploymentConfig=canary)
        await wait_until_async(
            lambda: stage(world) is Stage.BAKING and len(before) + 2 == len(of_fleet(world))
        )
        await world.controller.stop(leave=True)
        world.substrate.kill_unseen(victim)
        world.substrate.refusal = invalid("no room for another instance")
        launched = len(world.substrate.launched)
        await world.start()
        await wait_until_async(lambda: len(world.substrate.launched) > launched + 2, "further attempts")
        assert stage(world) is Stage.BAKING
        world.substrate.refusal = None
        await wait_until_async(
            lambda: len(world.targets()) + len(beside(world)) == len(before) + 2, "all that served"
        )


@on_loop
async def test_a_new_fleet_that_is_not_there_again_after_a_restart_is_rolled_back_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        (old,) = world.targets()
        await world.create_config("c2")
        await update(world, blue_green("CANARY", LONG_S, CanarySize=percent(50)))
        await wait_until_async(lambda: stage(world) is Stage.BAKING and shares(world) == [0.5, 0.5])
        [new] = beside(world)
        await world.controller.stop(leave=True)
        world.substrate.kill_unseen(new)
        world.substrate.refusal = invalid("there is no such image")
        await world.start()
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
        assert described["FailureReason"] == "there is no such image"
        assert [target.id for target in world.targets()] == [old.id]
        assert not [each for each in caplog.records if each.exc_info]


async def mix(world: World) -> None:
    """Have a rolling update that cannot be rolled back: 2 instances of the old fleet, and 4 of the new one."""
    await world.serve(variant(count=4))
    await world.create_config("c2", variant(count=4))
    world.put_alarm("errors")
    await update(world, rolling(percent(50), LONG_S), "errors")
    await wait_until_async(lambda: shares(world)[1:] == [0.5])
    await pass_time(world)
    await wait_until_async(lambda: shares(world)[1:] == [1.0])
    world.substrate.refusal = invalid("there is no such image")
    world.put_alarm("errors", AlarmState.ALARM)
    await wait_until_async(lambda: world.now() == "UpdateRollbackFailed")
    world.substrate.refusal = None
    world.put_alarm("errors")


@pytest.mark.parametrize("further", [{}, {"RollbackMaximumBatchSize": percent(25)}])
@pytest.mark.parametrize("waits", [False, True], ids=["refused", "waits"])
@on_loop
async def test_a_rollback_without_room_takes_it_from_the_new_fleet(
    tmp_path: Path, further: dict[str, Any], waits: bool
) -> None:
    async with World(tmp_path) as world:
        launch = world.substrate.launch
        launching = 0

        async def limited(*request: Any) -> Any:
            nonlocal launching
            while len(world.substrate.instances) + launching >= 6:
                if not waits:
                    raise ApiError("ResourceLimitExceeded", "no room for another instance")
                world.substrate.shortage = "no node has room"
                await asyncio.sleep(0.005)  # sleeps: the substrate waits for room
            world.substrate.shortage = ""
            launching += 1
            try:
                return await launch(*request)
            finally:
                launching -= 1

        world.substrate.launch = limited  # type: ignore[method-assign, assignment]
        await world.serve(variant(count=4))
        (old,) = per_fleet(world)
        await world.create_config("c2", variant(count=4))
        world.put_alarm("errors")
        await update(world, rolling(percent(50), LONG_S, **further), "errors")
        await wait_until_async(lambda: shares(world)[1:] == [0.5])
        await pass_time(world)
        await wait_until_async(lambda: shares(world)[1:] == [1.0])
        assert sorted(per_fleet(world).values()) == [2, 4]
        world.put_alarm("errors", AlarmState.ALARM)
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
        assert per_fleet(world) == {old: 4}


@on_loop
async def test_a_rollback_that_fails_leaves_a_mix_that_another_update_replaces(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await mix(world)
        described = await world.describe()
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("UpdateRollbackFailed", "c")
        assert "went to ALARM" in described["FailureReason"]
        assert described["FailureReason"].endswith(
            " The rollback failed: there is no such image (4 instances of c2 still serve)"
        )
        assert "PendingDeploymentSummary" not in described
        [both] = described["ProductionVariants"]
        assert (both["CurrentInstanceCount"], both["DesiredInstanceCount"]) == (6, 6)
        assert [image["SpecifiedImage"] for image in both["DeployedImages"]] == ["halimede"]
        assert shares(world) == pytest.approx([1 / 3, 2 / 3])
        # both are there after a restart too
        await world.restart()
        [both] = describe_endpoint(world.endpoint().record, world.endpoint().fleets)["ProductionVariants"]
        assert both["CurrentInstanceCount"] == 0, "nothing has been looked at"
        assert await world.status() == "UpdateRollbackFailed"
        assert shares(world) == pytest.approx([1 / 3, 2 / 3])
        assert sorted(per_fleet(world).values()) == [2, 4]
        desired = [{"VariantName": "A", "DesiredInstanceCount": 2}]
        text = await world.refused(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired
        )
        assert text.startswith("Cannot update in-progress endpoint")
        await world.create_config("c3", variant(count=2))
        rolling_update = {
            "EndpointName": "e",
            "EndpointConfigName": "c3",
            "DeploymentConfig": rolling(percent(50)),
        }
        assert "update it with a BlueGreenUpdatePolicy" in await world.refused(
            "UpdateEndpoint", **rolling_update
        )
        # an update that fails leaves the mix
        world.substrate.refusal = invalid("there is no such image")
        canary = blue_green("CANARY", LONG_S, CanarySize=percent(10))
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c3", DeploymentConfig=canary)
        described = await settled(world)
        assert (described["EndpointStatus"], described["FailureReason"]) == (
            "UpdateRollbackFailed",
            "there is no such image",
        )
        world.substrate.refusal = None
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c3", DeploymentConfig=canary)
        await wait_until_async(lambda: len(shares(world)) == 3)
        assert shares(world) == pytest.approx([0.3, 0.1, 0.6])
        await pass_time(world)
        await wait_until_async(lambda: shares(world) == [0.0, 1.0, 0.0])
        await pass_time(world)
        described = await settled(world)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c3")
        await wait_until_async(lambda: list(per_fleet(world).values()) == [2])
        await wait_until_async(lambda: len(list((tmp_path / "fleets").iterdir())) == 1)


@on_loop
async def test_a_mix_can_be_deleted(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await mix(world)
        await world.call("DeleteEndpoint", EndpointName="e")
        await wait_until_async(lambda: world.deleted == ["e"])
        assert not world.substrate.instances
