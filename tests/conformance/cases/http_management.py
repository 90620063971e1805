"""Health, metadata, and paths and verbs of HTTP."""

from typing import Any

from tests.conformance.asking import get, post
from tests.conformance.case import Case, case
from tests.conformance.differences import DECODED_NAME, HEAD_OF_HEALTH, LIST_OF_MODELS, MALFORMED_HTTP
from tests.conformance.steps import Bytes, Http

MODELS = (
    "add_sub",
    "every_type",
    "upper",
    "versions",
    "chain",
    "repeat",
    "reshaped",
    "variable",
    "text",
    "stream_chain",
)
PATHS = (
    "/",
    "/v1",
    "/v2/",
    "/v2/health",
    "/v2/health/live/",
    "/v2/models/",
    "/v2/models/unknown",
    "/v2/models/unknown/ready",
    "/v2/models/unknown/config",
    "/v2/models/unknown/stats",
    "/v2/models/unknown/infer",
    "/v2/models/add_sub/",
    "/v2/models/add_sub/versions",
    "/v2/models/add_sub/versions/",
    "/v2/models/add_sub/versions/9",
    "/v2/models/add_sub/versions/9/ready",
    "/v2/models/add_sub/versions/9/config",
    "/v2/models/add_sub/versions/9/stats",
    "/v2/models/add_sub/versions/0",
    "/v2/models/add_sub/versions/abc",
    "/v2/models/add_sub/versions/-1",
    "/v2/models/add_sub/versions/99999999999999999999",
    "/v2/models/add_sub/versions/01",
    "/v2/models/add_sub/versions/1",
    "/v2/models/versions/versions/2",
    "/v2/models/versions/versions/3",
    "/v2/models/versions/versions/2/ready",
    "/v2/models/add_sub/other",
    "/v2/models/add_sub?query=1",
    "/v2/models/add_sub/infer",
    "/v2/models/add_sub/ready",
    "/v2/models/add_sub/ready/",
    "/v2//health/live",
    "/V2/health/live",
    "/v2/logging/",
    "/v2/repository/index",
    "/v2/repository/models/add_sub/load",
    "/v2/models/ADD_SUB",
    "/v2/models/add_sub/generate",
    "/v2/models/add_sub/versions/1/ready",
    "/v2/models/add_sub/versions/1/config",
    "/v2/health/ready?x",
    "/metrics",
)
POSTS = (
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/add_sub",
    "/v2/models/add_sub/config",
    "/v2/nothing",
)
LOGGING: tuple[Any, ...] = (
    {},
    {"log_verbose_level": 1},
    {"log_verbose_level": 0},
    {"log_info": False},
    {"log_warning": 1},
    {"log_file": "/tmp/x"},
    {"log_verbose_level": -1},
    {"log_format": "ISO8601"},
    {"log_format": "default"},
    {"log_format": "other"},
    {"other": 1},
    [],
    "text",
    {"log_verbose_level": "1"},
    {"log_error": "true"},
)

CASES: list[Case] = [
    case("server metadata", get("/v2"), ignored=(r"\.name$", r"\.version$", r"\.extensions")),
    case("live", get("/v2/health/live")),
    case("ready", get("/v2/health/ready")),
    *(case(f"GET {path}", get(path)) for path in PATHS),
    case("GET /v2/models", get("/v2/models"), differs=LIST_OF_MODELS),
    case("GET a name that is percent-encoded", get("/v2/models/add%5Fsub"), differs=DECODED_NAME),
    *(case(f"POST {path}", post(path, "{}")) for path in POSTS),
    *(
        case(f"{verb} {path}", Http(verb, path))
        for verb in ("PUT", "DELETE", "HEAD", "PATCH", "OPTIONS")
        for path in ("/v2", "/v2/models/add_sub/infer")
    ),
    *(
        case(f"HEAD {path}", Http("HEAD", path), differs=HEAD_OF_HEALTH)
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/add_sub/ready")
    ),
    *(case(f"metadata of {model}", get(f"/v2/models/{model}")) for model in MODELS),
    *(case(f"configuration of {model}", get(f"/v2/models/{model}/config")) for model in MODELS),
    case("logging", get("/v2/logging"), alone=True),
    *(
        case(
            f"logging {body!r}",
            post("/v2/logging", body),
            get("/v2/logging"),
            post(
                "/v2/logging",
                {
                    "log_verbose_level": 0,
                    "log_info": False,
                    "log_warning": True,
                    "log_error": True,
                    "log_format": "default",
                },
            ),
            alone=True,
        )
        for body in LOGGING
    ),
    case("a request line that is none", Bytes(b"nonsense\r\n\r\n"), differs=MALFORMED_HTTP),
    case("HTTP/1.0", Bytes(b"GET /v2/health/live HTTP/1.0\r\n\r\n", "GET")),
    case(
        "a header without colon",
        Bytes(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nwrong\r\n\r\n", "GET"),
        differs=MALFORMED_HTTP,
    ),
    case("no Host", Bytes(b"GET /v2/health/live HTTP/1.1\r\n\r\n", "GET")),
    case(
        "an unknown verb",
        Bytes(b"BREW /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET"),
        differs=MALFORMED_HTTP,
    ),
    case(
        "Content-Length that is no number",
        Bytes(b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n"),
        differs=MALFORMED_HTTP,
    ),
]
