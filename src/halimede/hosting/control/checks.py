"""What this version of the host can do of what models and configurations may ask for; the rest is refused by name."""

import re
from collections.abc import Mapping
from typing import Any

from halimede.hosting.capture.configuration import check_capture
from halimede.hosting.control.container_checks import check_containers
from halimede.hosting.errors import invalid
from halimede.hosting.s3_urls import bucket_and_key, s3_url

_PLANNED_VARIANT_FIELDS = {
    "ServerlessConfig": "serverless variants are",
    "ManagedInstanceScaling": "instance scaling managed by SageMaker is",
    "CoreDumpConfig": "core dumps are",
}
_PLANNED_CONFIG_FIELDS = {
    "ExplainerConfig": "explanations are",
}

_STRATEGIES = ("RANDOM", "LEAST_OUTSTANDING_REQUESTS")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")
"""Names that S3 has ever allowed; old buckets have capital letters and underscores."""


def check_model(request: Mapping[str, Any]) -> None:
    """Refuse a model that could not be served.

    Raises:
        ApiError: it has no container, or data that is no archive, or its containers do not fit together.
    """
    if "Containers" in request and "PrimaryContainer" in request:
        raise invalid("a model has PrimaryContainer or Containers, not both")
    containers = request.get("Containers") or [request.get("PrimaryContainer")]
    if containers == [None]:
        raise invalid("a model needs a container: set PrimaryContainer")
    check_containers(request, containers)
    for number, container in enumerate(containers, 1):
        where = "primaryContainer" if "PrimaryContainer" in request else f"containers.{number}.member"
        _check_container(container, where)


def _check_container(container: Mapping[str, Any], where: str) -> None:
    """Refuse a `ContainerDefinition` at a place of the request, such as ``containers.2.member``."""
    if "Image" not in container:
        raise invalid(
            f"Value null at '{where}.image' failed to satisfy constraint: a container needs an Image"
        )
    if "ModelDataSource" in container:
        msg = "ModelDataSource is not available in this version; pack the model as model.tar.gz and use ModelDataUrl"
        raise invalid(msg)
    if "ModelPackageName" in container:
        raise invalid("ModelPackageName is not available in this version; use Image and ModelDataUrl")
    if container.get("ModelDataUrl"):
        _check_url(container["ModelDataUrl"], where, is_prefix=container.get("Mode") == "MultiModel")
    if container.get("Mode") == "MultiModel":
        _check_multi_model(container)


def _check_multi_model(container: Mapping[str, Any]) -> None:
    url = container.get("ModelDataUrl", "")
    if not url:
        raise invalid(
            "a container of Mode MultiModel needs ModelDataUrl: the prefix below which its archives are"
        )
    if url.endswith(".tar.gz"):
        msg = f"ModelDataUrl of a container of Mode MultiModel is a prefix, not an archive: '{url}'"
        raise invalid(msg)


def _check_url(url: str, where: str, *, is_prefix: bool) -> None:
    """Refuse a `ModelDataUrl` that names no object of S3, or no prefix."""
    bucket, key = bucket_and_key(url)
    lead = f"Value '{url}' at '{where}.modelDataUrl' failed to satisfy constraint:"
    if not s3_url(url).startswith("s3://"):
        raise invalid(
            f"{lead} expected s3://BUCKET/KEY or https://BUCKET.s3.REGION.amazonaws.com/KEY; other URLs are not "
            f"available in this version"
        )
    if not _BUCKET.fullmatch(bucket):
        raise invalid(f"{lead} '{bucket}' is no name of a bucket; expected s3://BUCKET/KEY")
    if not is_prefix and (not key or key.endswith("/")):
        raise invalid(
            f"{lead} it names no object; expected s3://BUCKET/KEY with the key of an archive (.tar.gz)"
        )


