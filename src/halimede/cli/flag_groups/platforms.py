"""The container contracts of SageMaker and Vertex AI."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import ADDRESS, BOOL, ONE_LOOP, PORT, POSITIVE, form, ignored, setting

SAGEMAKER: Final = "SageMaker"
VERTEX_AI: Final = "Vertex AI"


@dataclass(frozen=True, kw_only=True)
class SageMakerOptions:
    """The flags of the group "SageMaker" that do something."""

    allow_sagemaker: bool = setting(
        SAGEMAKER,
        BOOL,
        False,
        "Whether to serve SageMaker's container contract. --http-max-input-size, --http-restricted-api and "
        "--http-header-forward-pattern hold for it too.",
    )
    sagemaker_address: str = setting(SAGEMAKER, ADDRESS, "0.0.0.0", "Address to serve SageMaker at.")  # noqa: S104 - tritonserver's
    sagemaker_port: int = setting(SAGEMAKER, PORT, 8080, "Port to serve SageMaker at; 0 for a free one.")
    sagemaker_unix_socket: str = setting(
        SAGEMAKER,
        form("SOCKET"),
        "",
        "Unix socket to serve SageMaker at as well: a path, or @ and a name of Linux's abstract namespace. A proxy on "
        "the same machine reaches the server by it with less work for both.",
    )
    sagemaker_safe_port_range: str = setting(
        SAGEMAKER,
        form("PORT-PORT"),
        "",
        "Ports, from the first to the last, one of which each other protocol at the same address must have.",
    )
    sagemaker_model_directory: str = setting(
        SAGEMAKER,
        form("DIRECTORY"),
        "/opt/ml/models",
        "Directory below which the models and archives lie that SageMaker has the server load.",
    )


@dataclass(frozen=True, kw_only=True)
class VertexAiOptions:
    """The flags of the group "Vertex AI" that do something."""

    allow_vertex_ai: bool = setting(
        VERTEX_AI,
        BOOL,
        False,
        "Whether to serve Vertex AI's container contract, at the paths AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE of the "
        "environment. --http-max-input-size, --http-restricted-api and --http-header-forward-pattern hold for it too.",
        shown_default="`true`, and `false` for `--allow-http` and `--allow-grpc`, if `AIP_MODE` is `PREDICTION`, "
        "else `false`",
    )
    vertex_ai_address: str = setting(VERTEX_AI, ADDRESS, "0.0.0.0", "Address to serve Vertex AI at.")  # noqa: S104 - tritonserver's
    vertex_ai_port: int = setting(
        VERTEX_AI,
        PORT,
        8080,
        "Port to serve Vertex AI at; 0 for a free one.",
        shown_default="`AIP_HTTP_PORT` if set, else `8080`",
    )
    vertex_ai_default_model: str = setting(
        VERTEX_AI,
        form("MODEL"),
        "",
        "Model of predictions that name none.",
        shown_default="the only one that is served",
    )


IGNORED: Final = (
    ignored(
        SAGEMAKER,
        POSITIVE,
        "sagemaker-thread-count",
        8,
        "Threads that serve SageMaker.",
        ONE_LOOP,
    ),
    ignored(
        VERTEX_AI,
        POSITIVE,
        "vertex-ai-thread-count",
        8,
        "Threads that serve Vertex AI.",
        ONE_LOOP,
    ),
)
