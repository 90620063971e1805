"""The front end over HTTP."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import ADDRESS, BOOL, COUNT, FILE, PORT, count, form, repeated, setting
from halimede.frontends.restrictions import without_secret

HTTP: Final = "HTTP"


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """The flags of the group "HTTP"."""

    allow_http: bool = setting(HTTP, BOOL, True, "Serve HTTP.")
    http_address: str = setting(HTTP, ADDRESS, "0.0.0.0", "Address to listen on for HTTP.")  # noqa: S104 - tritonserver's
    http_port: int = setting(HTTP, PORT, 8000, "Port to listen on for HTTP; 0 picks a free one.")
    reuse_http_port: bool = setting(
        HTTP,
        BOOL,
        False,
        "Let several server processes listen on the same HTTP port; the kernel distributes connections among "
        "them.",
    )
    allow_openai: bool = setting(
        HTTP,
        BOOL,
        False,
        "Serve OpenAI's API on the HTTP port under /v1: models, chat, completions, responses and embeddings.",
    )
    http_use_ssl: bool = setting(
        HTTP, BOOL, False, "Serve HTTP over TLS. Needs --http-server-cert and --http-server-key."
    )
    http_server_cert: str = setting(
        HTTP,
        FILE,
        "",
        "The server's certificate, followed by its chain, in PEM. It is reloaded when it changes.",
    )
    http_server_key: str = setting(
        HTTP, FILE, "", "The private key of the certificate, in PEM. It is reloaded when it changes."
    )
    http_use_ssl_mutual: bool = setting(
        HTTP,
        BOOL,
        False,
        "Serve HTTP over TLS, and only to clients with a certificate that is signed by one of --http-root-cert. "
        "Implies --http-use-ssl.",
    )
    http_root_cert: str = setting(
        HTTP,
        FILE,
        "",
        "The root certificates that client certificates are checked against, in PEM. "
        "They are reloaded when they change.",
    )
    http_restricted_api: tuple[str, ...] = repeated(
        HTTP,
        form("API[,API…]:HEADER=VALUE"),
        "Serve these groups of calls only to requests that have this header with this value. Groups: health, "
        "metadata, inference, shared-memory, model-config, model-repository, statistics, trace, logging. VALUE "
        "can also be file:PATH, for the line in a file, or env:NAME, for an environment variable.",
        show=without_secret,
    )
    http_header_forward_pattern: str = setting(
        HTTP,
        form("REGEX"),
        "",
        "Pass request headers to the model, as request parameters, if this regular expression (RE2) matches "
        "anywhere in their name. Case is ignored unless the expression begins with (?-i).",
    )
    http_max_input_size: int = setting(
        HTTP,
        count("BYTES", 1),
        67_108_864,
        "Largest size of the JSON of a request, of a tensor in it, of a raw request body and of a decompressed "
        "body. It does not limit binary tensors; --receive-memory-budget does.",
    )
    http_max_output_size: int = setting(
        HTTP,
        count("BYTES", 1),
        268_435_456,
        "Largest JSON of the outputs of a response. It does not limit binary tensors.",
    )
    http_max_connections: int = setting(
        HTTP,
        COUNT,
        0,
        "Maximum number of connections on the HTTP port, and on the SageMaker and Vertex AI ports. Requests on "
        "further connections get 503, except health checks. 0 means no limit.",
    )
    allow_console: bool = setting(
        HTTP,
        BOOL,
        True,
        "Serve the console at /console on the HTTP port: a page that shows models, queues, latencies and the log, "
        "and sends requests.",
    )
    http_server_timing: bool = setting(
        HTTP,
        BOOL,
        False,
        "Add the header Server-Timing to responses, which tells how long each stage of the request took.",
    )
