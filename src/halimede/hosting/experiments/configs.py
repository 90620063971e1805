"""The endpoint configurations that an experiment makes: while it runs, and for when it is over."""

import secrets
from collections.abc import Mapping
from typing import Any

_KEPT = (
    "VpcConfig",
    "EnableNetworkIsolation",
    "ExecutionRoleArn",
    "AsyncInferenceConfig",
    "DataCaptureConfig",
)
"""What of the endpoint's configuration holds for the experiment's too."""

_MOST_NAME = 48

Document = Mapping[str, Any]


def running_config(request: Document, current: Document) -> dict[str, Any]:
    """`CreateEndpointConfig` for an experiment that runs.

    Args:
        request: `CreateInferenceExperiment`.
        current: the configuration that the endpoint has.
    """
    mode = request["ShadowModeConfig"]
    [shadow] = mode["ShadowModelVariants"]
    variants = {variant["VariantName"]: variant for variant in request["ModelVariants"]}
    production = mode["SourceModelVariantName"]
    config = {
        **_base(request, current),
        "ProductionVariants": [_variant(variants[production], current, 1.0)],
        "ShadowProductionVariants": [
            _variant(variants[shadow["ShadowModelVariantName"]], current, shadow["SamplingPercentage"] / 100)
        ],
    }
    if "DataStorageConfig" in request:
        config["DataCaptureConfig"] = _capture(request["DataStorageConfig"])
    return config


def later_config(
    request: Document, current: Document, variant: Document, capture: Document | None
) -> dict[str, Any]:
    """`CreateEndpointConfig` for the endpoint with one variant, when an experiment is over.

    Args:
        request: `CreateInferenceExperiment`.
        current: the configuration that the endpoint has.
        variant: the `ModelVariantConfig` that stays.
        capture: the endpoint's `DataCaptureConfig` before the experiment; None if it had none.
    """
    config = {**_base(request, current), "ProductionVariants": [_variant(variant, current, 1.0)]}
    config.pop("DataCaptureConfig", None)
    return {**config, "DataCaptureConfig": capture} if capture else config


def _base(request: Document, current: Document) -> dict[str, Any]:
    config = {member: current[member] for member in _KEPT if member in current}
    if "KmsKey" in request:
        config["KmsKeyId"] = request["KmsKey"]
    name = request["Name"][:_MOST_NAME].rstrip("-")
    return {**config, "EndpointConfigName": f"{name}-{secrets.token_hex(6)}"}


def _variant(variant: Document, current: Document, weight: float) -> dict[str, Any]:
    """A `ProductionVariant`; what the endpoint's variant of that name has further, it has too."""
    known = [*current["ProductionVariants"], *current.get("ShadowProductionVariants", ())]
    same = [each for each in known if each["VariantName"] == variant["VariantName"]]
    before: Document = same[0] if same else {}
    infrastructure = variant["InfrastructureConfig"]["RealTimeInferenceConfig"]
    return {
        **before,
        "VariantName": variant["VariantName"],
        "ModelName": variant["ModelName"],
        "InstanceType": infrastructure["InstanceType"],
        "InitialInstanceCount": infrastructure["InstanceCount"],
        "InitialVariantWeight": weight,
    }


def _capture(storage: Document) -> dict[str, Any]:
    """The `DataCaptureConfig` that an experiment's `DataStorageConfig` stands for: all requests and answers."""
    config: dict[str, Any] = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": storage["Destination"],
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    }
    if "KmsKey" in storage:
        config["KmsKeyId"] = storage["KmsKey"]
    if "ContentType" in storage:
        config["CaptureContentTypeHeader"] = storage["ContentType"]
    return config
