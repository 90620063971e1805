"""`docs/limits.md` says what the code does."""

import re
from pathlib import Path

import pytest

from halimede.cli.hosting.host import command as host_command
from halimede.cli.options import SETTINGS
from halimede.codec.json_text import MAX_ARRAYS, MAX_OBJECTS, MAX_STRINGS
from halimede.config.validate.ensembles import MAX_STEPS as ENSEMBLE_STEPS
from halimede.core.clock import MILLISECOND, TURN_NS
from halimede.frontends.grpc.transport.headers import MAX_HEADERS
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.http.settings import HttpLimits, HttpSettings
from halimede.frontends.request_bounds import MAX_ENTRIES
from halimede.hosting.http.connection import WINDOW_BYTES
from halimede.hosting.http.settings import ConnectionLimits
from halimede.hosting.metering.log_space import LogSettings
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.scaling import activities, policy_operations, schedule_operations, target_operations
from halimede.hosting.scaling.configs import MAX_STEPS
from halimede.hosting.substrates.ray.settings import RaySettings
from halimede.net.tls.connection import UNREAD_BYTES
from halimede.net.tls.handshakes import AT_ONCE, TIMEOUT_S

PAGE = Path(__file__).parent.parent / "docs" / "limits.md"
HTTP, GRPC, CLIENT = HttpLimits(), GrpcSettings(), ConnectionLimits()
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def values(section: str) -> dict[str, str]:
    """What the table under a heading says: limit → value."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    return {row[0]: row[1] for row in rows[2:]}


@pytest.mark.parametrize(
    ("section", "limit", "value"),
    [
        (
            "HTTP",
            "JSON of a request, one tensor in it, raw input, decompressed body",
            f"{HTTP.json_bytes // MIB} MiB",
        ),
        (
            "Host",
            "waiting for room on a [cluster](cluster.md)",
            f"{RaySettings().capacity_wait_s:g} s",
        ),
        (
            "What a request may consist of",
            "inputs of a request, outputs that it asks for, parameters, members of `generate`'s JSON",
            f"{MAX_ENTRIES} of each",
        ),
        ("What a request may consist of", "arrays and objects in its JSON", f"{MAX_ARRAYS}"),
        (
            "What a request may consist of",
            "objects in its JSON; members of all objects",
            f"{MAX_OBJECTS} of each",
        ),
        (
            "What a request may consist of",
            "strings in its JSON, including the names of members",
            f"{MAX_STRINGS}",
        ),
        ("Models and the server", "steps of an [ensemble](ensembles.md)", f"{ENSEMBLE_STEPS}"),
        ("TLS", "time for a handshake", f"{TIMEOUT_S:g} s"),
        ("TLS", "unfinished handshakes", f"{AT_ONCE}"),
        ("TLS", "TLS messages, such as new keys, that a client does not read", f"{UNREAD_BYTES // KIB} KiB"),
        ("HTTP", "body", f"{HTTP.body_bytes // GIB} GiB"),
        ("HTTP", "request line and headers", f"{HTTP.head_bytes // KIB} KiB"),
        ("HTTP", "headers", f"{HTTP.headers}"),
        ("HTTP", "chunks of a chunked body", f"{HTTP.chunks}"),
        ("HTTP", "trailers", f"{HTTP.head_bytes // KIB} KiB"),
        ("HTTP", "requests of one connection at once", f"{HTTP.pipelined}"),
        ("HTTP", "work of one turn of the event loop for a connection", f"{TURN_NS // MILLISECOND} ms"),
        ("gRPC", "work of one turn of the event loop for a connection", f"{TURN_NS // MILLISECOND} ms"),
        ("gRPC", "number of headers of a call", f"{MAX_HEADERS}"),
        ("HTTP", "time for the headers", f"{HTTP.head_timeout:g} s"),
        (
            "HTTP",
            "time for the body",
            f"{HTTP.body_timeout:g} s, plus 1 s for each {HTTP.body_rate} bytes received",
        ),
        ("HTTP", "time in which a client reads nothing of a response", f"{HTTP.send_timeout:g} s"),
        ("HTTP", "time for which input is discarded after an error", f"{HTTP.linger:g} s"),
        ("gRPC", "calls of a connection at once", f"{GRPC.max_concurrent_streams}"),
        ("gRPC", "headers of a call", f"{GRPC.max_header_list_size // KIB} KiB"),
        ("gRPC", "flow-control window of a stream", f"{GRPC.stream_window // MIB} MiB"),
        ("gRPC", "flow-control window of a connection", f"{GRPC.connection_window // MIB} MiB"),
        ("gRPC", "frame", f"{GRPC.max_frame_size // MIB} MiB"),
        (
            "gRPC",
            "unsent replies and unprocessed messages of a connection",
            f"{GRPC.max_buffered // MIB} MiB",
        ),
        ("gRPC", "replies of a call that the client does not read", f"{GRPC.stream_high_water // KIB} KiB"),
        (
            "gRPC",
            "time for the first bytes of HTTP/2 on a new connection",
            f"{GRPC.preface_timeout_ms // 1000} s",
        ),
        (
            "gRPC",
            "time in which a client takes nothing of the replies that wait",
            f"{GRPC.send_timeout_ms // 1000} s",
        ),
        ("gRPC", "silence before the server pings", f"{GRPC.keepalive_time_ms // 3_600_000} h"),
        ("gRPC", "silence after that ping", f"{GRPC.keepalive_timeout_ms // 1000} s"),
        ("gRPC", "pings of the server without data between them", f"{GRPC.max_pings_without_data}"),
        ("gRPC", "time between a client's pings", f"{GRPC.min_ping_interval_ms // 60_000} min"),
        ("gRPC", "strikes", f"{GRPC.max_ping_strikes}"),
        ("Host", "body of an invocation", f"{InvocationSettings().payload_bytes // MIB} MiB"),
        ("Host", "request line and headers", f"{CLIENT.head_bytes // KIB} KiB"),
        ("Host", "headers", f"{CLIENT.headers}"),
        ("Host", "received part of a body that has not been passed on", f"{WINDOW_BYTES // KIB} KiB"),
        ("Host", "time for the headers", f"{CLIENT.head_timeout:g} s"),
        ("Host", "time in which no byte of a body arrives", f"{CLIENT.body_timeout:g} s"),
        ("Host", "time in which a client reads nothing of a response", f"{CLIENT.send_timeout:g} s"),
        ("Host", "time of an invocation", f"{InvocationSettings().timeout_s:g} s"),
        ("Host", "time of a response stream", f"{InvocationSettings().stream_timeout_s:g} s"),
        (
            "Host",
            "waiting for a model of a multi-model endpoint",
            f"{InvocationSettings().model_wait_s:g} s",
        ),
        ("Host", "loading and unloading such a model", f"{ResidencySettings().load_timeout_s:g} s each"),
        ("Host", "log of an instance", f"{LogSettings().instance_bytes // MIB} MiB"),
        ("Host", "scalable targets of an account in a region", f"{target_operations.MAX_TARGETS}"),
        (
            "Host",
            "policies of a scalable target, steps of a policy, scheduled actions of a target",
            f"{policy_operations.MAX_POLICIES}, {MAX_STEPS}, {schedule_operations.MAX_ACTIONS}",
        ),
        (
            "Host",
            "scaling activities",
            f"six weeks, {activities.OF_A_VARIANT} of a variant, {activities.OF_A_SCOPE:,} of an account in a region",
        ),
        ("Host", "all logs", f"{LogSettings().total_bytes // GIB} GiB"),
    ],
)
def test_limit_has_the_value_that_the_page_says(section: str, limit: str, value: str) -> None:
    assert values(section)[limit] == value


def test_front_end_and_transport_have_one_limit_of_json() -> None:
    assert HttpSettings().max_input_size == HTTP.json_bytes


def test_flags_that_the_page_names_exist() -> None:
    flags = {setting.name for setting in SETTINGS} | {
        name.removeprefix("--") for option in host_command.params for name in option.opts
    }
    named = set(re.findall(r"--([a-z][a-z0-9-]+)", PAGE.read_text()))
    assert named
    assert named <= flags
