"""What an endpoint is made of, as its users asked for it: a snapshot that later changes of models do not reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from halimede.core.media_types import essence
from halimede.hosting.s3_urls import s3_url

DEFAULT_DOWNLOAD_TIMEOUT_S = 3600
"""How long fetching and extracting a model may take unless the variant says (ModelDataDownloadTimeoutInSeconds)."""

DEFAULT_STARTUP_TIMEOUT_S = 240
"""How long an instance may take to answer its first ping unless the variant says (SageMaker: four minutes)."""


@dataclass(frozen=True, slots=True)
class Container:
    """The container of a model (`ContainerDefinition`).

    Attributes:
        image: what runs, as the user named it.
        model_data_url: ``s3://…`` of an archive, or of a prefix for a multi-model container; "" for none.
        multi_model: it holds many models, loaded when they are invoked (``Mode: MultiModel``).
        model_cache: models stay until others need their room (`ModelCacheSetting`); False unloads them at once.
        environment: variables for the instance.
        hostname: `ContainerHostname`, "" for none; error texts call it ``primary`` then. One of several has always one.
    """

    image: str
    model_data_url: str = ""
    multi_model: bool = False
    model_cache: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Container":
        """The container that a `ContainerDefinition` describes, which has been validated."""
        return cls(
            document.get("Image", ""),
            s3_url(document.get("ModelDataUrl", "")),
            document.get("Mode", "SingleModel") == "MultiModel",
            document.get("MultiModelConfig", {}).get("ModelCacheSetting", "Enabled") == "Enabled",
            dict(document.get("Environment", {})),
            document.get("ContainerHostname", ""),
        )


@dataclass(frozen=True, slots=True)
class DataCapture:
    """What is captured of a variant's invocations (`DataCaptureConfig`).

    Attributes:
        destination: ``s3://…``, below which records go.
        percentage: how many of a hundred invocations are captured.
        inputs, outputs: whether requests, and responses, are.
        csv_types, json_types: media types whose bodies are kept as text; all others are kept as BASE64.
        source: what records say of where their invocations come from, "" for nothing.
    """

    destination: str
    percentage: int
    inputs: bool = True
    outputs: bool = True
    csv_types: Sequence[str] = ()
    json_types: Sequence[str] = ()
    source: str = ""

    @classmethod
    def from_document(cls, document: Mapping[str, Any], source: str = "") -> "DataCapture | None":
        """What a `DataCaptureConfig` asks for, which has been validated; None if that is nothing."""
        percentage = document.get("InitialSamplingPercentage", 0)
        if not document.get("EnableCapture", True) or not percentage:
            return None
        modes = {option["CaptureMode"] for option in document["CaptureOptions"]}
        types = document.get("CaptureContentTypeHeader", {})
        return cls(
            s3_url(document["DestinationS3Uri"]),
            percentage,
            bool(modes & {"Input", "InputAndOutput"}),
            bool(modes & {"Output", "InputAndOutput"}),
            tuple(map(essence, types.get("CsvContentTypes", ()))),
            tuple(map(essence, types.get("JsonContentTypes", ()))),
            source,
        )

    def encoding(self, content_type: str) -> str:
        """How a body of that type is kept: as ``CSV``, ``JSON`` or ``BASE64``."""
        media_type = essence(content_type)
        if media_type in self.csv_types:
            return "CSV"
        return "JSON" if media_type in self.json_types else "BASE64"


@dataclass(frozen=True, slots=True)
class Variant:
    """A production variant with its model.

    Attributes:
        name: its name.
        model_name: the model's name.
        container: the model's container, or the first of several.
        instance_type: such as ``ml.local.cpu``.
        count: how many instances it begins with.
        weight: its share of the traffic, relative to the other variants'.
        volume_bytes: what its models may take on an instance's disk; 0 for no limit.
        download_timeout_s: how long fetching a model may take.
        startup_timeout_s: how long an instance may take until it answers a ping.
        least_outstanding: requests go to the instance with the fewest in flight, and not to any.
        role: the ARN of the model's execution role, "" for none.
        capture: what is captured of its invocations, None for nothing.
        further: the model's other containers, which run in the same instance.
        direct: requests name the container that they are for; otherwise they pass through all in their order.
    """

    name: str
    model_name: str
    container: Container
    instance_type: str
    count: int = 1
    weight: float = 1.0
    volume_bytes: int = 0
    download_timeout_s: int = DEFAULT_DOWNLOAD_TIMEOUT_S
    startup_timeout_s: int = DEFAULT_STARTUP_TIMEOUT_S
    least_outstanding: bool = False
    role: str = ""
    capture: DataCapture | None = None
    further: Sequence[Container] = ()
    direct: bool = False

    @property
    def containers(self) -> Sequence[Container]:
        """All of the model's containers, in their order."""
        return (self.container, *self.further)

    @property
    def container_name(self) -> str:
        """What error texts call the container, or all of them."""
        return ", ".join(container.hostname for container in self.containers) or "primary"

    @classmethod
    def from_documents(
        cls, variant: Mapping[str, Any], model: Mapping[str, Any], capture: DataCapture | None = None
    ) -> "Variant":
        """The variant that a `ProductionVariant` and the `CreateModel` request of its model describe."""
        documents = model.get("Containers") or [model["PrimaryContainer"]]
        containers = _named([Container.from_document(document) for document in documents])
        return cls(
            variant["VariantName"],
            variant["ModelName"],
            containers[0],
            variant["InstanceType"],
            variant.get("InitialInstanceCount", 1),
            float(variant.get("InitialVariantWeight", 1.0)),
            variant.get("VolumeSizeInGB", 0) << 30,
            variant.get("ModelDataDownloadTimeoutInSeconds", DEFAULT_DOWNLOAD_TIMEOUT_S),
            variant.get("ContainerStartupHealthCheckTimeoutInSeconds", DEFAULT_STARTUP_TIMEOUT_S),
            variant.get("RoutingConfig", {}).get("RoutingStrategy") == "LEAST_OUTSTANDING_REQUESTS",
            model.get("ExecutionRoleArn", ""),
            capture,
            tuple(containers[1:]),
            model.get("InferenceExecutionConfig", {}).get("Mode") == "Direct",
        )


