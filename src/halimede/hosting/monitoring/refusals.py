"""What monitoring refuses, in SageMaker's words where they are known."""

from collections.abc import Mapping
from typing import Any

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.monitoring.records import DATA_QUALITY
from halimede.hosting.s3_urls import bucket_and_key

_HERE = "this host monitors the quality of data: use CreateDataQualityJobDefinition, and MonitoringType DataQuality"


def check_inputs(inputs: Mapping[str, Any]) -> None:
    """Refuse a job that does not monitor an endpoint.

    Raises:
        ApiError: it does not.
    """
    if "BatchTransformInput" in inputs:
        raise invalid(
            "BatchTransformInput: monitoring of batch transform jobs is not available in this version; use "
            "EndpointInput"
        )
    if "EndpointInput" not in inputs:
        raise invalid("The job has no input: EndpointInput must be given")


def check_scripts(specification: Mapping[str, Any]) -> None:
    """Refuse a job with code of its own, which nothing would run.

    Raises:
        ApiError: it has some.
    """
    for member in ("RecordPreprocessorSourceUri", "PostAnalyticsProcessorSourceUri"):
        if specification.get(member):
            raise invalid(
                f"{member}: the image's container is not run, a built-in job is, which calls no scripts; leave it out"
            )


def check_type(kind: str | None) -> None:
    """Refuse any type of monitoring that is not here.

    Raises:
        ApiError: it is not.
    """
    if kind not in (None, DATA_QUALITY):
        raise invalid(f"MonitoringType {kind} is not available in this version: {_HERE}")


def check_output(url: str) -> None:
    """Refuse an output that is no place for objects.

    Raises:
        ApiError: it is none.
    """
    if not bucket_and_key(url)[0]:
        raise invalid(f"The S3Uri of the output, '{url}', is no URL of a bucket; expected s3://BUCKET/PREFIX")


def missing(words: str, arn: str) -> ApiError:
    """There is no such resource."""
    return ApiError("ResourceNotFound", f'Could not find {words} "{arn}".')


def taken(words: str, arn: str) -> ApiError:
    """There is one of that name."""
    return ApiError("ResourceInUse", f'Cannot create already existing {words} "{arn}".')
