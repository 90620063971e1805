"""Endpoints of models of several containers: what their instances are started with."""

from pathlib import Path

from halimede.hosting.errors import ApiError
from tests.hosting.control.fakes import ROLE, World, on_loop, variant

FIRST, SECOND = "s3://bucket/first.tar.gz", "s3://bucket/second.tar.gz"


async def create(world: World, count: int = 1) -> None:
    """An endpoint of a model of three containers, two of which have an archive."""
    containers = [
        {"Image": "halimede", "ModelDataUrl": FIRST, "Environment": {"N": "1"}},
        {"Image": "other", "Environment": {"N": "2"}},
        {"Image": "halimede", "ModelDataUrl": SECOND},
    ]
    await world.call("CreateModel", ModelName="m", ExecutionRoleArn=ROLE, Containers=containers)
    await world.create_config("c", variant(count=count))
    await world.create_endpoint()


@on_loop
async def test_each_container_gets_its_own_archive_which_is_fetched_once(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await create(world, 2)
        assert await world.status() == "InService"
        assert world.source.fetched == [FIRST, SECOND]
        for request in world.substrate.launched:
            assert [each.name for each in request.containers] == ["container-1", "container-2", "container-3"]
            assert request.images == ["halimede", "other", "halimede"]
            assert [dict(each.environment) for each in request.containers] == [{"N": "1"}, {"N": "2"}, {}]
            models = [each.model for each in request.containers]
            assert models[1] is None
            assert [path.parent.name for path in models if path is not None] == ["container-1", "container-3"]
            assert all((path / "config.pbtxt").exists() for path in models if path is not None)
            assert request.model is None


@on_loop
async def test_an_archive_that_cannot_be_had_is_said_with_its_container(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.source.failure = ApiError("ValidationException", f"there is no such object {FIRST}")
        await create(world)
        described = await world.describe()
        assert described["EndpointStatus"] == "Failed"
        assert described["FailureReason"] == f"container 'container-1': there is no such object {FIRST}"
        assert not world.substrate.launched


@on_loop
async def test_the_next_process_of_the_host_goes_on_with_them(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await create(world)
        assert await world.status() == "InService"
        await world.restart()
        assert await world.status() == "InService"
        assert len(world.substrate.launched) == 1
        [shown] = (await world.describe())["ProductionVariants"]
        assert [image["SpecifiedImage"] for image in shown["DeployedImages"]] == [
            "halimede",
            "other",
            "halimede",
        ]
