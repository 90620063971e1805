"""What the Vertex AI front end is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from halimede.core.errors import InvalidArgumentError

PREDICT_ROUTE: Final = "AIP_PREDICT_ROUTE"
HEALTH_ROUTE: Final = "AIP_HEALTH_ROUTE"
"""The environment variables with the two paths."""

DEFAULT_MODEL_FLAG: Final = "--vertex-ai-default-model"


@dataclass(frozen=True, slots=True)
class VertexSettings:
    """What the command line and the environment decide.

    Attributes:
        predict_route: the path of predictions.
        health_route: the path of the server's health.
        default_model: the model of predictions that name none; "" for the only one there is.
    """

    predict_route: str
    health_route: str
    default_model: str = ""


def read_routes(environment: Mapping[str, str]) -> tuple[str, str]:
    """The paths of predictions and of the server's health.

    Raises:
        InvalidArgumentError: the environment lacks one of them.
    """
    for name in (PREDICT_ROUTE, HEALTH_ROUTE):
        if not environment.get(name):
            raise InvalidArgumentError(
                f"failed to start Vertex AI service: Invalid argument - {name} is not defined for Vertex AI endpoint"
            )
    return environment[PREDICT_ROUTE], environment[HEALTH_ROUTE]
