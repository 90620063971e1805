"""What AWS assumes where a request says nothing, and shows when it describes the job."""

from collections.abc import Mapping
from typing import Any

_INPUT = {"CompressionType": "None", "SplitType": "None"}
_OUTPUT = {"AssembleWith": "None"}
_PROCESSING = {"InputFilter": "$", "OutputFilter": "$", "JoinSource": "None"}


def complete_job(request: Mapping[str, Any]) -> dict[str, Any]:
    """A `CreateTransformJob` request with what it left out."""
    return {
        **request,
        "TransformInput": {**_INPUT, **request["TransformInput"]},
        "TransformOutput": {**_OUTPUT, **request["TransformOutput"]},
        "DataProcessing": {**_PROCESSING, **request.get("DataProcessing", {})},
    }
