"""What runs models, on which resources, and the cache in front of them."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.cache_options import without_password
from halimede.cli.settings import BOOL, COUNT, NUMBER, Status, choice, form, ignored, repeated, setting

CACHE: Final = "Response cache"
BACKENDS: Final = "Backends and memory"
_FRAMEWORKS: Final = (
    "frameworks keep the memory of GPUs themselves, as the parameters of models and backends tell them"
)


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """The flags of the group "Response cache" that do something."""

    cache_config: tuple[str, ...] = repeated(
        CACHE,
        form("CACHE,KEY=VALUE[,KEY=VALUE…]"),
        "Keep responses of models that set response_cache { enable: true }: in the server's memory "
        "(local,size=BYTES) or in a Redis server (redis,host=HOST,port=PORT; further keys: user, password, db, "
        "socket_timeout, connect_timeout, pool_size, wait_timeout, tls_enabled, cacert, cert, key). It may be given "
        "once for each key. The value of password may be file:PATH, for the one line of a file, or env:NAME, for an "
        "environment variable.",
        show=without_password,
    )
    response_cache_byte_size: int = setting(
        CACHE,
        COUNT,
        0,
        "Use --cache-config=local,size=BYTES.",
        status=Status.DEPRECATED,
    )


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """The flags of the group "Backends and memory" that do something."""

    backend_config: tuple[str, ...] = repeated(
        BACKENDS,
        form("[BACKEND,]KEY=VALUE"),
        "Setting for one backend, or for all.",
        shown_default="default-max-batch-size=4",
    )
    backend_directory: str = setting(
        BACKENDS,
        form("DIRECTORY"),
        "",
        "Directory of backends written in Python: models whose backend is NAME are served by DIRECTORY/NAME/model.py.",
    )
    rate_limit: str = setting(
        BACKENDS,
        choice("off", "execution_count"),
        "off",
        "Whether instances execute only while they hold the resources of their rate_limiter; those that wait are "
        "served in the order of executions × priority (execution_count).",
    )
    rate_limit_resource: tuple[str, ...] = repeated(
        BACKENDS,
        form("NAME:COUNT[:DEVICE]"),
        "How much there is of a resource, on one device or on each. Once one is given, there is nothing of those that "
        "are not.",
        shown_default="of each resource as much as the instance declares that needs the most",
    )
    host_policy: tuple[str, ...] = repeated(
        BACKENDS,
        form("POLICY,SETTING=VALUE"),
        "Where instances run whose group names this host_policy: cpu-cores=LOWEST-HIGHEST for the processors, "
        "numa-node=NUMBER for the memory, and for the processors too without cpu-cores. The policies cpu, model and "
        "gpu_NUMBER are those of groups that name none.",
    )
    pinned_memory_pool_byte_size: int = setting(
        BACKENDS,
        COUNT,
        268_435_456,
        "Size of the pool of pinned memory, which metrics report; nothing is set aside.",
    )


IGNORED: Final = (
    ignored(
        CACHE,
        form("DIRECTORY"),
        "cache-directory",
        "",
        "Directory of caches.",
        "the caches local and redis are part of the server, which loads no shared libraries of caches",
    ),
    ignored(
        BACKENDS,
        form("DEVICE:BYTES"),
        "cuda-memory-pool-byte-size",
        (),
        "Size of a GPU's memory pool.",
        _FRAMEWORKS,
        repeatable=True,
    ),
    ignored(
        BACKENDS,
        form("DEVICE:BYTES"),
        "cuda-virtual-address-size",
        (),
        "Size of a GPU's virtual address range.",
        _FRAMEWORKS,
        repeatable=True,
    ),
    ignored(
        BACKENDS,
        form("DEVICE:FRACTION"),
        "model-load-gpu-limit",
        (),
        "Share of a GPU's memory beyond which no model is loaded.",
        "a model is loaded if its framework gets the memory for it, and refused with the reason if not",
        repeatable=True,
    ),
    ignored(
        BACKENDS,
        NUMBER,
        "min-supported-compute-capability",
        0.0,
        "Oldest GPUs that are used.",
        "each framework refuses the GPUs that it was not built for; CUDA_VISIBLE_DEVICES hides a GPU",
    ),
    ignored(
        BACKENDS,
        BOOL,
        "enable-peer-access",
        True,
        "Whether GPUs reach each other's memory.",
        "frameworks decide it; the server copies nothing from one GPU to another",
    ),
    ignored(
        BACKENDS,
        COUNT,
        "buffer-manager-thread-count",
        0,
        "Threads that gather batches.",
        "each instance gathers its own batches",
    ),
)
