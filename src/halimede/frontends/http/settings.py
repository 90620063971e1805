"""What the HTTP front end is told: limits of the transport, and settings of the protocol above it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from halimede.core.uploads import CodeUpload
from halimede.frontends.decoders import Decoders
from halimede.frontends.http.codec.response import MAX_JSON_BYTES
from halimede.frontends.log_settings import LogControl
from halimede.frontends.restrictions import HeaderPattern, Restriction
from halimede.frontends.shared_memory.registry import Regions

if TYPE_CHECKING:
    from halimede.frontends.profiling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one connection may ask of the server. Times are in seconds, sizes in bytes.

    Attributes:
        head_bytes: request line and headers together.
        headers: how many headers.
        body_bytes: a body. Binary tensors have no other limit.
        json_bytes: a body that is nothing but JSON, or the bytes of one tensor (`--http-max-input-size`).
        chunks: how many non-empty chunks a chunked body may come in.
        pipelined: requests of one connection that are worked on at once; more wait unread.
        head_timeout: from the first byte of a request to the end of its headers.
        body_timeout: what a body may take beyond what it takes at `body_rate`.
        body_rate: bytes a second that a sender must reach in the long run.
        send_timeout: how long a client may read nothing of a response.
        linger: how long input is read and thrown away after an error that ends the connection, so that
            the client gets to read the answer.
    """

    head_bytes: int = 32_768
    headers: int = 128
    body_bytes: int = 1 << 32
    json_bytes: int = 67_108_864
    chunks: int = 65_536
    pipelined: int = 64
    head_timeout: float = 30.0
    body_timeout: float = 60.0
    body_rate: int = 1024
    send_timeout: float = 120.0
    linger: float = 5.0


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """What the command line decides about the protocol.

    Attributes:
        server_id: the server's name in its metadata (`--id`).
        max_input_size: largest JSON, raw or decompressed input in bytes (`--http-max-input-size`).
        max_output_size: most JSON of a response in bytes (`--http-max-output-size`).
        restrictions: category of calls → the header that opens it (`--http-restricted-api`).
        forward_pattern: finds the headers that become parameters (`--http-header-forward-pattern`).
        log: the settings of the log, for `/v2/logging`.
        code_upload: clients that may send files of models (`--allow-model-code-upload`).
        regions: clients' shared memory.
        decoders: decode large requests.
        sampler: takes profiles; None if they are not allowed (`--profile`).
        further_paths: what `/openapi.json` says of paths that another front end answers.
    """

    server_id: str = "triton"
    max_input_size: int = 67_108_864
    max_output_size: int = MAX_JSON_BYTES
    restrictions: Mapping[str, Restriction] = field(default_factory=dict)
    forward_pattern: HeaderPattern | None = None
    log: LogControl = field(default_factory=LogControl)
    code_upload: CodeUpload = CodeUpload.LOOPBACK
    regions: Regions = field(default_factory=Regions)
    decoders: Decoders = field(default_factory=Decoders)
    sampler: "Sampler | None" = None
    further_paths: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
