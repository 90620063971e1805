"""What a transform job was asked to do."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from halimede.hosting.s3_urls import s3_url
from halimede.hosting.specs import Variant
from halimede.hosting.transform.checks import MAX_MB
from halimede.hosting.transform.payloads import Split
from halimede.hosting.transform.processing import Processing

_DEFAULT_MB = 6
_MB = 1 << 20

_STRATEGIES = {"MultiRecord": "MULTI_RECORD", "SingleRecord": "SINGLE_RECORD"}


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """What a job was asked to do (`CreateTransformJob`), with AWS's defaults.

    Attributes:
        source: ``s3://…``: of a prefix or a manifest.
        is_manifest: it is that of a manifest.
        destination: ``s3://…``, below which the outputs are.
        split: how objects become payloads.
        concurrent: requests at a time for each instance.
        content_type: of requests, "" for none.
        accept: of answers, "" for none.
        adds_newlines: each answer ends with a newline (`AssembleWith`).
        timeout_s: how long an answer may take.
        retries: how often a request is done again that failed.
        instance_type: such as ``ml.local.cpu``.
        count: how many instances.
        unset: what the request leaves to the model to say: members of what it answers to ``/execution-parameters``.
    """

    source: str
    is_manifest: bool
    destination: str
    split: Split
    concurrent: int
    content_type: str
    accept: str
    adds_newlines: bool
    timeout_s: float
    retries: int
    instance_type: str
    count: int
    unset: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> "TransformSpec":
        """What a request asks for that has been checked."""
        given, taken, resources = (
            request["TransformInput"],
            request["TransformOutput"],
            request["TransformResources"],
        )
        source = given["DataSource"]["S3DataSource"]
        client = request.get("ModelClientConfig", {})
        megabytes = request.get("MaxPayloadInMB", _DEFAULT_MB)
        unset = {
            name
            for name in ("MaxPayloadInMB", "BatchStrategy", "MaxConcurrentTransforms")
            if name not in request
        }
        if not request.get("MaxConcurrentTransforms"):
            unset.add("MaxConcurrentTransforms")
        return cls(
            s3_url(source["S3Uri"]),
            source["S3DataType"] == "ManifestFile",
            s3_url(taken["S3OutputPath"]).rstrip("/"),
            Split(
                given.get("SplitType", "None"),
                request.get("BatchStrategy") == "SingleRecord",
                megabytes * _MB,
                given.get("CompressionType") == "Gzip",
                Processing.of(request),
            ),
            request.get("MaxConcurrentTransforms") or 1,
            given.get("ContentType", ""),
            taken.get("Accept", ""),
            taken.get("AssembleWith") == "Line",
            float(client.get("InvocationsTimeoutInSeconds", 600)),
            client.get("InvocationsMaxRetries", 3),
            resources["InstanceType"],
            resources["InstanceCount"],
            frozenset(unset),
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables that containers find in transform jobs."""
        return {
            "SAGEMAKER_BATCH": "true",
            "SAGEMAKER_BATCH_STRATEGY": _STRATEGIES["SingleRecord" if self.split.single else "MultiRecord"],
            "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(self.split.payload_bytes // _MB),
            "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": str(self.concurrent),
        }

    def completed(self, parameters: Mapping[str, Any]) -> "TransformSpec":
        """The same, with what the model says where the request says nothing.

        Args:
            parameters: the model's answer to ``/execution-parameters``; what is no such value in it is ignored.
        """
        split, concurrent = self.split, self.concurrent
        megabytes = _count(parameters.get("MaxPayloadInMB"))
        if "MaxPayloadInMB" in self.unset and megabytes is not None:
            split = replace(split, payload_bytes=megabytes * _MB)
        strategy = parameters.get("BatchStrategy")
        if "BatchStrategy" in self.unset and strategy in _STRATEGIES.values() and split.kind != "None":
            split = replace(split, single=strategy == _STRATEGIES["SingleRecord"])
        wanted = _count(parameters.get("MaxConcurrentTransforms"))
        if "MaxConcurrentTransforms" in self.unset and wanted is not None:
            most = max(1, MAX_MB * _MB // split.payload_bytes) if split.payload_bytes else wanted
            concurrent = max(1, min(wanted, most))
        return replace(self, split=split, concurrent=concurrent)


def _count(value: Any) -> int | None:
    """The number that a model says; None if that is none, or more than there may be."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_MB
    return value if is_count else None


def variant_of(request: Mapping[str, Any], model: Mapping[str, Any], spec: TransformSpec) -> Variant:
    """The instances of a job, as those of an endpoint's variant that is called like the job."""
    name = request["TransformJobName"]
    further = {**spec.environment, **request.get("Environment", {})}
    document = dict(model)
    if "Containers" in document:
        document["Containers"] = [_with(each, further) for each in document["Containers"]]
    if "PrimaryContainer" in document:
        document["PrimaryContainer"] = _with(document["PrimaryContainer"], further)
    variant = {
        "VariantName": name,
        "ModelName": request["ModelName"],
        "InstanceType": spec.instance_type,
        "InitialInstanceCount": spec.count,
    }
    return Variant.from_documents(variant, document)


def _with(container: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    return {**container, "Environment": {**container.get("Environment", {}), **variables}}
