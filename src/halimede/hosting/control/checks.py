"""What this version of the host can do of what models and configurations may ask for; the rest is refused by name."""

import re
from collections.abc import Mapping
from typing import Any

from halimede.hosting.control.container_checks import check_containers
from halimede.hosting.errors import invalid

_PLANNED_VARIANT_FIELDS = {
    "ServerlessConfig": "serverless variants are",
    "ManagedInstanceScaling": "instance scaling managed by SageMaker is",
    "CoreDumpConfig": "core dumps are",
}
_PLANNED_CONFIG_FIELDS = {
    "AsyncInferenceConfig": "asynchronous inference is",
    "ShadowProductionVariants": "shadow variants are",
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
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    lead = f"Value '{url}' at '{where}.modelDataUrl' failed to satisfy constraint:"
    if scheme != "s3":
        raise invalid(
            f"{lead} expected s3://BUCKET/KEY; URLs of other schemes are not available in this version"
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
    if request.get("DataCaptureConfig", {}).get("EnableCapture"):
        raise invalid("DataCaptureConfig: data capture is not available in this version; leave it out")
    names = [variant["VariantName"] for variant in request["ProductionVariants"]]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise invalid(f"Two production variants have the name '{twice[0]}'; names must differ")
    for variant in request["ProductionVariants"]:
        for member, what in _PLANNED_VARIANT_FIELDS.items():
            if variant.get(member):
                raise invalid(
                    f"variant '{variant['VariantName']}' sets {member}: {what} not available in this version"
                )
        for member in ("ModelName", "InstanceType"):
            if member not in variant:
                raise invalid(f"variant '{variant['VariantName']}' has no {member}, which this version needs")
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


def check_desired_capacity(desired: Mapping[str, Any]) -> None:
    """Refuse a `DesiredWeightAndCapacity` that no variant here can have.

    Raises:
        ApiError: it is for a serverless variant, or wants no instances.
    """
    lead = f'variant "{desired["VariantName"]}":'
    if desired.get("ServerlessUpdateConfig") is not None:
        msg = f"{lead} ServerlessUpdateConfig is for serverless variants, and this one has instances"
        raise invalid(f"{msg}; use DesiredInstanceCount")
    count = desired.get("DesiredInstanceCount", 1)
    if count < 1:
        raise invalid(f"{lead} DesiredInstanceCount is {count}; it must be 1 or more")


def check_deployment(request: Mapping[str, Any]) -> None:
    """Refuse a deployment of a kind that this version does not have.

    Raises:
        ApiError: it asks for one.
    """
    deployment = request.get("DeploymentConfig", {})
    policy = deployment.get("BlueGreenUpdatePolicy", {})
    kind = policy.get("TrafficRoutingConfiguration", {}).get("Type", "ALL_AT_ONCE")
    if kind != "ALL_AT_ONCE":
        raise invalid(
            f"DeploymentConfig: traffic routing of type {kind} is not available in this version; use ALL_AT_ONCE"
        )
    if "RollingUpdatePolicy" in deployment:
        raise invalid(
            "DeploymentConfig: rolling updates are not available in this version; leave RollingUpdatePolicy out"
        )
    if deployment.get("AutoRollbackConfiguration", {}).get("Alarms"):
        raise invalid("DeploymentConfig: rollback by alarms is not available in this version; leave it out")
