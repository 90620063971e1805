"""What the command line decides about the engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from halimede.core.cpus import cpu_budget
from halimede.core.gpus import visible_gpus
from halimede.core.host_policies import HostPolicy
from halimede.engine.tracing.settings import TraceConfig

if TYPE_CHECKING:  # it needs an extra
    from halimede.repository.cloud.repositories import CloudRepositories


class ControlMode(Enum):
    """How models come and go (`--model-control-mode`)."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"
    ON_DEMAND = "ondemand"

    @property
    def takes_requests(self) -> bool:
        """Whether clients may load and unload models."""
        return self in (ControlMode.EXPLICIT, ControlMode.ON_DEMAND)


@dataclass(frozen=True, slots=True)
class LocalCacheSettings:
    """A response cache in the server's memory.

    Attributes:
        size: bytes that it may take.
    """

    size: int


@dataclass(frozen=True, slots=True)
class RedisCacheSettings:
    """A response cache in a Redis server.

    Attributes:
        host: its host, or the path of its Unix socket.
        port: its port; 0 for a Unix socket.
        user, password: to log in with; "" for none.
        db: number of the database.
        connect_timeout_ms: longest time to connect.
        timeout_ms: longest time that a request waits for the cache.
        pool_size: connections.
        wait_timeout_ms: longest time that an insertion waits for a connection.
        tls: whether to speak TLS.
        tls_ca, tls_cert, tls_key: files, PEM: who vouches for the server, the client's certificate, and its key; ""
            for those of the system, and for none.
    """

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    db: int = 0
    connect_timeout_ms: int = 1000
    timeout_ms: int = 50
    pool_size: int = 8
    wait_timeout_ms: int = 1000
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""

    @property
    def where(self) -> str:
        """Where the server is, as the log shows it."""
        return f"{self.host}:{self.port}" if self.port else self.host


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """How much there is of a resource that executions need (`--rate-limit-resource`).

    Attributes:
        name: the resource.
        count: how much.
        device: the device that has so much; None for each.
    """

    name: str
    count: int
    device: int | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the engine; each is the `halimede serve` flag of the same name.

    Attributes:
        model_repositories: directories of models; some may mirror buckets.
        control_mode: how models come and go.
        repository_poll_secs: seconds between two looks at the repositories, in poll mode; 0 for never.
        load_models: models to load at start in the modes explicit and ondemand; ``*`` alone for all.
        model_memory_budget: bytes that models may take together, None for any number.
        ondemand_timeout_secs: longest time that a request waits for its model to be loaded, in mode ondemand.
        auto_complete_config: whether backends may complete configurations.
        model_config_name: use ``configs/<name>.pbtxt`` where it exists; "" for ``config.pbtxt``.
        load_threads: how many models load at once.
        load_retry_count: further attempts at a version that failed to load.
        strict_readiness: the server is ready only while every model is.
        busy_wait_percent: of one core, what waiting for workers with the processor busy may take.
        max_inflight_requests: requests of clients that may be in flight at once; 0 for any number.
        exit_on_error: the server ends if a model fails to load at start, and is never ready then.
        model_namespacing: repositories may hold models of equal names.
        backend_config: backend → setting → value; settings under "" are for every backend.
        backend_directory: where backends written in Python are; None for nowhere.
        repoagent_directory: where repository agents are, each in a directory of its name.
        repoagent_timeout_secs: longest time that a repository agent may take for one action.
        hosted_root: where models lie that a platform brings (`--sagemaker-model-directory`).
        cpu_threads: CPU threads that all instances share out.
        gpus: numbers of the GPUs that models may use.
        cpu_fallback: instance groups of KIND_GPU run on CPUs if their backend can use no GPU.
        host_policies: where instances run, by the name of the policy (`--host-policy`).
        verbose: the log's verbosity, 0 and up.
        summary_latencies: whether quantiles of latencies are kept for the metrics.
        cache: the response cache, None for none.
        rate_limit: whether instances execute only while they hold the resources that they declare.
        rate_limit_resources: how much there is of these; without any, as much as any instance declares.
        tracing: which requests are traced at first, and where traces go (`--trace-config`).
        cloud: the repositories in buckets; None for none.
    """

    model_repositories: tuple[Path, ...]
    control_mode: ControlMode = ControlMode.NONE
    repository_poll_secs: int = 15
    load_models: tuple[str, ...] = ()
    model_memory_budget: int | None = None
    ondemand_timeout_secs: int = 300
    auto_complete_config: bool = True
    model_config_name: str = ""
    load_threads: int = 4
    load_retry_count: int = 0
    cpu_fallback: bool = False
    strict_readiness: bool = True
    busy_wait_percent: int = 0
    max_inflight_requests: int = 0
    exit_on_error: bool = False
    model_namespacing: bool = False
    backend_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    backend_directory: Path | None = None
    repoagent_directory: Path = Path("/opt/tritonserver/repoagents")
    repoagent_timeout_secs: int = 300
    hosted_root: Path = Path("/opt/ml/models")
    cpu_threads: int = field(default_factory=cpu_budget)
    gpus: tuple[int, ...] = field(default_factory=visible_gpus)
    host_policies: Mapping[str, HostPolicy] = field(default_factory=dict)
    verbose: int = 0
    summary_latencies: bool = False
    cache: LocalCacheSettings | RedisCacheSettings | None = None
    rate_limit: bool = False
    rate_limit_resources: tuple[ResourceLimit, ...] = ()
    tracing: TraceConfig = field(default_factory=TraceConfig)
    cloud: "CloudRepositories | None" = None

    def backend_settings(self, backend: str) -> dict[str, str]:
        """`--backend-config` for one backend, over the settings for every backend."""
        return {**self.backend_config.get("", {}), **self.backend_config.get(backend, {})}
