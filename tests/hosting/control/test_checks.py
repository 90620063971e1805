"""What models and configurations may not ask for is refused by name."""

from typing import Any

import pytest

from halimede.hosting.control.checks import check_config, check_deployment, check_model
from halimede.hosting.errors import ApiError
from tests.hosting.control.fakes import URL, variant

CONTAINER = {"Image": "halimede", "ModelDataUrl": URL}


@pytest.mark.parametrize(
    "model",
    [
        {"PrimaryContainer": CONTAINER},
        {"PrimaryContainer": {"Image": "halimede"}},
        {"Containers": [CONTAINER]},
        {"Containers": [CONTAINER, {"Image": "i"}]},
        {"Containers": [CONTAINER, CONTAINER], "InferenceExecutionConfig": {"Mode": "Serial"}},
        {
            "Containers": [{**CONTAINER, "ContainerHostname": name} for name in ("a", "b", "c")],
            "InferenceExecutionConfig": {"Mode": "Direct"},
        },
        {
            "PrimaryContainer": {
                "Image": "halimede",
                "Mode": "MultiModel",
                "ModelDataUrl": "s3://bucket/models/",
            }
        },
        {"PrimaryContainer": {"Image": "halimede", "Mode": "MultiModel", "ModelDataUrl": "s3://bucket"}},
    ],
)
def test_models_that_can_be_served_pass(model: dict[str, Any]) -> None:
    check_model(model)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ({}, "needs a container"),
        ({"Containers": []}, "needs a container"),
        ({"PrimaryContainer": CONTAINER, "Containers": [CONTAINER]}, "not both"),
        (
            {"Containers": [CONTAINER, {"ModelDataUrl": URL}]},
            r"Value null at 'containers.2.member.image' failed to satisfy constraint: a container needs an Image",
        ),
        (
            {"Containers": [CONTAINER, {**CONTAINER, "ModelDataUrl": "s3://bucket"}]},
            r"Value 's3://bucket' at 'containers.2.member.modelDataUrl' failed to satisfy constraint",
        ),
        (
            {"Containers": [{**CONTAINER, "ContainerHostname": "a"}, CONTAINER]},
            "1 of 2 containers have a ContainerHostname: give one to each of them, or to none",
        ),
        (
            {"Containers": [{**CONTAINER, "ContainerHostname": "a"}] * 2},
            "Two containers have the ContainerHostname 'a'; names must differ",
        ),
        (
            {"Containers": [CONTAINER, CONTAINER], "InferenceExecutionConfig": {"Mode": "Direct"}},
            "has the Mode Direct: each container needs a ContainerHostname",
        ),
        (
            {"Containers": [CONTAINER], "InferenceExecutionConfig": {"Mode": "Direct"}},
            "has the Mode Direct: each container needs a ContainerHostname",
        ),
        (
            {
                "Containers": [
                    CONTAINER,
                    {"Image": "i", "Mode": "MultiModel", "ModelDataUrl": "s3://bucket/m/"},
                ]
            },
            "container 2 of 2 has the Mode MultiModel, which is not available for one of several containers",
        ),
        ({"PrimaryContainer": {"ModelDataUrl": URL}}, "needs an Image"),
        ({"PrimaryContainer": {"Image": "i", "ModelDataSource": {"S3DataSource": {}}}}, "use ModelDataUrl"),
        ({"PrimaryContainer": {"Image": "i", "ModelPackageName": "p"}}, "ModelPackageName"),
        ({"PrimaryContainer": {"Image": "i", "Mode": "MultiModel"}}, "needs ModelDataUrl"),
        ({"PrimaryContainer": {**CONTAINER, "Mode": "MultiModel"}}, "is a prefix, not an archive"),
        ({"PrimaryContainer": {**CONTAINER, "ModelDataUrl": "s3://bucket"}}, "it names no object; expected"),
        ({"PrimaryContainer": {**CONTAINER, "ModelDataUrl": "s3://bucket/models/"}}, "it names no object"),
        (
            {"PrimaryContainer": {**CONTAINER, "ModelDataUrl": "s3://b/m.tar.gz"}},
            "'b' is no name of a bucket",
        ),
        (
            {"PrimaryContainer": {**CONTAINER, "ModelDataUrl": "s3://my bucket/m.tar.gz"}},
            r"^ValidationException: Value 's3://my bucket/m.tar.gz' at 'primaryContainer.modelDataUrl' failed to",
        ),
        (
            {"Containers": [{**CONTAINER, "ModelDataUrl": "https://bucket.s3.amazonaws.com/m.tar.gz"}]},
            "URLs of other schemes are not available in this version",
        ),
        (
            {"PrimaryContainer": {"Image": "i", "Mode": "MultiModel", "ModelDataUrl": "s3:///models/"}},
            "'' is no name of a bucket",
        ),
    ],
)
def test_models_that_cannot_be_served_are_refused(model: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError, match=text) as raised:
        check_model(model)
    assert raised.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("further", "text"),
    [
        (
            {"AsyncInferenceConfig": {"OutputConfig": {}}},
            "asynchronous inference is not available",
        ),
        ({"ShadowProductionVariants": [variant()]}, "shadow variants are not available"),
        ({"ExplainerConfig": {"a": 1}}, "explanations are not available"),
        ({"DataCaptureConfig": {"EnableCapture": True}}, "data capture"),
        ({"ProductionVariants": [variant(), variant()]}, "have the name 'A'"),
        (
            {"ProductionVariants": [variant(ServerlessConfig={"MemorySizeInMB": 1024})]},
            "serverless variants are not",
        ),
        (
            {"ProductionVariants": [variant(ManagedInstanceScaling={"Status": "ENABLED"})]},
            "instance scaling managed by SageMaker is not",
        ),
        (
            {"ProductionVariants": [variant(CoreDumpConfig={"DestinationS3Uri": "s3://b"})]},
            "core dumps are not",
        ),
        ({"ProductionVariants": [{"VariantName": "A", "ModelName": "m"}]}, "has no InstanceType"),
        ({"ProductionVariants": [{"VariantName": "A", "InstanceType": "ml.local.cpu"}]}, "has no ModelName"),
        ({"ProductionVariants": [variant(count=0)]}, "must be 1 or more"),
    ],
)
def test_configurations_of_later_versions_are_refused(further: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError, match=text):
        check_config({"ProductionVariants": [variant()], **further})


