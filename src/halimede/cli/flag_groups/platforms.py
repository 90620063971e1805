"""The container contracts of SageMaker and Vertex AI."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import ADDRESS, BOOL, PORT, form, setting

SAGEMAKER: Final = "SageMaker"
VERTEX_AI: Final = "Vertex AI"


@dataclass(frozen=True, kw_only=True)
class SageMakerOptions:
    """The flags of the group "SageMaker"."""

    allow_sagemaker: bool = setting(
        SAGEMAKER,
        BOOL,
        False,
        "Serve SageMaker's container contract. The flags --http-max-input-size, --http-restricted-api and "
        "--http-header-forward-pattern apply to it too.",
    )
    sagemaker_address: str = setting(SAGEMAKER, ADDRESS, "0.0.0.0", "Address to listen on for SageMaker.")  # noqa: S104 - tritonserver's
    sagemaker_port: int = setting(
        SAGEMAKER, PORT, 8080, "Port to listen on for SageMaker; 0 picks a free one."
    )
    sagemaker_unix_socket: str = setting(
        SAGEMAKER,
        form("SOCKET"),
        "",
        "Unix socket to listen on for SageMaker as well: a path, or @ and a name in Linux's abstract namespace. "
        "It is faster than TCP for a proxy on the same machine.",
    )
    sagemaker_safe_port_range: str = setting(
        SAGEMAKER,
        form("PORT-PORT"),
        "",
        "First and last of the ports that other protocols on the same address may use.",
    )
    sagemaker_model_directory: str = setting(
        SAGEMAKER,
        form("DIRECTORY"),
        "/opt/ml/models",
        "Directory that must contain the models and archives that SageMaker loads.",
    )


@dataclass(frozen=True, kw_only=True)
class VertexAiOptions:
    """The flags of the group "Vertex AI"."""

    allow_vertex_ai: bool = setting(
        VERTEX_AI,
        BOOL,
        False,
        "Serve Vertex AI's container contract, at the paths in the environment variables AIP_PREDICT_ROUTE and "
        "AIP_HEALTH_ROUTE. The flags --http-max-input-size, --http-restricted-api and "
        "--http-header-forward-pattern apply to it too.",
        shown_default="true if AIP_MODE is PREDICTION, which also turns HTTP and gRPC off; else false",
    )
    vertex_ai_address: str = setting(VERTEX_AI, ADDRESS, "0.0.0.0", "Address to listen on for Vertex AI.")  # noqa: S104 - tritonserver's
    vertex_ai_port: int = setting(
        VERTEX_AI,
        PORT,
        8080,
        "Port to listen on for Vertex AI; 0 picks a free one.",
        shown_default="AIP_HTTP_PORT, or 8080 if it is not set",
    )
    vertex_ai_default_model: str = setting(
        VERTEX_AI, form("MODEL"), "", "Model of predictions that name none.", shown_default="the only model"
    )
