"""Endpoints come into service, or fail with a reason; they are described and listed."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.meters import NoMeter
from halimede.hosting.specs import Container
from halimede.hosting.substrates.base import InstanceRequest, RunningInstance
from tests.hosting.control.fakes import QUICK, URL, World, on_loop, variant
from tests.support.waiting import wait_until_async

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e"


@on_loop
async def test_an_endpoint_comes_into_service(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model(Environment={"A": "b"})
        await world.create_config("c", variant("A", 2), variant("B", InitialVariantWeight=3.0))
        created = await world.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
        assert created == {"EndpointArn": ARN}
        described = await world.describe()
        assert described["EndpointStatus"] == "InService"
        assert described["EndpointArn"] == ARN
        assert described["EndpointConfigName"] == "c"
        assert "FailureReason" not in described
        first, second = described["ProductionVariants"]
        assert first == {
            "VariantName": "A",
            "DeployedImages": [{"SpecifiedImage": "halimede", "ResolvedImage": "halimede"}],
            "CurrentWeight": 1.0,
            "DesiredWeight": 1.0,
            "CurrentInstanceCount": 2,
            "DesiredInstanceCount": 2,
        }
        assert (second["CurrentWeight"], second["CurrentInstanceCount"]) == (3.0, 1)
        assert sorted(target.id for target in world.targets("A")) == sorted(world.substrate.of("A"))
        request = world.substrate.launched[0]
        assert (request.endpoint, request.variant, request.image) == ("e", "A", "halimede")
        assert request.environment == {"A": "b"}
        assert request.resources.cpus == 1
        assert request.model is not None
        assert (request.model / "config.pbtxt").is_file()
        # each variant has its archive once, for all its instances
        assert world.source.fetched == [URL, URL]
        assert len({each.model for each in world.substrate.launched}) == 2


@on_loop
async def test_the_answer_of_describe_is_held_until_the_endpoint_is_settled(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.gate.clear()
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        describing = asyncio.ensure_future(world.describe())
        await wait_until_async(lambda: bool(world.substrate.launched))
        assert not describing.done()
        world.substrate.gate.set()
        assert (await describing)["EndpointStatus"] == "InService"


@on_loop
async def test_answers_are_held_no_longer_once_the_host_stops(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.gate.clear()
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        describing = asyncio.ensure_future(world.describe())
        await wait_until_async(lambda: bool(world.substrate.launched))
        assert not describing.done()
        async with asyncio.timeout(QUICK.describe_hold_s / 2):
            world.controller.release()
            assert (await describing)["EndpointStatus"] == "Creating"
            assert (await world.describe())["EndpointStatus"] == "Creating"
        world.substrate.gate.set()


@on_loop
async def test_a_held_answer_comes_at_the_latest_when_it_is_due(tmp_path: Path) -> None:
    async with World(tmp_path, QUICK_DESCRIBE) as world:
        world.substrate.gate.clear()
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        described = await world.describe()
        assert described["EndpointStatus"] == "Creating"
        assert described["EndpointConfigName"] == "c"
        assert world.route() is None
        world.substrate.gate.set()


@on_loop
async def test_an_answer_is_held_no_longer_once_there_is_no_room(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.gate.clear()
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        describing = asyncio.ensure_future(world.describe())
        await wait_until_async(lambda: bool(world.substrate.launched))
        assert not describing.done()
        async with asyncio.timeout(QUICK.describe_hold_s / 2):
            world.substrate.shortage = "no node has a GPU"
            described = await describing
        [variant] = described["PendingDeploymentSummary"]["ProductionVariants"]
        [status] = variant["VariantStatus"]
        assert status["StatusMessage"] == "InsufficientInstanceCapacity: no node has a GPU"
        assert status["Status"] == "Creating"
        world.substrate.shortage = ""
        world.substrate.gate.set()


@on_loop
async def test_a_variant_that_grows_without_room_is_described_as_updating(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        world.substrate.gate.clear()
        desired = [{"VariantName": "A", "DesiredInstanceCount": 2}]
        await world.call(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=desired
        )
        await wait_until_async(lambda: len(world.substrate.launched) == 2)
        world.substrate.shortage = "no node has a GPU"
        [variant] = (await world.describe())["ProductionVariants"]
        [status] = variant["VariantStatus"]
        assert status["Status"] == "Updating"
        assert status["StatusMessage"] == "InsufficientInstanceCapacity: no node has a GPU"
        world.substrate.shortage = ""
        world.substrate.gate.set()


QUICK_DESCRIBE = type(QUICK)(first_ping_s=0.005, describe_hold_s=0.05, backoff_s=0.01)


@on_loop
async def test_an_instance_that_is_not_well_yet_is_asked_again(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.ping = 503
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        await wait_until_async(lambda: bool(world.substrate.instances))
        [asked] = world.substrate.instances.values()
        await wait_until_async(lambda: asked.pings >= 3, "further pings")
        assert world.now() == "Creating"
        for instance in world.substrate.instances.values():
            instance.ping = 200
        assert await world.status() == "InService"
        assert len(world.substrate.launched) == 1


# failures


async def _fails(world: World, *variants: dict[str, object]) -> str:
    """Why the endpoint fails; nothing is left of it then."""
    await world.create_model()
    await world.create_config("c", *variants)
    await world.create_endpoint()
    described = await world.describe()
    assert described["EndpointStatus"] == "Failed"
    assert described["EndpointConfigName"] == "c"
    assert not world.substrate.instances
    assert world.route() is None
    assert not list((world.directory / "fleets").glob("*"))
    reason: str = described["FailureReason"]
    return reason


@on_loop
async def test_an_archive_that_cannot_be_fetched_fails_the_endpoint(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.source.failure = invalid("Could not find model data at s3://bucket/model.tar.gz")
        assert await _fails(world) == "Could not find model data at s3://bucket/model.tar.gz"
        assert not world.substrate.launched


@on_loop
async def test_a_reason_is_no_longer_than_sagemaker_s(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.source.failure = invalid("x" * 2000)
        assert await _fails(world) == "x" * 1024


@on_loop
async def test_a_launch_that_is_refused_fails_the_endpoint(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.refusal = ApiError("ResourceLimitExceeded", "no room for another instance")
        assert await _fails(world, variant(count=3), variant("B")) == "no room for another instance"


@on_loop
async def test_an_instance_that_ends_at_once_is_tried_twice(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.die = 99
        reason = await _fails(world)
        first, second = world.substrate.launched
        assert reason == (
            "The primary container for production variant A did not pass the ping health check: it ended with "
            f"status 3. Its log is A/{second.id} in /aws/sagemaker/Endpoints/e."
        )
        assert first.id != second.id


@on_loop
async def test_an_instance_that_ends_once_while_it_starts_is_replaced(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.die = 1
        await world.serve()
        assert len(world.substrate.launched) == 2


@pytest.mark.parametrize(
    ("ping", "why"),
    [(503, "it answers a ping with status 503"), (0, "no answer to GET /ping within 0.2 seconds")],
)
@on_loop
async def test_an_instance_that_does_not_get_well_fails_the_endpoint(
    tmp_path: Path, ping: int, why: str
) -> None:
    async with World(tmp_path, replace(QUICK, ping_timeout_s=0.2)) as world:
        world.substrate.ping = ping
        reason = await _fails(world, variant(ContainerStartupHealthCheckTimeoutInSeconds=1))
        assert (
            "container for production variant A did not pass the ping health check within 1 seconds" in reason
        )
        assert f"{why}; its last lines: waiting for a licence. Look at the log of A/i-" in reason
        assert "ContainerStartupHealthCheckTimeoutInSeconds" in reason


@on_loop
async def test_one_variant_that_fails_ends_the_others(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model("bad", Image="bad", ContainerHostname="box")
        launch = world.substrate.launch

        async def refuse_bad(request: InstanceRequest, *further: Any) -> RunningInstance:
            if request.image == "bad":
                raise invalid("no rule for the image 'bad'")
            return await launch(request, *further)

        world.substrate.launch = refuse_bad  # type: ignore[assignment, method-assign]
        reason = await _fails(world, variant("A", 2), {**variant("B"), "ModelName": "bad"})
        assert reason == "no rule for the image 'bad'"


@on_loop
async def test_what_nobody_foresaw_fails_the_endpoint_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(tmp_path) as world:
        world.source.failure = RuntimeError("boom")
        assert await _fails(world) == "internal error; the log of the host has the details"
        assert "boom" in caplog.text
        world.source.failure = None
        world.substrate.refusal = RuntimeError("bang")
        await world.create_endpoint("f")
        assert (await world.describe("f"))["FailureReason"] == "the host failed: bang"


# refusals


@on_loop
async def test_endpoints_that_are_not_there_are_named_by_their_arn(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        text = f'Could not find endpoint "{ARN}".'
        weights = [{"VariantName": "A", "DesiredWeight": 1.0}]
        assert await world.refused("DescribeEndpoint", EndpointName="e") == text
        assert await world.refused("DeleteEndpoint", EndpointName="e") == text
        assert await world.refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="c") == text
        refused = await world.refused(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=weights
        )
        assert refused == text


@on_loop
async def test_an_existing_endpoint_is_not_replaced(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        text = (
            'Cannot create already existing endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e".'
        )
        for name in ("e", "E"):
            assert await world.refused("CreateEndpoint", EndpointName=name, EndpointConfigName="c") == text


@on_loop
async def test_an_endpoint_that_is_changing_or_failed_cannot_be_updated(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.substrate.gate.clear()
        await world.create_model()
        await world.create_config()
        await world.create_endpoint()
        text = f'Cannot update in-progress endpoint "{ARN}".'
        weights = [{"VariantName": "A", "DesiredWeight": 1.0}]
        assert await world.refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="c") == text
        refused = await world.refused(
            "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=weights
        )
        assert refused == text
        world.substrate.refusal = invalid("no")
        world.substrate.gate.set()
        assert await world.status() == "Failed"
        refused = await world.refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
        assert refused == f'Cannot update failed endpoint "{ARN}"; delete it and create another one.'


@on_loop
async def test_endpoints_are_listed(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        world.source.failure = invalid("no")
        await world.create_endpoint("f")
        assert await world.status("f") == "Failed"
        listed = (await world.call("ListEndpoints", SortBy="Name", SortOrder="Ascending"))["Endpoints"]
        assert [(each["EndpointName"], each["EndpointStatus"]) for each in listed] == [
            ("e", "InService"),
            ("f", "Failed"),
        ]
        assert set(listed[0]) == {
            "EndpointName", "EndpointArn", "CreationTime", "LastModifiedTime", "EndpointStatus"
        }  # fmt: skip
        listed = (await world.call("ListEndpoints", StatusEquals="Failed"))["Endpoints"]
        assert [each["EndpointName"] for each in listed] == ["f"]


@on_loop
async def test_multi_model_instances_join_the_residency(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model(Mode="MultiModel", ModelDataUrl="s3://bucket/models/")
        await world.create_config("c", variant(count=2, VolumeSizeInGB=3))
        await world.create_endpoint()
        assert await world.status() == "InService"
        assert not world.source.fetched
        assert all(request.multi_model and request.model is None for request in world.substrate.launched)
        (residency,) = world.residencies
        assert sorted(residency.targets) == sorted(world.substrate.instances)
        route = world.route()
        assert route is not None
        spec = route.variants["A"].spec
        assert spec.volume_bytes == 3 << 30
        assert spec.container == Container("halimede", "s3://bucket/models/", multi_model=True)
        await world.call("DeleteEndpoint", EndpointName="e")
        await wait_until_async(lambda: not world.residencies)


@on_loop
async def test_requests_are_counted_by_the_first_configuration_and_by_later_ones(tmp_path: Path) -> None:
    counted = []

    def make_meter(endpoint: EndpointId, variant_name: str, config: str) -> NoMeter:
        counted.append((endpoint.name, variant_name, config))
        return NoMeter()

    async with World(tmp_path, make_meter=make_meter) as world:
        await world.serve()
        assert counted == [("e", "A", "c")]
        await world.controller.stop(leave=True)
        await world.start()
        await wait_until_async(lambda: counted == [("e", "A", "c")] * 2)
        await world.describe()
        await world.create_config("c2")
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
        assert (await world.describe())["EndpointConfigName"] == "c2"
        assert counted[2:] == [("e", "A", "c2")]
