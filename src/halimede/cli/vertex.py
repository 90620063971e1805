"""What the environment of a Vertex AI container says of the flags."""

from collections.abc import Mapping
from typing import Any, Final

import click

from halimede.cli.settings import PORT

_MODE: Final = "AIP_MODE"
_PORT: Final = "AIP_HTTP_PORT"
_STORAGE: Final = "AIP_STORAGE_URI"


def with_vertex_defaults(given: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The flags given, and what the environment says of those that are not.

    With `AIP_MODE=PREDICTION`, Vertex AI is served, and neither HTTP nor gRPC. Where it is served, its port is
    `AIP_HTTP_PORT` and the model repository `AIP_STORAGE_URI`.

    Raises:
        click.UsageError: `AIP_HTTP_PORT` is no port.
    """
    defaults: dict[str, Any] = {}
    if environment.get(_MODE) == "PREDICTION":
        defaults |= {"allow_vertex_ai": True, "allow_http": False, "allow_grpc": False}
    flags = {**defaults, **given}
    if not flags.get("allow_vertex_ai"):
        return dict(given)
    if "vertex_ai_port" not in flags and (text := environment.get(_PORT)):
        try:
            flags["vertex_ai_port"] = PORT.parse(text)
        except ValueError as error:
            msg = f"{_PORT}: {error}"
            raise click.UsageError(msg) from None
    if "model_repository" not in flags and (storage := environment.get(_STORAGE)):
        flags["model_repository"] = (storage,)
    return flags
