"""What becomes of an experiment, and of its endpoint, from its creation to its end."""

from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller
from tests.hosting.control.fakes import on_loop
from tests.hosting.experiments.fakes import (
    ROLE,
    WEEK,
    World,
    experiment,
    model_variant,
    moment,
    shadow_mode,
)


@on_loop
async def test_an_experiment_is_deployed_runs_for_a_week_and_is_cleared_away(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        endpoints = world.endpoints
        await world.create()
        assert await world.status() == "Creating"
        assert await world.variants() == {"A": "InService", "B": "Creating"}
        await world.tick()
        assert await world.status() == "Created"
        await world.tick()
        assert await world.status() == "Starting"
        await world.tick()
        assert (await world.status(), endpoints.e.status) == ("Starting", "Updating")
        assert await world.variants() == {"A": "Updating", "B": "Creating"}
        await world.tick(5)
        [name] = endpoints.deploys
        config = endpoints.configs[name]
        assert config["ProductionVariants"] == [
            {
                "VariantName": "A",
                "ModelName": "m",
                "InstanceType": "ml.local.cpu",
                "InitialInstanceCount": 1,
                "InitialVariantWeight": 1.0,
                "RoutingConfig": {"RoutingStrategy": "RANDOM"},
            }
        ]
        assert config["ShadowProductionVariants"] == [
            {
                "VariantName": "B",
                "ModelName": "n",
                "InstanceType": "ml.local.cpu",
                "InitialInstanceCount": 1,
                "InitialVariantWeight": 0.5,
            }
        ]
        endpoints.settle()
        await world.tick()
        assert await world.status() == "Running"
        assert await world.variants() == {"A": "InService", "B": "InService"}
        await world.tick(seconds=WEEK - 30)
        assert await world.status() == "Running"
        await world.tick(seconds=30)
        assert await world.status() == "Stopping"
        assert await world.variants() == {"A": "InService", "B": "Deleting"}
        await world.tick(3)
        after = endpoints.configs[endpoints.deploys[-1]]
        assert [each["VariantName"] for each in after["ProductionVariants"]] == ["A"]
        assert "ShadowProductionVariants" not in after
        endpoints.settle()
        await world.tick()
        described = await world.describe()
        assert described["Status"] == "Completed"
        assert described["CompletionTime"].timestamp() == world.now
        assert await world.variants() == {"A": "InService", "B": "Deleted"}
        await world.tick(5)
        assert len(endpoints.deploys) == 2


@on_loop
async def test_what_describe_and_list_say(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        storage = {"Destination": "s3://bucket/captured", "ContentType": {"CsvContentTypes": ["text/csv"]}}
        answer = await world.call(
            "CreateInferenceExperiment",
            **experiment(
                Description="try n",
                DataStorageConfig=storage,
                Schedule={"StartTime": moment(3600), "EndTime": moment(7200)},
                KmsKey="key",
            ),
        )
        arn = "arn:aws:sagemaker:us-east-1:000000000000:inference-experiment/x"
        assert answer == {"InferenceExperimentArn": arn}
        await world.tick()
        described = await world.describe()
        assert described == {
            "Arn": arn,
            "Name": "x",
            "Type": "ShadowMode",
            "Schedule": {"StartTime": moment(3600), "EndTime": moment(7200)},
            "Status": "Created",
            "Description": "try n",
            "CreationTime": moment(0),
            "LastModifiedTime": moment(1),
            "RoleArn": ROLE,
            "EndpointMetadata": {
                "EndpointName": "e",
                "EndpointConfigName": "c",
                "EndpointStatus": "InService",
            },
            "ModelVariants": [
                {**model_variant("A"), "Status": "InService"},
                {**model_variant("B", "n"), "Status": "Creating"},
            ],
            "DataStorageConfig": storage,
            "ShadowModeConfig": shadow_mode(),
            "KmsKey": "key",
        }
        [config] = [each for name, each in world.endpoints.configs.items() if name != "c"]
        assert config["KmsKeyId"] == "key"
        assert config["DataCaptureConfig"] == {
            "EnableCapture": True,
            "InitialSamplingPercentage": 100,
            "DestinationS3Uri": "s3://bucket/captured",
            "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
            "CaptureContentTypeHeader": {"CsvContentTypes": ["text/csv"]},
        }
        [summary] = (await world.call("ListInferenceExperiments"))["InferenceExperiments"]
        assert summary == {
            key: described[key]
            for key in (
                "Name", "Type", "Schedule", "Status", "Description", "CreationTime", "LastModifiedTime", "RoleArn",
            )
        }  # fmt: skip
        listed = await world.call("ListInferenceExperiments", StatusEquals="Running")
        assert listed["InferenceExperiments"] == []


@on_loop
async def test_it_starts_when_it_is_scheduled(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create(Schedule={"StartTime": moment(3600), "EndTime": moment(7200)})
        await world.tick(10)
        assert await world.status() == "Created"
        await world.tick(seconds=3600)
        assert await world.status() == "Starting"


@on_loop
async def test_it_can_be_started_ahead_of_its_schedule(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create(Schedule={"StartTime": moment(3600), "EndTime": moment(7200)})
        await world.tick()
        await world.call("StartInferenceExperiment", Name="x")
        assert await world.status() == "Starting"
        assert (await world.describe())["Schedule"]["StartTime"] == moment(1)
        message = await world.refused("StartInferenceExperiment", "ConflictException", Name="x")
        assert message == 'Cannot start inference experiment "x": it is Starting.'


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ({"StartTime": moment(-61)}, "StartTime is in the past"),
        ({"EndTime": moment(-1)}, "EndTime is in the past"),
        ({"StartTime": moment(100), "EndTime": moment(100)}, "EndTime must be after StartTime"),
        ({"EndTime": moment(31 * 86_400)}, "30 days at most"),
    ],
)
def test_schedules_that_cannot_be(tmp_path: Path, schedule: dict[str, Any], text: str) -> None:
    @on_loop
    async def test() -> None:
        async with World(tmp_path) as world:
            assert text in await world.refused("CreateInferenceExperiment", **experiment(Schedule=schedule))

    test()


@pytest.mark.parametrize(
    ("further", "text"),
    [
        ({"EndpointName": "no"}, 'Could not find endpoint "no"'),
        ({"ModelVariants": [model_variant("A")]}, "ModelVariants has A; it must have the production variant"),
        ({"ModelVariants": [model_variant("A"), model_variant("C")]}, "A and B"),
        ({"ModelVariants": [model_variant("A"), model_variant("B", count=0)]}, "InstanceCount is 0"),
        ({"ModelVariants": [model_variant("A"), model_variant("B", "no")]}, 'Could not find model "no"'),
        ({"ShadowModeConfig": shadow_mode(101)}, "SamplingPercentage is 101"),
        ({"ShadowModeConfig": shadow_mode(-1)}, "SamplingPercentage is -1"),
        ({"ShadowModeConfig": shadow_mode(shadow="A")}, "'A' cannot be its own shadow"),
        (
            {
                "ShadowModeConfig": shadow_mode(source="C"),
                "ModelVariants": [model_variant("C"), model_variant("B")],
            },
            'the production variants of endpoint "e" are A; it must have that one alone',
        ),
    ],
)
def test_experiments_that_cannot_be(tmp_path: Path, further: dict[str, Any], text: str) -> None:
    @on_loop
    async def test() -> None:
        async with World(tmp_path) as world:
            assert text in await world.refused("CreateInferenceExperiment", **experiment(**further))
            assert (await world.call("ListInferenceExperiments"))["InferenceExperiments"] == []

    test()


@on_loop
async def test_one_experiment_of_a_name_and_one_on_an_endpoint(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create()
        message = await world.refused("CreateInferenceExperiment", "ResourceInUse", **experiment("X"))
        assert message.startswith("Cannot create already existing inference experiment")
        message = await world.refused("CreateInferenceExperiment", "ResourceInUse", **experiment("y"))
        assert message == 'Endpoint "e" has the inference experiment "x" already.'
        for operation in ("Describe", "Start", "Delete"):
            message = await world.refused(f"{operation}InferenceExperiment", "ResourceNotFound", Name="no")
            assert message.startswith("Could not find inference experiment")


@on_loop
async def test_the_shadow_is_promoted(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        await world.call(
            "StopInferenceExperiment",
            Name="x",
            ModelVariantActions={"A": "Remove", "B": "Promote"},
            DesiredModelVariants=[model_variant("B", "n", count=3)],
            Reason="n is better",
        )
        assert await world.status() == "Stopping"
        assert await world.variants() == {"A": "Deleting", "B": "InService"}
        await world.tick(2)
        [variant] = world.endpoints.configs[world.endpoints.deploys[-1]]["ProductionVariants"]
        assert (variant["VariantName"], variant["ModelName"], variant["InitialInstanceCount"]) == (
            "B",
            "n",
            3,
        )
        assert variant["InitialVariantWeight"] == 1.0
        world.endpoints.settle()
        await world.tick()
        described = await world.describe()
        assert (described["Status"], described["StatusReason"]) == ("Completed", "n is better")
        assert await world.variants() == {"A": "Deleted", "B": "InService"}


@on_loop
async def test_the_shadow_is_removed_and_the_experiment_cancelled(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        actions = {"A": "Retain", "B": "Remove"}
        await world.call(
            "StopInferenceExperiment", Name="x", ModelVariantActions=actions, DesiredState="Cancelled"
        )
        await world.tick(2)
        world.endpoints.settle()
        await world.tick()
        assert await world.status() == "Cancelled"
        assert len(world.endpoints.configs[world.endpoints.e.config_name]["ProductionVariants"]) == 1


@on_loop
async def test_both_variants_stay_as_they_are(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        actions = {"A": "Retain", "B": "Retain"}
        await world.call("StopInferenceExperiment", Name="x", ModelVariantActions=actions)
        assert await world.status() == "Completed"
        await world.tick(3)
        assert len(world.endpoints.deploys) == 1
        assert await world.variants() == {"A": "InService", "B": "InService"}


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ({"C": "Remove"}, "the experiment has no variant 'C'; it has A and B"),
        ({"A": "Promote"}, "'A' is the production variant"),
        ({"A": "Remove"}, "'A' can be removed only if its shadow 'B' is promoted"),
        ({"A": "Remove", "B": "Retain"}, "only if its shadow"),
        ({"A": "Retain", "B": "Promote"}, "set 'A' to Remove"),
    ],
)
def test_actions_that_leave_no_variant_or_two(tmp_path: Path, actions: dict[str, str], text: str) -> None:
    @on_loop
    async def test() -> None:
        async with World(tmp_path) as world:
            await world.run()
            message = await world.refused("StopInferenceExperiment", Name="x", ModelVariantActions=actions)
            assert text in message
            assert await world.status() == "Running"

    test()


@on_loop
async def test_an_experiment_that_has_not_started_is_stopped_without_a_change(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create(Schedule={"StartTime": moment(3600)})
        await world.call("StopInferenceExperiment", Name="x", ModelVariantActions={"B": "Remove"})
        assert await world.status() == "Cancelled"
        actions = {"B": "Remove"}
        message = await world.refused(
            "StopInferenceExperiment", "ConflictException", Name="x", ModelVariantActions=actions
        )
        assert message == 'Cannot stop inference experiment "x": it is Cancelled.'
        await world.tick(3, seconds=3600)
        assert world.endpoints.deploys == []


@on_loop
async def test_an_update_of_what_runs_gives_the_endpoint_another_configuration(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        await world.call(
            "UpdateInferenceExperiment", Name="x", ShadowModeConfig=shadow_mode(100), Description="all"
        )
        assert await world.status() == "Updating"
        assert await world.variants() == {"A": "Updating", "B": "Updating"}
        await world.tick(2)
        [shadow] = world.endpoints.configs[world.endpoints.deploys[-1]]["ShadowProductionVariants"]
        assert shadow["InitialVariantWeight"] == 1.0
        world.endpoints.settle()
        await world.tick(2)
        described = await world.describe()
        assert (described["Status"], described["Description"]) == ("Running", "all")
        assert described["ShadowModeConfig"] == shadow_mode(100)


@on_loop
async def test_an_update_that_does_not_come_about_leaves_the_experiment_as_it_was(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        await world.call("UpdateInferenceExperiment", Name="x", ShadowModeConfig=shadow_mode(100))
        await world.tick(2)
        world.endpoints.settle("no room")
        await world.tick()
        described = await world.describe()
        assert described["Status"] == "Running"
        assert described["StatusReason"] == "the update did not come about: no room"
        assert described["ShadowModeConfig"] == shadow_mode(50)
        await world.tick(5)
        assert await world.status() == "Running"


@on_loop
async def test_updates_of_the_schedule_change_no_endpoint(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        await world.call("UpdateInferenceExperiment", Name="x", Schedule={"EndTime": moment(600)})
        assert await world.status() == "Running"
        assert (await world.describe())["Schedule"]["EndTime"] == moment(600)
        message = await world.refused(
            "UpdateInferenceExperiment", Name="x", Schedule={"StartTime": moment(100)}
        )
        assert "only the EndTime" in message
        await world.tick(seconds=600)
        assert await world.status() == "Stopping"
        await world.refused("UpdateInferenceExperiment", "ConflictException", Name="x", Description="late")


@on_loop
async def test_what_has_not_started_can_be_changed_altogether(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create(Schedule={"StartTime": moment(3600), "EndTime": moment(7200)})
        await world.tick()
        await world.call(
            "UpdateInferenceExperiment",
            Name="x",
            Schedule={"StartTime": moment(60)},
            ModelVariants=[model_variant("B", "n", count=2)],
        )
        assert (await world.describe())["Schedule"] == {"StartTime": moment(60), "EndTime": moment(7200)}
        await world.tick(3, seconds=60)
        [shadow] = world.endpoints.configs[world.endpoints.deploys[-1]]["ShadowProductionVariants"]
        assert shadow["InitialInstanceCount"] == 2


@on_loop
async def test_an_endpoint_that_does_not_become_what_it_is_to_be(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create()
        await world.tick(3)
        world.endpoints.settle("the model cannot be fetched")
        await world.tick()
        described = await world.describe()
        assert described["Status"] == "Cancelled"
        assert described["StatusReason"].endswith(": the model cannot be fetched")
        assert described["EndpointMetadata"]["FailureReason"] == "the model cannot be fetched"
        await world.call("DeleteInferenceExperiment", Name="x")
        await world.create()


@on_loop
async def test_a_change_that_the_endpoint_refuses(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create()
        world.endpoints.refusal = ApiError("ValidationException", "must be deregistered")
        await world.tick(3)
        described = await world.describe()
        assert (described["Status"], world.endpoints.deploys) == ("Cancelled", [])
        assert "must be deregistered" in described["StatusReason"]


@on_loop
async def test_an_endpoint_that_is_being_changed_is_waited_for(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.endpoints.e.status, world.endpoints.e.pending = "Updating", "c"
        await world.create()
        await world.tick(10)
        assert await world.status() == "Starting"
        assert world.endpoints.deploys == []
        world.endpoints.settle()
        await world.tick()
        assert len(world.endpoints.deploys) == 1


@on_loop
async def test_an_endpoint_that_goes_or_is_given_something_else_ends_its_experiment(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        world.endpoints.e.config_name = "c"
        await world.tick()
        described = await world.describe()
        assert described["Status"] == "Cancelled"
        assert described["StatusReason"] == "the endpoint was given the configuration c"
        await world.call("DeleteInferenceExperiment", Name="x")
        await world.create()
        del world.endpoints.endpoints["e"]
        await world.tick()
        described = await world.describe()
        assert (described["Status"], described["StatusReason"]) == ("Cancelled", "the endpoint is gone")
        assert described["EndpointMetadata"] == {"EndpointName": "e"}


@on_loop
async def test_only_what_does_not_run_is_deleted_and_its_endpoint_stays(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        message = await world.refused("DeleteInferenceExperiment", "ConflictException", Name="x")
        assert message == 'Cannot delete inference experiment "x": it is Running; stop it first.'
        await world.call(
            "StopInferenceExperiment", Name="x", ModelVariantActions={"A": "Retain", "B": "Retain"}
        )
        await world.call("DeleteInferenceExperiment", Name="x")
        assert (await world.call("ListInferenceExperiments"))["InferenceExperiments"] == []
        assert world.endpoints.e.status == "InService"


@on_loop
async def test_a_model_that_is_gone_at_the_end(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.run()
        world.endpoints.models.clear()
        await world.tick(seconds=WEEK)
        described = await world.describe()
        assert described["Status"] == "Cancelled"
        assert described["StatusReason"] == 'its shadow variant cannot be removed: Could not find model "m".'


@on_loop
async def test_the_endpoints_own_capture_is_there_again_afterwards(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        capture = {"EnableCapture": True, "InitialSamplingPercentage": 5, "DestinationS3Uri": "s3://own/x"}
        world.endpoints.configs["c"] = {**world.endpoints.configs["c"], "DataCaptureConfig": capture}
        await world.run(DataStorageConfig={"Destination": "s3://bucket/captured"})
        running = world.endpoints.configs[world.endpoints.e.config_name]
        assert running["DataCaptureConfig"]["DestinationS3Uri"] == "s3://bucket/captured"
        await world.tick(seconds=WEEK)
        await world.tick(2)
        assert world.endpoints.configs[world.endpoints.deploys[-1]]["DataCaptureConfig"] == capture


@on_loop
async def test_a_request_that_names_an_experiment_is_about_its_endpoint(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create()
        about = world.experiments.about
        assert about("StopInferenceExperiment", {"Name": "x"}, Caller()) == {"e"}
        arn = Caller().scope.arn("inference-experiment", "x")
        assert about("ListTags", {"ResourceArn": arn}, Caller()) == {"e"}
        assert about("ListTags", {"ResourceArn": f"{arn}y"}, Caller()) == set()
        assert about("StopInferenceExperiment", {"Name": "y"}, Caller()) == set()
        assert about("ListInferenceExperiments", {}, Caller()) == set()
        assert about("DescribeTransformJob", {"Name": "x"}, Caller()) == set()


@on_loop
async def test_other_accounts_see_nothing(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.create()
        other = Caller(account="111111111111")
        assert (await world.call("ListInferenceExperiments", other))["InferenceExperiments"] == []
        with pytest.raises(ApiError, match="Could not find inference experiment"):
            await world.call("DescribeInferenceExperiment", other, Name="x")
