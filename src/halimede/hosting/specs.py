"""What an endpoint is made of, as its users asked for it: a snapshot that later changes of models do not reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
            document.get("ModelDataUrl", ""),
            document.get("Mode", "SingleModel") == "MultiModel",
            document.get("MultiModelConfig", {}).get("ModelCacheSetting", "Enabled") == "Enabled",
            dict(document.get("Environment", {})),
            document.get("ContainerHostname", ""),
        )


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
    def from_documents(cls, variant: Mapping[str, Any], model: Mapping[str, Any]) -> "Variant":
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
            tuple(containers[1:]),
            model.get("InferenceExecutionConfig", {}).get("Mode") == "Direct",
        )


def _named(containers: Sequence[Container]) -> Sequence[Container]:
    """Containers of a model that have names if they are several: those of their places if they were given none."""
    if len(containers) == 1:
        return containers
    return [
        replace(container, hostname=container.hostname or f"container-{number}")
        for number, container in enumerate(containers, 1)
    ]