DEFAULT_ASYNC_CONCURRENCY = 4
"""How many requests of a queue an instance gets at a time unless the configuration says."""


@dataclass(frozen=True, slots=True)
class AsyncSpec:
    """What makes an endpoint asynchronous (`AsyncInferenceConfig`).

    Attributes:
        output: where results are put, ``s3://BUCKET`` or ``s3://BUCKET/PREFIX``, without a slash at the end.
        failure: the same of errors; "" for nowhere.
        concurrency: how many requests an instance gets at a time.
        success_topic, error_topic: the ARNs of the topics that are told of results and of errors; "" for none.
        included: the topics whose messages have the response in them (`IncludeInferenceResponseIn`).
    """

    output: str
    failure: str = ""
    concurrency: int = DEFAULT_ASYNC_CONCURRENCY
    success_topic: str = ""
    error_topic: str = ""
    included: frozenset[str] = frozenset()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "AsyncSpec":
        """What an `AsyncInferenceConfig` describes, which has been validated."""
        output = document["OutputConfig"]
        notifications = output.get("NotificationConfig", {})
        return cls(
            s3_url(output["S3OutputPath"]).rstrip("/"),
            s3_url(output.get("S3FailurePath", "")).rstrip("/"),
            document.get("ClientConfig", {}).get(
                "MaxConcurrentInvocationsPerInstance", DEFAULT_ASYNC_CONCURRENCY
            ),
            notifications.get("SuccessTopic", ""),
            notifications.get("ErrorTopic", ""),
            frozenset(notifications.get("IncludeInferenceResponseIn", ())),
        )


def _named(containers: Sequence[Container]) -> Sequence[Container]:
    """Containers of a model that have names if they are several: those of their places if they were given none."""
    if len(containers) == 1:
        return containers
    return [
        replace(container, hostname=container.hostname or f"container-{number}")
        for number, container in enumerate(containers, 1)
    ]
