"""The scripts that run with SDK 2 and with SDK 3, and what they have to say."""

from typing import Any, NamedTuple

from tests.hosting.sdks.running import ROLE

BUCKET = "sagemaker-us-east-1-000000000000"
TEXTS = ["ONE", "TWO"]


class Shared(NamedTuple):
    """A script.

    Attributes:
        archives: those that it takes.
        said: what it has to say.
    """

    archives: tuple[str, ...]
    said: dict[str, Any]


SHARED = {
    "notebook_one": Shared(
        ("read_digit.tar.gz",),
        {
            "role": ROLE,
            "account": "000000000000",
            "bucket": BUCKET,
            "model": True,
            "status": "InService",
            "json": "seven",
            "binary": "seven",
            "downloaded": True,
        },
    ),
    "notebook_many": Shared(
        ("digits.tar.gz",),
        {
            "policies": ["GPUUtil-ScalingPolicy"],
            "digits": [7] * 5,
            "Invocations": 5,
            "Invocation4XXErrors": 0,
            "ModelCacheHit": 0,
            "waited": ["ModelLoadingWaitTime", "ModelDownloadingTime", "ModelLatency"],
            "by configuration": 5,
            "registry": "UnknownOperationException",
            "lambda": "the service 'lambda' is not available here",
        },
    ),
    "notebook_bls": Shared(
        (),
        {
            "uploaded": f"s3://{BUCKET}/notebook-bls/notebook_bls.tar.gz",
            "status": "InService",
            "application/octet-stream": ["application/json", TEXTS],
            "application/json": ["application/json", TEXTS],
            "binary": TEXTS,
            "unnamed": TEXTS,
            "as JSON": ["application/json", TEXTS],
            "length": None,
            "without length": TEXTS,
        },
    ),
    "notebook_custom": Shared(
        ("digits.tar.gz",),
        {
            "listed": [f"model-v{number}.tar.gz" for number in range(3)],
            "prefix": True,
            "digits": [7] * 12,
            "package": "CreateModelPackage is not available in this version",
            "recommendations": "CreateInferenceRecommendationsJob is not available in this version",
            "processing": "CreateProcessingJob is not available in this version",
            "registry": "the service 'ecr' is not available here",
            "sample": "Not Found",
        },
    ),
    "core_resources": Shared(
        ("read_digit.tar.gz",),
        {
            "role": ROLE,
            "word": "seven",
            "endpoints": ["core"],
            "instances": [2],
            "gone": 'Could not find model "arn:aws:sagemaker:us-east-1:000000000000:model/core".',
        },
    ),
    "core_experiment": Shared(
        ("read_digit.tar.gz",),
        {
            "word": "seven",
            "description": "the same model twice",
            "experiments": ["core"],
            "shadows": ["candidate"],
            "gone": "ResourceNotFound",
        },
    ),
}
