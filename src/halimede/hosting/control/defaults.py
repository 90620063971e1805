"""What AWS assumes where a request says nothing, and shows when it describes what the request made."""

from collections.abc import Mapping
from typing import Any

_CONTAINER = {"Mode": "SingleModel"}
_VARIANT = {"InitialInstanceCount": 1, "InitialVariantWeight": 1.0}
_ISOLATION = {"EnableNetworkIsolation": False}
_BLUE_GREEN = {"TerminationWaitInSeconds": 0}


def complete_model(request: Mapping[str, Any]) -> dict[str, Any]:
    """A `CreateModel` request with what it left out."""
    model = {**_ISOLATION, **request}
    if "PrimaryContainer" in model:
        model["PrimaryContainer"] = {**_CONTAINER, **model["PrimaryContainer"]}
    if "Containers" in model:
        model["Containers"] = [{**_CONTAINER, **container} for container in model["Containers"]]
    return model


def complete_config(request: Mapping[str, Any]) -> dict[str, Any]:
    """A `CreateEndpointConfig` request with what it left out."""
    variants = {
        member: [{**_VARIANT, **variant} for variant in request[member]]
        for member in ("ProductionVariants", "ShadowProductionVariants")
        if member in request
    }
    return {**_ISOLATION, **request, **variants}


def complete_deployment(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """A `DeploymentConfig` with what it left out."""
    complete = dict(deployment)
    if "BlueGreenUpdatePolicy" in complete:
        complete["BlueGreenUpdatePolicy"] = {**_BLUE_GREEN, **complete["BlueGreenUpdatePolicy"]}
    return complete
