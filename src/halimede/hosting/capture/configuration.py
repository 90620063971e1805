"""`DataCaptureConfig`: what may be asked for, and how DescribeEndpoint answers."""

import re
from collections.abc import Mapping
from typing import Any

from halimede.hosting.errors import invalid
from halimede.hosting.s3_urls import bucket_and_key

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")


def check_capture(document: Mapping[str, Any]) -> None:
    """Refuse a `DataCaptureConfig` that could not be done.

    Raises:
        ApiError: its destination is none, or it wants what is captured to be encrypted.
    """
    if not document.get("EnableCapture", True):
        return
    destination = document.get("DestinationS3Uri")
    if destination is not None and not _BUCKET.fullmatch(bucket_and_key(destination)[0]):
        raise invalid(
            f"Value '{destination}' at 'dataCaptureConfig.destinationS3Uri' failed to satisfy constraint: expected "
            f"s3://BUCKET/PREFIX"
        )
    if document.get("KmsKeyId"):
        msg = "DataCaptureConfig sets KmsKeyId: keys of KMS are not available in this version; leave it out"
        raise invalid(msg)


def describe_capture(document: Mapping[str, Any], *, is_stopped: bool) -> dict[str, Any]:
    """What DescribeEndpoint tells of a `DataCaptureConfig`.

    Args:
        document: the configuration.
        is_stopped: nothing is captured now, though it is wanted.
    """
    enabled = document.get("EnableCapture", True)
    return {
        "EnableCapture": enabled,
        "CaptureStatus": "Started" if enabled and not is_stopped else "Stopped",
        "CurrentSamplingPercentage": document["InitialSamplingPercentage"],
        "DestinationS3Uri": document["DestinationS3Uri"],
        "KmsKeyId": document.get("KmsKeyId", ""),
    }