@pytest.mark.parametrize("strategy", ["PREFIX_AWARE", "KV_AWARE"])
def test_routing_strategies_that_are_not_here_are_refused_by_name(strategy: str) -> None:
    one = variant(RoutingConfig={"RoutingStrategy": strategy})
    with pytest.raises(
        ApiError, match=f"variant 'A' has the RoutingStrategy {strategy}, which is not available"
    ):
        check_config({"ProductionVariants": [one]})


@pytest.mark.parametrize("strategy", ["RANDOM", "LEAST_OUTSTANDING_REQUESTS"])
def test_routing_strategies_that_are_here_pass(strategy: str) -> None:
    check_config({"ProductionVariants": [variant(RoutingConfig={"RoutingStrategy": strategy})]})


def test_a_configuration_with_capture_switched_off_passes() -> None:
    check_config(
        {"ProductionVariants": [variant(), variant("B")], "DataCaptureConfig": {"EnableCapture": False}}
    )


@pytest.mark.parametrize(
    ("deployment", "text"),
    [
        ({"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": {"Type": "CANARY"}}}, "type CANARY"),
        ({"RollingUpdatePolicy": {"MaximumBatchSize": {}}}, "rolling updates"),
        ({"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}]}}, "rollback by alarms"),
    ],
)
def test_deployments_of_later_versions_are_refused(deployment: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError, match=text):
        check_deployment({"DeploymentConfig": deployment})


def test_an_all_at_once_deployment_passes() -> None:
    policy = {"TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}}
    check_deployment({"DeploymentConfig": {"BlueGreenUpdatePolicy": policy}})
    check_deployment({})
