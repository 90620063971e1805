"""What documents of the control plane make of a variant."""

import pytest
from botocore.session import get_session

from halimede.hosting.specs import AsyncSpec, DataCapture, Variant

MODEL = {"PrimaryContainer": {"Image": "image"}}
VARIANT = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu"}


@pytest.mark.parametrize(
    ("strategy", "least_outstanding"), [("LEAST_OUTSTANDING_REQUESTS", True), ("RANDOM", False)]
)
def test_the_routing_strategies_of_the_service_model(strategy: str, least_outstanding: bool) -> None:
    known = get_session().get_service_model("sagemaker").shape_for("RoutingStrategy")
    assert strategy in known.enum
    variant = {**VARIANT, "RoutingConfig": {"RoutingStrategy": strategy}}
    assert Variant.from_documents(variant, MODEL).least_outstanding is least_outstanding


def test_without_a_strategy_any_instance_is_asked() -> None:
    assert not Variant.from_documents(VARIANT, MODEL).least_outstanding


def test_several_containers_have_the_names_of_their_places() -> None:
    variant = Variant.from_documents(
        VARIANT, {"Containers": [{"Image": "a"}, {"Image": "b"}, {"Image": "c"}]}
    )
    assert [container.hostname for container in variant.containers] == [
        "container-1",
        "container-2",
        "container-3",
    ]
    assert [container.image for container in variant.containers] == ["a", "b", "c"]
    assert variant.container_name == "container-1, container-2, container-3"
    assert not variant.direct


def test_several_containers_have_the_names_that_they_were_given() -> None:
    named = [{"Image": "a", "ContainerHostname": "first"}, {"Image": "b", "ContainerHostname": "second"}]
    model = {"Containers": named, "InferenceExecutionConfig": {"Mode": "Direct"}}
    variant = Variant.from_documents(VARIANT, model)
    assert [container.hostname for container in variant.containers] == ["first", "second"]
    assert variant.direct


@pytest.mark.parametrize("model", [MODEL, {"Containers": [{"Image": "image"}]}])
def test_the_only_container_is_the_primary_one(model: dict[str, object]) -> None:
    variant = Variant.from_documents(VARIANT, model)
    assert variant.containers == (variant.container,)
    assert variant.container_name == "primary"


def test_https_addresses_of_amazons_s3_are_urls_of_buckets() -> None:
    data = {"ModelDataUrl": "https://models.s3.eu-central-1.amazonaws.com/a/m.tar.gz"}
    model = {"PrimaryContainer": {"Image": "image", **data}}
    assert Variant.from_documents(VARIANT, model).container.model_data_url == "s3://models/a/m.tar.gz"
    capture = {
        "InitialSamplingPercentage": 1,
        "DestinationS3Uri": "https://s3.amazonaws.com/captured/e",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }
    captured = DataCapture.from_document(capture)
    assert captured is not None
    assert captured.destination == "s3://captured/e"
    output = {
        "S3OutputPath": "https://results.s3.amazonaws.com/o/",
        "S3FailurePath": "https://results.s3.amazonaws.com/f",
    }
    spec = AsyncSpec.from_document({"OutputConfig": output})
    assert (spec.output, spec.failure) == ("s3://results/o", "s3://results/f")
