"""What models and configurations may not ask for is refused by name."""

from typing import Any

import pytest

from halimede.hosting.control.checks import (
    check_asynchronous_model,
    check_config,
    check_model,
    check_shadowed_model,
)
from halimede.hosting.errors import ApiError
from tests.hosting.control.fakes import URL, refusal, variant

CONTAINER = {"Image": "halimede", "ModelDataUrl": URL}
MULTI_MODEL = {"Image": "halimede", "Mode": "MultiModel", "ModelDataUrl": "s3://bucket/models/"}


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
            {"Containers": [{**CONTAINER, "ModelDataUrl": "https://bucket.example.com/m.tar.gz"}]},
            "expected s3://BUCKET/KEY or https://BUCKET.s3.REGION.amazonaws.com/KEY; other URLs are not available",
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
            "OutputConfig has no S3OutputPath",
        ),
        (
            {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "https://b/k"}}},
            "S3OutputPath is 'https://b/k'; expected s3://BUCKET/PREFIX",
        ),
        (
            {
                "AsyncInferenceConfig": {
                    "OutputConfig": {"S3OutputPath": "s3://bkt", "S3FailurePath": "s3://"}
                }
            },
            "S3FailurePath is 's3://'; expected s3://BUCKET/PREFIX",
        ),
        ({"ShadowProductionVariants": [variant()]}, "have the name 'A'"),
        (
            {"ShadowProductionVariants": [variant("B"), variant("C")]},
            "one production variant and one shadow variant; this one has 1 in ProductionVariants and 2 in Shadow",
        ),
        (
            {"ProductionVariants": [variant(), variant("B")], "ShadowProductionVariants": [variant("C")]},
            "this one has 2 in ProductionVariants and 1 in ShadowProductionVariants",
        ),
        ({"ShadowProductionVariants": [variant("B", count=0)]}, "variant 'B' has InitialInstanceCount 0"),
        (
            {"ShadowProductionVariants": [variant("B", ServerlessConfig={"MemorySizeInMB": 1024})]},
            "variant 'B' sets ServerlessConfig",
        ),
        ({"ExplainerConfig": {"a": 1}}, "explanations are not available"),
        (
            {
                "AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://bucket/o"}},
                "ShadowProductionVariants": [variant("B")],
            },
            "asynchronous endpoints have no shadow variants",
        ),
        (
            {
                "AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://bucket/o"}},
                "DataCaptureConfig": {"DestinationS3Uri": "s3://bucket/c"},
            },
            "asynchronous endpoints have no data capture",
        ),
        (
            {"DataCaptureConfig": {"DestinationS3Uri": "https://b/c"}},
            "Value 'https://b/c' at 'dataCaptureConfig.destinationS3Uri' .* expected s3://BUCKET/PREFIX",
        ),
        (
            {"DataCaptureConfig": {"DestinationS3Uri": "s3://bucket/c", "KmsKeyId": "k"}},
            "keys of KMS are not",
        ),
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
        (
            {"ProductionVariants": [{"VariantName": "A", "InstanceType": "ml.local.cpu"}]},
            "has no ModelName: inference components, which",
        ),
        ({"ProductionVariants": [variant(count=0)]}, "must be 1 or more"),
    ],
)
def test_configurations_of_later_versions_are_refused(further: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError, match=text):
        check_config({"ProductionVariants": [variant()], **further})


def test_a_configuration_with_a_shadow_passes() -> None:
    config = {"ProductionVariants": [variant()], "ShadowProductionVariants": [variant("B")]}
    assert refusal(check_config, config) == ""


def test_multi_model_endpoints_have_no_shadows() -> None:
    check_shadowed_model(variant(), {"PrimaryContainer": CONTAINER})
    for model in ({"PrimaryContainer": MULTI_MODEL}, {"Containers": [MULTI_MODEL]}):
        with pytest.raises(ApiError, match="variant 'B': its model 'm' has the Mode MultiModel"):
            check_shadowed_model(variant("B"), model)


@pytest.mark.parametrize("strategy", ["PREFIX_AWARE", "KV_AWARE"])
def test_routing_strategies_that_are_not_here_are_refused_by_name(strategy: str) -> None:
    one = variant(RoutingConfig={"RoutingStrategy": strategy})
    with pytest.raises(
        ApiError, match=f"variant 'A' has the RoutingStrategy {strategy}, which is not available"
    ):
        check_config({"ProductionVariants": [one]})


@pytest.mark.parametrize("strategy", ["RANDOM", "LEAST_OUTSTANDING_REQUESTS"])
def test_routing_strategies_that_are_here_pass(strategy: str) -> None:
    one = variant(RoutingConfig={"RoutingStrategy": strategy})
    assert refusal(check_config, {"ProductionVariants": [one]}) == ""


def test_a_configuration_with_capture_switched_off_passes() -> None:
    config = {
        "ProductionVariants": [variant(), variant("B")],
        "DataCaptureConfig": {"EnableCapture": False},
    }
    assert refusal(check_config, config) == ""


def test_asynchronous_endpoints_have_no_model_that_a_request_would_have_to_name() -> None:
    check_asynchronous_model("m", {"PrimaryContainer": CONTAINER})
    for model, text in (
        ({"PrimaryContainer": MULTI_MODEL}, "no TargetModel"),
        (
            {"Containers": [CONTAINER], "InferenceExecutionConfig": {"Mode": "Direct"}},
            "no TargetContainerHostname",
        ),
    ):
        with pytest.raises(ApiError, match=text):
            check_asynchronous_model("m", model)
