"""What a transform job may ask for; the rest is refused by name."""

import logging
from collections.abc import Mapping
from typing import Any

from halimede.hosting.errors import invalid
from halimede.hosting.line_limit import LineLimit
from halimede.hosting.s3_urls import bucket_and_key
from halimede.hosting.transform.processing import Processing

logger = logging.getLogger("halimede")

_ignored = LineLimit()

MAX_MB = 100
"""Of MaxPayloadInMB, and of MaxConcurrentTransforms times that (SageMaker's limit)."""

_MAX_INSTANCES = 100

_IGNORED = {
    "TransformOutput": ("KmsKeyId",),
    "TransformResources": ("VolumeKmsKeyId", "TransformAmiVersion"),
}


def check_job(request: Mapping[str, Any]) -> None:
    """Refuse a job that cannot be done; say what of it is ignored.

    Raises:
        ApiError: its members contradict each other, or ask for what this version does not have.
    """
    source = request["TransformInput"]["DataSource"].get("S3DataSource")
    if source is None:
        raise invalid("TransformInput.DataSource needs S3DataSource: the objects to transform")
    kind = source["S3DataType"]
    if kind not in ("S3Prefix", "ManifestFile"):
        raise invalid(f"S3DataType {kind} is not available for transform jobs; use S3Prefix or ManifestFile")
    _check_url(
        source["S3Uri"], "TransformInput.DataSource.S3DataSource.S3Uri", needs_key=kind == "ManifestFile"
    )
    _check_url(request["TransformOutput"]["S3OutputPath"], "TransformOutput.S3OutputPath")
    for part, member in (("TransformInput", "ContentType"), ("TransformOutput", "Accept")):
        value = request[part].get(member, "")
        if not (value.isascii() and value.isprintable()):
            raise invalid(f"{part}.{member}: {value!r} is no header's value")
    _check_sizes(request)
    if "DataCaptureConfig" in request:
        msg = "data capture of transform jobs is not available in this version; leave it out"
        raise invalid(f"DataCaptureConfig: {msg}")
    Processing.of(request)
    ignored = [
        f"{parent}.{member}"
        for parent, members in _IGNORED.items()
        for member in members
        if request[parent].get(member)
    ]
    if request.get("ExperimentConfig"):
        ignored.append("ExperimentConfig")
    for each in ignored:
        if (more := _ignored.admit()) is not None:
            logger.warning("transform job '%s': %s is ignored%s", request["TransformJobName"], each, more)


def _check_sizes(request: Mapping[str, Any]) -> None:
    concurrent, megabytes = request.get("MaxConcurrentTransforms", 0), request.get("MaxPayloadInMB")
    if megabytes is not None and megabytes > MAX_MB:
        raise invalid(f"MaxPayloadInMB is {megabytes}; it may be at most {MAX_MB}")
    if concurrent and megabytes is not None and concurrent * megabytes > MAX_MB:
        msg = f"MaxConcurrentTransforms {concurrent} times MaxPayloadInMB {megabytes} is {concurrent * megabytes} MB"
        raise invalid(f"{msg}; that may be at most {MAX_MB} MB")
    client = request.get("ModelClientConfig", {})
    for member, low, high in (("InvocationsTimeoutInSeconds", 1, 3600), ("InvocationsMaxRetries", 0, 3)):
        if not low <= client.get(member, low) <= high:
            raise invalid(
                f"ModelClientConfig.{member} is {client[member]}; it must be between {low} and {high}"
            )
    count = request["TransformResources"]["InstanceCount"]
    if not 1 <= count <= _MAX_INSTANCES:
        raise invalid(
            f"TransformResources.InstanceCount is {count}; it must be between 1 and {_MAX_INSTANCES}"
        )


def _check_url(url: str, member: str, *, needs_key: bool = False) -> None:
    bucket, key = bucket_and_key(url)
    if not bucket:
        raise invalid(f"{member}: '{url}' is no URL that this version knows; expected s3://BUCKET/PREFIX")
    if needs_key and not key:
        raise invalid(f"{member}: '{url}' names no manifest; expected s3://BUCKET/KEY")


def check_model(name: str, model: Mapping[str, Any]) -> None:
    """Refuse a model with which there can be no transform jobs.

    Raises:
        ApiError: it holds many models, or its containers are not in a row.
    """
    containers = model.get("Containers") or [model["PrimaryContainer"]]
    if any(container.get("Mode") == "MultiModel" for container in containers):
        raise invalid(f"model '{name}' is of Mode MultiModel, with which there are no transform jobs")
    if model.get("InferenceExecutionConfig", {}).get("Mode") == "Direct":
        raise invalid(
            f"the containers of model '{name}' are invoked directly; there are no transform jobs with it"
        )
