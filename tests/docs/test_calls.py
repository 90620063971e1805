"""Every call of the protocols is on its page."""

import pytest

from halimede.frontends.grpc import health_pb2, kserve_pb2, reflection_pb2
from halimede.frontends.http.routes import Call, find_route
from tests.docs.pages import ROOT

HTTP, GRPC = ((ROOT / "docs" / page).read_text() for page in ("http.md", "grpc.md"))

PATHS = {
    Call.SERVER_METADATA: ["/v2"],
    Call.SERVER_LIVE: ["/v2/health/live"],
    Call.SERVER_READY: ["/v2/health/ready"],
    Call.INFER: ["/v2/models/M/infer"],
    Call.ALL_STATISTICS: ["/v2/models/stats"],
    Call.MODEL_METADATA: ["/v2/models/M"],
    Call.MODEL_READY: ["/v2/models/M/ready"],
    Call.MODEL_CONFIG: ["/v2/models/M/config"],
    Call.MODEL_STATISTICS: ["/v2/models/M/stats"],
    Call.INDEX: ["/v2/repository/index"],
    Call.LOAD: ["/v2/repository/models/M/load"],
    Call.UNLOAD: ["/v2/repository/models/M/unload"],
    Call.GENERATE: ["/v2/models/M/generate"],
    Call.GENERATE_STREAM: ["/v2/models/M/generate_stream"],
    Call.TRACE: ["/v2/trace/setting", "/v2/models/M/trace/setting"],
    Call.LOGGING: ["/v2/logging"],
    Call.PROFILE: ["/v2/debug/profile"],
    Call.MODELS: ["/v2/models"],
    Call.LANDING: ["/"],
    Call.OPENAPI: ["/openapi.json"],
    Call.CONSOLE: ["/console"],
    Call.CONSOLE_SNAPSHOT: ["/v2/console/snapshot"],
    Call.CONSOLE_EVENTS: ["/v2/console/events"],
    Call.CONSOLE_LOGS: ["/v2/console/logs"],
}
SHARED_MEMORY = [
    f"/v2/{kind}sharedmemory{rest}"
    for kind in ("system", "cuda")
    for rest in ("/status", "/region/R/status", "/region/R/register", "/region/R/unregister", "/unregister")
]


def test_every_path_has_its_words_here() -> None:
    """Paths of shared memory are listed together, however many calls they are."""
    others = [call for call in Call if not call.name.startswith(("SHARED_MEMORY", "SYSTEM_", "CUDA_"))]
    assert set(PATHS) == set(others)


@pytest.mark.parametrize(("call", "path"), [(call, path) for call, paths in PATHS.items() for path in paths])
def test_a_call_over_http_is_on_the_page(call: Call, path: str) -> None:
    route = find_route(path)
    assert route is not None
    assert route.call is call
    assert is_listed(path)


@pytest.mark.parametrize("path", SHARED_MEMORY)
def test_a_call_for_shared_memory_is_on_the_page(path: str) -> None:
    assert find_route(path) is not None
    assert is_listed(path.replace("cuda", "system"))
    assert "the same under `/v2/cudasharedmemory`" in HTTP


def is_listed(path: str) -> bool:
    """Whether the page has the path in full, or its end behind the start of another."""
    rows = [row for row in HTTP.splitlines() if row.startswith("| `")]
    start = path.rpartition("/")[0].partition("/region")[0]
    rest = path.removeprefix(start)
    written = (f" {path}`", f"`{path}`")
    shortened = (f"`…{rest}`", f" …{rest}`")
    return any(
        any(form in row for form in written) or (start in row and any(form in row for form in shortened))
        for row in rows
    )


@pytest.mark.parametrize(
    "module", [kserve_pb2, health_pb2, reflection_pb2], ids=["inference", "health", "reflection"]
)
def test_every_method_over_grpc_is_on_the_page(module: object) -> None:
    services = module.DESCRIPTOR.services_by_name.values()  # type: ignore[attr-defined]  # of either module
    methods = [method.name for service in services for method in service.methods]
    assert methods
    assert [name for name in methods if f"`{name}`" not in GRPC] == []
