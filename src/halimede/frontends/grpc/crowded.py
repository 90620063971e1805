"""What a gRPC connection serves that is one too many: health checks; all else is refused."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from halimede.core.errors import HalimedeError
from halimede.frontends.grpc.transport.call import Call, Method, StreamMethod, UnaryMethod
from halimede.frontends.grpc.transport.limits import GrpcSettings

_AGE_MS: Final = 1_000
"""After so long its client is asked to go, so that it comes back when there is room."""

_GRACE_MS: Final = 10_000

_HEALTH: Final = ("/grpc.health.v1.Health/", "ServerLive", "ServerReady", "ModelReady")


def health_only(methods: Mapping[str, Method], error: HalimedeError) -> dict[str, Method]:
    """The methods of health as they are, and all others answering with the error."""

    def refuse(call: Call, _message: memoryview | None = None) -> None:
        call.finish(error.code.grpc_status, error.message)

    return {
        path: method
        if path.startswith(_HEALTH[0]) or path.endswith(_HEALTH[1:])
        else (UnaryMethod(refuse) if isinstance(method, UnaryMethod) else StreamMethod(refuse))
        for path, method in methods.items()
    }


def short_lived(settings: GrpcSettings) -> GrpcSettings:
    """The settings of a connection that is to go soon."""
    return replace(settings, max_connection_age_ms=_AGE_MS, max_connection_age_grace_ms=_GRACE_MS)
