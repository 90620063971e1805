"""The flags of `halimede serve`, with tritonserver's names, spellings and defaults.

One table, of which the command line, its checks, the start-up table and `docs/flags.md` are made.
"""

from dataclasses import dataclass
from typing import Any

from halimede.cli.cache_options import without_password
from halimede.cli.settings import (
    ADDRESS,
    BOOL,
    COUNT,
    FILE,
    INT,
    MILLISECONDS,
    NUMBER,
    PORT,
    POSITIVE,
    TEXT,
    VERBOSITY,
    Kind,
    Setting,
    Status,
    choice,
    form,
    repeated,
    setting,
    settings_of,
)
from halimede.core.uploads import CodeUpload
from halimede.frontends.log_settings import LOG_FORMATS
from halimede.frontends.request_log.formats import ACCESS_LOG_FORMATS
from halimede.frontends.restrictions import without_secret

SERVER = "Server"
ACCESS = "Access"
MODELS = "Models"
HTTP = "HTTP"
GRPC = "gRPC"
SAGEMAKER = "SageMaker"
VERTEX_AI = "Vertex AI"
LOGGING = "Logging"
METRICS = "Metrics"
TRACING = "Tracing"
CACHE = "Response cache"
BACKENDS = "Backends and memory"
GROUPS = (
    SERVER,
    ACCESS,
    MODELS,
    HTTP,
    GRPC,
    SAGEMAKER,
    VERTEX_AI,
    LOGGING,
    METRICS,
    TRACING,
    CACHE,
    BACKENDS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The values of all flags that do something. A field is the flag of the same name."""

    id: str = setting(SERVER, TEXT, "triton", "Name of the server, as its metadata tell it.")
    exit_timeout_secs: int = setting(
        SERVER,
        COUNT,
        30,
        "Longest time that a stopping server waits for requests in flight; after it, it exits with an error.",
    )
    drain_delay_secs: int = setting(
        SERVER,
        COUNT,
        0,
        "Seconds that a stopping server still answers while it says that it is not ready, so that load balancers send "
        "requests elsewhere before its sockets close. A second signal ends them.",
    )
    exit_on_error: bool = setting(
        SERVER, BOOL, True, "Whether the server exits when a model fails to load at start."
    )
    strict_readiness: bool = setting(
        SERVER,
        BOOL,
        True,
        "Whether the server is ready only while each of its models is; otherwise it is as soon as it has started.",
    )

    allow_host: tuple[str, ...] = repeated(
        ACCESS,
        form("NAME"),
        "Further name of this machine, for requests over HTTP that come over loopback: those whose Host header names "
        "another are refused, as a web page may have sent them. Addresses, localhost and the machine's own name are "
        "always allowed. '*' allows every name.",
    )
    allow_origin: tuple[str, ...] = repeated(
        ACCESS,
        form("ORIGIN"),
        "Web pages that may send requests over HTTP and read the responses, by their origin, such as "
        "https://app.example or http://localhost:3000. Other pages may not load models, infer or change anything. "
        "'*' allows every page.",
    )
    allow_model_code_upload: str = setting(
        ACCESS,
        choice(*(each.value for each in CodeUpload)),
        CodeUpload.LOOPBACK.value,
        "Clients that may send a model's files with the request to load it (file:…), which may be code that the "
        "server runs: those on this machine (loopback), all that reach the server (all), or none.",
    )
    token_file: str = setting(
        ACCESS,
        FILE,
        "",
        "File of bearer tokens, a line NAME:sha256:HASH for each, as `halimede token NAME` makes them. Over HTTP and "
        "gRPC, calls then need the header 'Authorization: Bearer TOKEN'. Read again when it changes.",
    )
    token_apis: str = setting(
        ACCESS,
        form("API[,API…]"),
        "",
        "Groups of calls that need a token of --token-file: those of --http-restricted-api, and metrics.",
        shown_default="all but health",
    )

    allow_client_shm: bool = setting(
        ACCESS,
        BOOL,
        False,
        "Let clients register shared memory of this machine, from which the server takes inputs and into which it puts "
        "outputs. Whoever may register it can read and write any shared memory that the server may.",
    )

    receive_memory_budget: str = setting(
        SERVER,
        form("BYTES|SHARE"),
        "20%",
        "Memory that request bodies may take together while they are received, over HTTP and gRPC: bytes (1GiB) or a "
        "share of the memory that the server may use. As it runs out, large bodies wait; then they are refused.",
    )

    max_inflight_requests: int = setting(
        SERVER,
        COUNT,
        0,
        "Inference requests of clients that may be in flight at once, of all models and protocols together; more are "
        "refused: 503, UNAVAILABLE. 0 for any number.",
    )

    model_repository: tuple[str, ...] = repeated(
        MODELS,
        form("DIRECTORY|URL"),
        "Directory of models, or a bucket's: s3://BUCKET/PATH, gs://BUCKET/PATH or as://ACCOUNT/CONTAINER/PATH. "
        "Required; repeat it to serve several.",
        aliases=("model-store",),
    )
    model_namespacing: bool = setting(
        MODELS,
        BOOL,
        False,
        "Whether several repositories may hold models of the same name. Ensembles and models see those of their own "
        "repository first; requests reach a model only if no other has its name. Otherwise such models are not served.",
    )
    model_control_mode: str = setting(
        MODELS,
        choice("none", "poll", "explicit", "ondemand"),
        "none",
        "How models come and go: all at start (none), all at start and as the repositories change (poll), "
        "by request (explicit), or by request and by themselves (ondemand): a model is loaded when the first "
        "inference request for it comes, and those that were used longest ago make room for it.",
    )
    model_memory_budget: str = setting(
        MODELS,
        form("BYTES|SHARE"),
        "",
        "Memory that models may take together, in the control modes explicit and ondemand: 2GiB, 500MB, or a share "
        "of the memory that the server may use, as 80%.",
        shown_default="80% in control mode ondemand, else any",
    )
    ondemand_timeout_secs: int = setting(
        MODELS,
        POSITIVE,
        300,
        "Longest time, in seconds, that a request waits for its model to be loaded, in control mode ondemand.",
    )
    load_model: tuple[str, ...] = repeated(
        MODELS,
        form("MODEL"),
        "Model to load at start, in the control modes explicit and ondemand. Repeat it for several; '*' alone "
        "stands for all.",
    )
    repository_poll_secs: int = setting(
        MODELS,
        COUNT,
        15,
        "Seconds between two looks at the repositories, in control mode poll; 0 for never.",
    )
    cloud_cache_directory: str = setting(
        MODELS,
        form("DIRECTORY"),
        "",
        "Where models of buckets are kept on disk, so that a restart fetches only what has changed.",
        shown_default="$XDG_CACHE_HOME/halimede/models or ~/.cache/halimede/models",
    )
    cloud_cache_size: str = setting(
        MODELS,
        form("BYTES|SHARE"),
        "80%",
        "Disk that models of buckets may take together: bytes (200GiB) or a share of the disk. As it runs out, models "
        "that are not loaded are removed from it, those that were used longest ago first.",
    )
    model_config_name: str = setting(
        MODELS,
        TEXT,
        "",
        "Use configs/NAME.pbtxt in a model's directory, where it exists, in place of config.pbtxt.",
    )
    disable_auto_complete_config: bool = setting(
        MODELS, BOOL, False, "Do not complete configurations from the models' files."
    )
    strict_model_config: bool = setting(
        MODELS,
        BOOL,
        False,
        "Use --disable-auto-complete-config.",
        status=Status.DEPRECATED,
    )
    repoagent_directory: str = setting(
        MODELS,
        form("DIRECTORY"),
        "/opt/tritonserver/repoagents",
        "Directory of repository agents: the agent NAME of a model's model_repository_agents is the class in "
        "DIRECTORY/NAME/agent.py. The agent checksum is always there.",
    )
    repoagent_timeout_secs: int = setting(
        MODELS,
        POSITIVE,
        300,
        "Longest time, in seconds, that a repository agent may take for one action; then it is stopped, and the load "
        "fails.",
    )
    model_load_thread_count: int = setting(MODELS, POSITIVE, 4, "How many models load at once.")
    model_load_retry_count: int = setting(
        MODELS, COUNT, 0, "Further attempts at a model version that failed to load."
    )

    allow_http: bool = setting(HTTP, BOOL, True, "Whether to serve HTTP.")
    http_address: str = setting(HTTP, ADDRESS, "0.0.0.0", "Address to serve HTTP at.")  # noqa: S104 - tritonserver's
    http_port: int = setting(HTTP, PORT, 8000, "Port to serve HTTP at; 0 for a free one.")
    reuse_http_port: bool = setting(
        HTTP,
        BOOL,
        False,
        "Let several servers share the HTTP port; the kernel spreads connections over them.",
    )
    http_max_input_size: int = setting(
        HTTP,
        POSITIVE,
        67_108_864,
        "Largest JSON of a request, largest tensor in it, raw input and decompressed body, in bytes. Binary tensors "
        "are not bounded by it: --receive-memory-budget bounds them.",
    )
    http_max_connections: int = setting(
        HTTP,
        COUNT,
        0,
        "Connections that the HTTP port may have, and that of SageMaker; more are answered 503 and closed, but for "
        "health checks. 0 for any number.",
    )
    http_header_forward_pattern: str = setting(
        HTTP,
        form("REGEX"),
        "",
        "Request headers whose names this regular expression (RE2) finds become parameters of the inference "
        "request. Case does not matter unless it begins with (?-i).",
    )
    http_restricted_api: tuple[str, ...] = repeated(
        HTTP,
        form("API[,API…]:HEADER=VALUE"),
        "Serve these groups of calls only to requests with this header and value. Groups: health, metadata, "
        "inference, shared-memory, model-config, model-repository, statistics, trace, logging. VALUE may be file:PATH, "
        "for the one line of a file, or env:NAME, for an environment variable.",
        show=without_secret,
    )
    http_use_ssl: bool = setting(
        HTTP, BOOL, False, "Serve HTTP over TLS; needs --http-server-cert and --http-server-key."
    )
    http_use_ssl_mutual: bool = setting(
        HTTP,
        BOOL,
        False,
        "Over TLS, accept only clients whose certificate --http-root-cert vouches for. Implies --http-use-ssl.",
    )
    http_server_cert: str = setting(
        HTTP, FILE, "", "The server's certificate, PEM. Read again when it changes."
    )
    http_server_key: str = setting(
        HTTP, FILE, "", "The key of the server's certificate, PEM. Read again when it changes."
    )
    http_root_cert: str = setting(
        HTTP, FILE, "", "Certificates that vouch for clients', PEM. Read again when they change."
    )
    http_server_timing: bool = setting(
        HTTP,
        BOOL,
        False,
        "Tell clients how long each stage of their requests took, in the header Server-Timing of responses.",
    )

    allow_grpc: bool = setting(GRPC, BOOL, True, "Whether to serve gRPC.")
    grpc_address: str = setting(GRPC, ADDRESS, "0.0.0.0", "Address to serve gRPC at.")  # noqa: S104 - tritonserver's
    grpc_port: int = setting(GRPC, PORT, 8001, "Port to serve gRPC at; 0 for a free one.")
    reuse_grpc_port: bool = setting(
        GRPC,
        BOOL,
        False,
        "Let several servers share the gRPC port; the kernel spreads connections over them.",
    )
    grpc_max_connections: int = setting(
        GRPC,
        COUNT,
        0,
        "Connections that the gRPC port may have; calls over more are answered UNAVAILABLE, but for health checks. "
        "0 for any number.",
    )
    grpc_header_forward_pattern: str = setting(
        GRPC,
        form("REGEX"),
        "",
        "Metadata whose keys this regular expression (RE2) finds become parameters of the inference request. "
        "Case does not matter unless it begins with (?-i); keys are in lower case.",
    )
    grpc_restricted_protocol: tuple[str, ...] = repeated(
        GRPC,
        form("API[,API…]:KEY=VALUE"),
        "Serve these groups of calls only to requests with this value under the metadata key "
        "triton-grpc-protocol-KEY. Groups and VALUE as for --http-restricted-api.",
        show=without_secret,
    )
    grpc_use_ssl: bool = setting(
        GRPC, BOOL, False, "Serve gRPC over TLS; needs --grpc-server-cert and --grpc-server-key."
    )
    grpc_use_ssl_mutual: bool = setting(
        GRPC,
        BOOL,
        False,
        "Over TLS, accept only clients whose certificate --grpc-root-cert vouches for. Implies --grpc-use-ssl.",
    )
    grpc_server_cert: str = setting(
        GRPC, FILE, "", "The server's certificate, PEM. Read again when it changes."
    )
    grpc_server_key: str = setting(
        GRPC, FILE, "", "The key of the server's certificate, PEM. Read again when it changes."
    )
    grpc_root_cert: str = setting(
        GRPC, FILE, "", "Certificates that vouch for clients', PEM. Read again when they change."
    )
    grpc_infer_response_compression_level: str = setting(
        GRPC,
        choice("none", "low", "medium", "high"),
        "none",
        "How hard to compress responses to inference requests, for clients that accept it.",
    )
    grpc_keepalive_time: int = setting(
        GRPC, POSITIVE, 7_200_000, "Milliseconds without traffic after which the server pings a connection."
    )
    grpc_keepalive_timeout: int = setting(
        GRPC,
        POSITIVE,
        20_000,
        "Milliseconds without an answer to a ping after which the connection is closed.",
    )
    grpc_keepalive_permit_without_calls: bool = setting(
        GRPC, BOOL, False, "Whether connections without calls are pinged, and may ping."
    )
    grpc_http2_max_pings_without_data: int = setting(
        GRPC, COUNT, 2, "Pings that the server sends without sending data between them; 0 for any number."
    )
    grpc_http2_min_recv_ping_interval_without_data: int = setting(
        GRPC,
        COUNT,
        300_000,
        "Shortest time, in milliseconds, between two pings of a client that sends no data.",
    )
    grpc_http2_max_ping_strikes: int = setting(
        GRPC,
        COUNT,
        2,
        "Too-frequent pings tolerated before disconnecting; 0 for any number.",
    )
    grpc_max_connection_age: int = setting(
        GRPC, COUNT, 0, "Milliseconds after which a connection is asked to close; 0 for never."
    )
    grpc_max_connection_age_grace: int = setting(
        GRPC, COUNT, 0, "Milliseconds that its calls then have to finish; 0 for as long as they take."
    )

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

    log_info: bool = setting(LOGGING, BOOL, True, "Whether to log what happens.")
    log_warning: bool = setting(LOGGING, BOOL, True, "Whether to log warnings.")
    log_error: bool = setting(LOGGING, BOOL, True, "Whether to log errors.")
    log_verbose: int = setting(
        LOGGING,
        VERBOSITY,
        0,
        "How much more to log: 0 nothing, 1 requests that fail, with the reason, and what models log as verbose, 2 "
        "and more internals of the frameworks.",
    )
    log_format: str = setting(
        LOGGING,
        choice(*LOG_FORMATS),
        "default",
        "Form of a line: tritonserver's two, or one JSON object a line.",
    )
    log_file: str = setting(
        LOGGING,
        FILE,
        "",
        "File to append the log to.",
        shown_default="standard output; warnings and errors to standard error",
    )

    access_log: str = setting(
        LOGGING,
        choice(*ACCESS_LOG_FORMATS),
        "none",
        "Log each request as a line of text or as a JSON object: who asked what, the status, times and sizes.",
    )
    access_log_file: str = setting(
        LOGGING,
        FILE,
        "",
        "File to append the access log to. It may be moved away, as logrotate does: a new one is begun.",
        shown_default="standard error",
    )
    slow_request_ms: int = setting(
        LOGGING,
        COUNT,
        0,
        "Log requests that take at least so many milliseconds, with the time of each stage; 0 for none.",
    )

    allow_metrics: bool = setting(METRICS, BOOL, True, "Whether to serve metrics.")
    allow_cpu_metrics: bool = setting(
        METRICS, BOOL, True, "Whether metrics tell of the machine's CPUs and memory."
    )
    allow_gpu_metrics: bool = setting(
        METRICS, BOOL, True, "Whether metrics tell of the machine's NVIDIA GPUs, where there are any."
    )
    metrics_address: str = setting(
        METRICS, ADDRESS, "", "Address to serve metrics at.", shown_default="that of --http-address"
    )
    metrics_port: int = setting(METRICS, PORT, 8002, "Port to serve metrics at; 0 for a free one.")
    metrics_use_ssl: bool = setting(
        METRICS,
        BOOL,
        False,
        "Serve metrics over TLS as HTTP is served, with the same certificates; needs --http-use-ssl.",
    )
    metrics_interval_ms: int = setting(
        METRICS,
        MILLISECONDS,
        2000,
        "Gauges of the machine are measured anew when half of so many milliseconds have passed.",
    )
    metrics_config: tuple[str, ...] = repeated(
        METRICS,
        form("KEY=VALUE"),
        "counter_latencies=false stops the counters; histogram_latencies=true adds "
        "nv_inference_first_response_histogram_ms; summary_latencies=true adds summaries of latencies with "
        "summary_quantiles=QUANTILE:ERROR,….",
        shown_default="counter_latencies=true, histogram_latencies=false, summary_latencies=false",
    )

    trace_config: tuple[str, ...] = repeated(
        TRACING,
        form("[MODE,]KEY=VALUE"),
        "Which requests are traced, and where traces go: level=TIMESTAMPS and level=TENSORS for times and the contents "
        "of tensors, rate=N to trace one of N requests, count=N to trace no more than N, mode=triton or "
        "mode=opentelemetry. In mode triton: triton,file=FILE for the file, and triton,log-frequency=N for files of N "
        "traced requests each, with a number after the name.",
        shown_default="level=OFF, rate=1000, count=-1, mode=triton",
    )
    trace_level: tuple[str, ...] = repeated(
        TRACING, form("LEVEL"), "Use --trace-config level=LEVEL.", status=Status.DEPRECATED
    )
    trace_rate: int = setting(
        TRACING, COUNT, 1000, "Use --trace-config rate=COUNT.", status=Status.DEPRECATED
    )
    trace_count: int = setting(TRACING, INT, -1, "Use --trace-config count=COUNT.", status=Status.DEPRECATED)
    trace_file: str = setting(
        TRACING, FILE, "", "Use --trace-config triton,file=FILE.", status=Status.DEPRECATED
    )
    trace_log_frequency: int = setting(
        TRACING, COUNT, 0, "Use --trace-config triton,log-frequency=COUNT.", status=Status.DEPRECATED
    )

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

    backend_directory: str = setting(
        BACKENDS,
        form("DIRECTORY"),
        "",
        "Directory of backends written in Python: models whose backend is NAME are served by DIRECTORY/NAME/model.py.",
    )
    backend_config: tuple[str, ...] = repeated(
        BACKENDS,
        form("[BACKEND,]KEY=VALUE"),
        "Setting for one backend, or for all.",
        shown_default="default-max-batch-size=4",
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


def _ignored(
    group: str,
    kind: Kind[Any],
    name: str,
    default: Any,
    help: str,  # noqa: A002 - what it is called everywhere on a command line
    reason: str = "",
    *,
    repeatable: bool = False,
) -> Setting:
    return Setting(name, group, kind, default, help, Status.IGNORED, repeatable, reason=reason)


_INT_MAX = 2_147_483_647

_ONE_LOOP = (
    "one event loop serves all connections, and models run on threads and in processes of their own; for more, let "
    "several servers share the port with --reuse-http-port and --reuse-grpc-port"
)
_NO_POOL = "nothing is set aside for requests, which take memory only while they are under way"
_FRAMEWORKS = (
    "frameworks keep the memory of GPUs themselves, as the parameters of models and backends tell them"
)

SETTINGS: tuple[Setting, ...] = (
    *settings_of(ServeOptions),
    _ignored(
        HTTP,
        POSITIVE,
        "http-thread-count",
        8,
        "Threads that serve HTTP.",
        _ONE_LOOP,
    ),
    _ignored(
        GRPC,
        POSITIVE,
        "grpc-infer-thread-count",
        2,
        "Threads that serve gRPC.",
        _ONE_LOOP,
    ),
    _ignored(
        GRPC,
        COUNT,
        "grpc-infer-allocation-pool-size",
        8,
        "States kept for reuse.",
        _NO_POOL,
    ),
    _ignored(
        GRPC,
        COUNT,
        "grpc-max-response-pool-size",
        _INT_MAX,
        "Responses kept for reuse.",
        _NO_POOL,
    ),
    _ignored(
        SAGEMAKER,
        POSITIVE,
        "sagemaker-thread-count",
        8,
        "Threads that serve SageMaker.",
        _ONE_LOOP,
    ),
    _ignored(
        VERTEX_AI,
        POSITIVE,
        "vertex-ai-thread-count",
        8,
        "Threads that serve Vertex AI.",
        _ONE_LOOP,
    ),
    _ignored(
        CACHE,
        form("DIRECTORY"),
        "cache-directory",
        "",
        "Directory of caches.",
        "the caches local and redis are part of the server, which loads no shared libraries of caches",
    ),
    _ignored(
        BACKENDS,
        COUNT,
        "buffer-manager-thread-count",
        0,
        "Threads that gather batches.",
        "each instance gathers its own batches",
    ),
    _ignored(
        BACKENDS,
        form("DEVICE:BYTES"),
        "cuda-memory-pool-byte-size",
        (),
        "Size of a GPU's memory pool.",
        _FRAMEWORKS,
        repeatable=True,
    ),
    _ignored(
        BACKENDS,
        form("DEVICE:BYTES"),
        "cuda-virtual-address-size",
        (),
        "Size of a GPU's virtual address range.",
        _FRAMEWORKS,
        repeatable=True,
    ),
    _ignored(
        BACKENDS,
        form("DEVICE:FRACTION"),
        "model-load-gpu-limit",
        (),
        "Share of a GPU's memory beyond which no model is loaded.",
        "a model is loaded if its framework gets the memory for it, and refused with the reason if not",
        repeatable=True,
    ),
    _ignored(
        BACKENDS,
        NUMBER,
        "min-supported-compute-capability",
        0.0,
        "Oldest GPUs that are used.",
        "each framework refuses the GPUs that it was not built for; CUDA_VISIBLE_DEVICES hides a GPU",
    ),
    _ignored(
        BACKENDS,
        BOOL,
        "enable-peer-access",
        True,
        "Whether GPUs reach each other's memory.",
        "frameworks decide it; the server copies nothing from one GPU to another",
    ),
)
