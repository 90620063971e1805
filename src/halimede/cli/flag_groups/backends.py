"""What runs models, on which resources, and the cache in front of them."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.cache_options import without_password
from halimede.cli.settings import choice, count, form, repeated, setting

CACHE: Final = "Response cache"
BACKENDS: Final = "Backends and memory"


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """The flags of the group "Response cache"."""

    cache_config: tuple[str, ...] = repeated(
        CACHE,
        form("CACHE,KEY=VALUE[,KEY=VALUE…]"),
        "Cache responses of models that set response_cache { enable: true }: in the server's memory "
        "(local,size=BYTES), or in Redis (redis,host=HOST,port=PORT; more keys: user, password, db, "
        "socket_timeout, connect_timeout, pool_size, wait_timeout, tls_enabled, cacert, cert, key). The keys may "
        "be spread over several flags. The password can also be file:PATH, for the line in a file, or env:NAME, "
        "for an environment variable.",
        show=without_password,
    )


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """The flags of the group "Backends and memory"."""

    backend_config: tuple[str, ...] = repeated(
        BACKENDS,
        form("[BACKEND,]KEY=VALUE"),
        "Setting of a backend, or of all backends.",
        shown_default="default-max-batch-size=4",
    )
    backend_directory: str = setting(
        BACKENDS,
        form("DIRECTORY"),
        "",
        "Directory of backends written in Python: a model with the backend NAME is served by "
        "DIRECTORY/NAME/model.py.",
    )
    rate_limit: str = setting(
        BACKENDS,
        choice("off", "execution_count"),
        "off",
        "execution_count: an instance runs only while it holds the resources that its rate_limiter asks for, and "
        "waiting instances are ordered by executions × priority. off: rate_limiter is ignored.",
    )
    rate_limit_resource: tuple[str, ...] = repeated(
        BACKENDS,
        form("NAME:COUNT[:DEVICE]"),
        "How much there is of a resource that rate_limiter can ask for, on one device, or on each if DEVICE is "
        "left out. If the flag is given for any resource, the amount of all others is 0.",
        shown_default="for each resource, the most that one instance asks for",
    )
    host_policy: tuple[str, ...] = repeated(
        BACKENDS,
        form("POLICY,SETTING=VALUE"),
        "Where instances run whose instance group names this host_policy: cpu-cores=FIRST-LAST sets the "
        "processors; numa-node=NUMBER sets the memory, and the processors if cpu-cores is not given. Groups "
        "without host_policy use the policy cpu, model or gpu_NUMBER, by their kind.",
    )
    pinned_memory_pool_byte_size: int = setting(
        BACKENDS,
        count("BYTES"),
        268_435_456,
        "Size that metrics report for the pool of pinned memory. No memory is reserved.",
    )
