"""The flags of `halimede serve`, with tritonserver's names, spellings and defaults.

One table, of which the command line, its checks, the start-up table and `docs/flags.md` are made.
"""

from dataclasses import dataclass
from typing import Final

from halimede.cli.flag_groups import (
    access,
    backends,
    deprecated,
    grpc,
    http,
    logs,
    metrics,
    models,
    platforms,
    server,
    without_effect,
)
from halimede.cli.settings import Setting, settings_of

GROUPS: Final = (
    models.MODELS,
    http.HTTP,
    grpc.GRPC,
    logs.LOGGING,
    metrics.METRICS,
    server.SERVER,
    access.ACCESS,
    backends.CACHE,
    metrics.TRACING,
    backends.BACKENDS,
    platforms.SAGEMAKER,
    platforms.VERTEX_AI,
    deprecated.DEPRECATED,
    without_effect.WITHOUT_EFFECT,
)
"""In the order of the help: what most need stands first."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions(
    models.ModelOptions,
    http.HttpOptions,
    grpc.GrpcOptions,
    logs.LoggingOptions,
    metrics.MetricsOptions,
    server.ServerOptions,
    access.AccessOptions,
    backends.CacheOptions,
    metrics.TracingOptions,
    backends.BackendOptions,
    platforms.SageMakerOptions,
    platforms.VertexAiOptions,
    deprecated.DeprecatedOptions,
):
    """The values of all flags that do something. A field is the flag of the same name."""


SETTINGS: Final[tuple[Setting, ...]] = tuple(
    sorted((*settings_of(ServeOptions), *without_effect.IGNORED), key=lambda each: GROUPS.index(each.group))
)
"""All flags, group by group."""