def check_config(request: Mapping[str, Any]) -> None:
    """Refuse an endpoint configuration that could not be brought about.

    Raises:
        ApiError: it asks for what this version does not have, or its variants contradict each other.
    """
    for member, what in _PLANNED_CONFIG_FIELDS.items():
        if request.get(member):
            raise invalid(f"{member}: {what} not available in this version; leave it out")
    if request.get("AsyncInferenceConfig"):
        _check_asynchronous(request["AsyncInferenceConfig"])
        if request.get("ShadowProductionVariants"):
            raise invalid(
                "ShadowProductionVariants: asynchronous endpoints have no shadow variants; leave it out"
            )
        capture = request.get("DataCaptureConfig")
        if capture and capture.get("EnableCapture", True):
            raise invalid("DataCaptureConfig: asynchronous endpoints have no data capture; leave it out")
    check_capture(request.get("DataCaptureConfig") or {})
    variants = [*request["ProductionVariants"], *request.get("ShadowProductionVariants", ())]
    names = [variant["VariantName"] for variant in variants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise invalid(f"Two production variants have the name '{twice[0]}'; names must differ")
    if len(variants) > len(request["ProductionVariants"]):
        _check_shadows(request)
    for variant in variants:
        for member, what in _PLANNED_VARIANT_FIELDS.items():
            if variant.get(member):
                raise invalid(
                    f"variant '{variant['VariantName']}' sets {member}: {what} not available in this version"
                )
        if "ModelName" not in variant:
            raise invalid(
                f"variant '{variant['VariantName']}' has no ModelName: inference components, which bring the models of "
                f"such variants, are not available in this version; name a model"
            )
        if "InstanceType" not in variant:
            raise invalid(f"variant '{variant['VariantName']}' has no InstanceType, which this version needs")
        strategy = variant.get("RoutingConfig", {}).get("RoutingStrategy", _STRATEGIES[0])
        if strategy not in _STRATEGIES:
            raise invalid(
                f"variant '{variant['VariantName']}' has the RoutingStrategy {strategy}, which is not available in "
                f"this version; use {' or '.join(_STRATEGIES)}"
            )
        if variant.get("InitialInstanceCount", 1) < 1:
            raise invalid(
                f"variant '{variant['VariantName']}' has InitialInstanceCount 0; it must be 1 or more"
            )


def _check_shadows(request: Mapping[str, Any]) -> None:
    productions, shadows = len(request["ProductionVariants"]), len(request["ShadowProductionVariants"])
    if (productions, shadows) != (1, 1):
        msg = (
            f"a configuration with ShadowProductionVariants has one production variant and one shadow variant; this "
            f"one has {productions} in ProductionVariants and {shadows} in ShadowProductionVariants"
        )
        raise invalid(msg)


def check_shadowed_model(variant: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Refuse a model that a configuration with a shadow variant cannot have.

    Raises:
        ApiError: it is a multi-model container.
    """
    containers = [model.get("PrimaryContainer") or {}, *model.get("Containers", ())]
    if any(container.get("Mode") == "MultiModel" for container in containers):
        msg = (
            f"variant '{variant['VariantName']}': its model '{variant['ModelName']}' has the Mode MultiModel, and "
            f"multi-model endpoints have no shadow variants"
        )
        raise invalid(msg)


def _check_asynchronous(config: Mapping[str, Any]) -> None:
    """Refuse an `AsyncInferenceConfig` that says no places for results, or none in S3."""
    output = config["OutputConfig"]
    if not output.get("S3OutputPath"):
        raise invalid("AsyncInferenceConfig: OutputConfig has no S3OutputPath, which this version needs")
    for member in ("S3OutputPath", "S3FailurePath"):
        url = output.get(member, "")
        if url and not _BUCKET.fullmatch(bucket_and_key(url)[0]):
            raise invalid(f"AsyncInferenceConfig: {member} is '{url}'; expected s3://BUCKET/PREFIX")


def check_asynchronous_model(name: str, model: Mapping[str, Any]) -> None:
    """Refuse a model that an asynchronous endpoint cannot have.

    Raises:
        ApiError: it holds many models, or containers side by side, of which InvokeEndpointAsync cannot say one.
    """
    containers = model.get("Containers") or [model.get("PrimaryContainer", {})]
    if any(container.get("Mode") == "MultiModel" for container in containers):
        msg = f"model '{name}' is of Mode MultiModel, and InvokeEndpointAsync has no TargetModel; use SingleModel"
        raise invalid(msg)
    if model.get("InferenceExecutionConfig", {}).get("Mode") == "Direct":
        msg = (
            f"model '{name}' has containers of Mode Direct, and InvokeEndpointAsync has no TargetContainerHostname; "
            f"use Serial"
        )
        raise invalid(msg)


def check_kind(current: Mapping[str, Any], config: Mapping[str, Any], arn: str) -> None:
    """Refuse an update that makes an asynchronous endpoint of one that is none, or the other way round.

    Raises:
        ApiError: it does.
    """
    before, after = (bool(each.get("AsyncInferenceConfig")) for each in (current, config))
    if before is not after:
        kinds = {True: "with AsyncInferenceConfig", False: "without AsyncInferenceConfig"}
        raise invalid(
            f'endpoint "{arn}" was created {kinds[before]} and cannot be updated to a configuration {kinds[after]}; '
            f"create another endpoint"
        )


def check_desired_capacity(desired: Mapping[str, Any], *, asynchronous: bool) -> None:
    """Refuse a `DesiredWeightAndCapacity` that no variant here can have.

    Args:
        desired: what is wanted of a variant.
        asynchronous: its endpoint is, so that it may do without instances for a while.

    Raises:
        ApiError: it is for a serverless variant, or wants no instances.
    """
    lead = f'variant "{desired["VariantName"]}":'
    if desired.get("ServerlessUpdateConfig") is not None:
        msg = f"{lead} ServerlessUpdateConfig is for serverless variants, and this one has instances"
        raise invalid(f"{msg}; use DesiredInstanceCount")
    count = desired.get("DesiredInstanceCount", 1)
    if count < 1 and not asynchronous:
        raise invalid(
            f"{lead} DesiredInstanceCount is {count}; it must be 1 or more, unless the endpoint is asynchronous"
        )
