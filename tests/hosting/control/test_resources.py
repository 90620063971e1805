"""Models and endpoint configurations."""

from pathlib import Path
from typing import Any

import pytest

from tests.hosting.control.fakes import CALLER, ROLE, World, on_loop, variant

MODEL_ARN = "arn:aws:sagemaker:us-east-1:000000000000:model/m"
CONFIG_ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint-config/c"


@on_loop
async def test_a_model_is_described_as_it_was_asked_for(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        container = {"Image": "halimede", "ModelDataUrl": "s3://bucket/m.tar.gz", "Environment": {"A": "b"}}
        request = {"ModelName": "m", "ExecutionRoleArn": ROLE, "PrimaryContainer": container}
        created = await world.call("CreateModel", **request, Tags=[{"Key": "k", "Value": "v"}])
        assert created == {"ModelArn": MODEL_ARN}
        described = dict(await world.call("DescribeModel", ModelName="m"))
        assert described.pop("CreationTime").tzinfo is not None
        assert described == {
            **request,
            "PrimaryContainer": {**container, "Mode": "SingleModel"},
            "EnableNetworkIsolation": False,
            "ModelArn": MODEL_ARN,
        }


@on_loop
async def test_a_configuration_is_described_as_it_was_asked_for(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model()
        request = {"EndpointConfigName": "c", "ProductionVariants": [variant(InitialVariantWeight=2.5)]}
        assert await world.call("CreateEndpointConfig", **request) == {"EndpointConfigArn": CONFIG_ARN}
        described = dict(await world.call("DescribeEndpointConfig", EndpointConfigName="c"))
        del described["CreationTime"]
        assert described == {**request, "EnableNetworkIsolation": False, "EndpointConfigArn": CONFIG_ARN}


@on_loop
async def test_defaults_are_described_and_what_was_asked_for_stays(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        url = "s3://bucket/models/"
        many = {"Image": "halimede", "ModelDataUrl": url, "Mode": "MultiModel"}
        await world.call(
            "CreateModel",
            ModelName="many",
            ExecutionRoleArn=ROLE,
            Containers=[many],
            EnableNetworkIsolation=True,
        )
        model = await world.call("DescribeModel", ModelName="many")
        assert (model["Containers"], model["EnableNetworkIsolation"]) == ([many], True)
        single = {"Image": "halimede", "ModelDataUrl": "s3://bucket/model.tar.gz"}
        await world.call("CreateModel", ModelName="one", ExecutionRoleArn=ROLE, Containers=[single])
        model = await world.call("DescribeModel", ModelName="one")
        assert model["Containers"] == [{**single, "Mode": "SingleModel"}]
        await world.create_model()
        bare = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu"}
        await world.create_config("c", bare, variant("B", 3, InitialVariantWeight=0.0))
        await world.restart()
        config = await world.call("DescribeEndpointConfig", EndpointConfigName="c")
        assert config["ProductionVariants"] == [
            {**bare, "InitialInstanceCount": 1, "InitialVariantWeight": 1.0},
            variant("B", 3, InitialVariantWeight=0.0),
        ]


AWS_TAG = [{"Key": "Aws:owner", "Value": "v"}]
TWICE = [{"Key": "k", "Value": "v"}, {"Key": "l", "Value": "v"}, {"Key": "k", "Value": "w"}]


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        (AWS_TAG, "aws: prefixed tag key names are not allowed for external use: 'Aws:owner'"),
        (TWICE, "Duplicate tag keys found: 'k'; each key may be given once"),
    ],
)
@on_loop
async def test_tags_of_aws_and_doubled_keys_are_refused(
    tmp_path: Path, tags: list[dict[str, str]], text: str
) -> None:
    async with World(tmp_path) as world:
        await world.create_model()
        await world.create_config()
        calls: list[tuple[str, dict[str, Any]]] = [
            ("AddTags", {"ResourceArn": MODEL_ARN}),
            ("CreateModel", {"ModelName": "n", "PrimaryContainer": {"Image": "halimede"}}),
            ("CreateEndpointConfig", {"EndpointConfigName": "d", "ProductionVariants": [variant()]}),
            ("CreateEndpoint", {"EndpointName": "e", "EndpointConfigName": "c"}),
        ]
        for name, request in calls:
            assert await world.refused(name, **request, Tags=tags) == text
        assert [each["ModelName"] for each in (await world.call("ListModels"))["Models"]] == ["m"]
        assert (await world.call("ListEndpoints"))["Endpoints"] == []
        assert (await world.call("ListTags", ResourceArn=MODEL_ARN))["Tags"] == []


@on_loop
async def test_what_is_missing_is_named_by_its_arn(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        model, config = (
            f'Could not find model "{MODEL_ARN}".',
            f'Could not find endpoint configuration "{CONFIG_ARN}".',
        )
        assert await world.refused("DescribeModel", ModelName="m") == model
        assert await world.refused("DeleteModel", ModelName="m") == model
        assert await world.refused("DescribeEndpointConfig", EndpointConfigName="c") == config
        assert await world.refused("DeleteEndpointConfig", EndpointConfigName="c") == config
        variants = [variant()]
        assert (
            await world.refused("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=variants)
            == model
        )
        assert await world.refused("CreateEndpoint", EndpointName="e", EndpointConfigName="c") == config


@pytest.mark.parametrize("name", ["m", "M"])
@on_loop
async def test_a_name_is_taken_whatever_the_case_of_its_letters(tmp_path: Path, name: str) -> None:
    async with World(tmp_path) as world:
        await world.create_model("m")
        container = {"Image": "halimede"}
        text = await world.refused(
            "CreateModel", ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        assert text == f'Cannot create already existing model "{MODEL_ARN}".'


@on_loop
async def test_an_existing_configuration_is_not_replaced(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model()
        await world.create_config("c")
        variants = [variant(count=7)]
        text = await world.refused(
            "CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=variants
        )
        assert text == f'Cannot create already existing endpoint configuration "{CONFIG_ARN}".'
        described = await world.call("DescribeEndpointConfig", EndpointConfigName="c")
        assert described["ProductionVariants"] == [variant(InitialVariantWeight=1.0)]


@on_loop
async def test_an_unknown_instance_type_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model()
        variants = [variant(InstanceType="ml.huge")]
        text = await world.refused(
            "CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=variants
        )
        assert "no instance type 'ml.huge'" in text
        assert "ml.local.cpu" in text


@on_loop
async def test_resources_survive_a_restart_and_their_deletion_does_too(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model("m")
        await world.create_model("gone")
        await world.create_config("c")
        await world.call("DeleteModel", ModelName="gone")
        await world.restart()
        assert [each["ModelName"] for each in (await world.call("ListModels"))["Models"]] == ["m"]
        described = await world.call("DescribeEndpointConfig", EndpointConfigName="c")
        assert described["ProductionVariants"] == [variant(InitialVariantWeight=1.0)]


@on_loop
async def test_what_cannot_be_written_has_not_happened(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model("m")
        world.set_writable(False)
        calls: list[tuple[str, dict[str, Any]]] = [
            ("CreateModel", {"ModelName": "n", "PrimaryContainer": {"Image": "halimede"}}),
            ("DeleteModel", {"ModelName": "m"}),
            ("AddTags", {"ResourceArn": MODEL_ARN, "Tags": [{"Key": "k", "Value": "v"}]}),
        ]
        for name, request in calls:
            with pytest.raises(Exception, match=r"state in .* cannot be read or written") as raised:
                await world.controller.operations()[name](request, CALLER)
            assert getattr(raised.value, "status", 0) == 500
        world.set_writable(True)
        assert [each["ModelName"] for each in (await world.call("ListModels"))["Models"]] == ["m"]
        await world.create_model("n")


# tags


async def _tags(world: World, arn: str = MODEL_ARN) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in (await world.call("ListTags", ResourceArn=arn))["Tags"]}


@on_loop
async def test_tags_are_added_replaced_and_taken_away(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        container = {"Image": "halimede"}
        await world.call(
            "CreateModel", ModelName="m", PrimaryContainer=container, Tags=[{"Key": "a", "Value": "1"}]
        )
        added = await world.call(
            "AddTags", ResourceArn=MODEL_ARN, Tags=[{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}]
        )
        assert {tag["Key"]: tag["Value"] for tag in added["Tags"]} == {"a": "2", "b": "3"}
        await world.restart()
        assert await _tags(world) == {"a": "2", "b": "3"}
        await world.call("DeleteTags", ResourceArn=MODEL_ARN, TagKeys=["a", "unknown"])
        assert await _tags(world) == {"b": "3"}


@on_loop
async def test_tags_go_with_what_they_describe(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        container = {"Image": "halimede"}
        await world.call(
            "CreateModel", ModelName="m", PrimaryContainer=container, Tags=[{"Key": "a", "Value": "1"}]
        )
        await world.call("DeleteModel", ModelName="m")
        for name, further in (
            ("ListTags", {}),
            ("AddTags", {"Tags": []}),
            ("DeleteTags", {"TagKeys": ["a"]}),
        ):
            assert await world.refused(name, ResourceArn=MODEL_ARN, **further) == (
                f'Could not find resource "{MODEL_ARN}".'
            )
        await world.create_model("m")
        assert await _tags(world) == {}


@on_loop
async def test_a_resource_has_fifty_tags_at_most(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create_model("m")
        tags = [{"Key": f"k{number}", "Value": ""} for number in range(50)]
        await world.call("AddTags", ResourceArn=MODEL_ARN, Tags=tags)
        await world.call("AddTags", ResourceArn=MODEL_ARN, Tags=tags[:3])
        with pytest.raises(Exception, match="would have 51 tags"):
            await world.call("AddTags", ResourceArn=MODEL_ARN, Tags=[{"Key": "more", "Value": ""}])
        assert len(await _tags(world)) == 50
