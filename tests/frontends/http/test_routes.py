from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.http.routes import Call, Route, find_route


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v2", Route(Call.SERVER_METADATA)),
        ("/v2/health/live", Route(Call.SERVER_LIVE)),
        ("/v2/health/ready", Route(Call.SERVER_READY)),
        ("/v2/models/m", Route(Call.MODEL_METADATA, "m")),
        ("/v2/models/m/versions/12", Route(Call.MODEL_METADATA, "m", "12")),
        ("/v2/models/m/ready", Route(Call.MODEL_READY, "m")),
        ("/v2/models/m/versions/3/config", Route(Call.MODEL_CONFIG, "m", "3")),
        ("/v2/models/m/stats", Route(Call.MODEL_STATISTICS, "m")),
        ("/v2/models/stats", Route(Call.ALL_STATISTICS)),
        ("/v2/models/m/infer", Route(Call.INFER, "m")),
        ("/v2/models/a%20b/versions/3/infer", Route(Call.INFER, "a b", "3")),
        ("/v2/models/a%2520b", Route(Call.MODEL_METADATA, "a%20b")),
        ("/v2/models/a+b", Route(Call.MODEL_METADATA, "a+b")),
        ("/v2/models/100%", Route(Call.MODEL_METADATA, "100%")),
        ("/v2/models/%C3%BC/config", Route(Call.MODEL_CONFIG, "ü")),
        ("/v2/models/\xc3\xbc/config", Route(Call.MODEL_CONFIG, "ü")),
        ("/v2/models/%73tats", Route(Call.MODEL_METADATA, "stats")),
        ("/v2/repository/models/a%3Fb/load", Route(Call.LOAD, "a?b")),
        ("/v2/models/m/generate", Route(Call.GENERATE, "m")),
        ("/v2/models/m/generate_stream", Route(Call.GENERATE_STREAM, "m")),
        ("/v2/repository/index", Route(Call.INDEX)),
        ("/v2/repository/r/index", Route(Call.INDEX, repository="r")),
        ("/v2/repository/models/m/load", Route(Call.LOAD, "m")),
        ("/v2/repository/r/models/m/unload", Route(Call.UNLOAD, "m", "", "r")),
        ("/v2/systemsharedmemory/status", Route(Call.SYSTEM_SHARED_MEMORY_STATUS)),
        ("/v2/cudasharedmemory/region/r/status", Route(Call.CUDA_SHARED_MEMORY_STATUS, region="r")),
        (
            "/v2/systemsharedmemory/region/a%20b/register",
            Route(Call.SYSTEM_SHARED_MEMORY_REGISTER, region="a b"),
        ),
        ("/v2/systemsharedmemory/register", Route(Call.SYSTEM_SHARED_MEMORY_REGISTER)),
        (
            "/v2/systemsharedmemory/region/r/unregister",
            Route(Call.SYSTEM_SHARED_MEMORY_UNREGISTER, region="r"),
        ),
        ("/v2/cudasharedmemory/unregister", Route(Call.CUDA_SHARED_MEMORY_UNREGISTER)),
        ("/v2/trace/setting", Route(Call.TRACE)),
        ("/v2/models/m/trace/setting", Route(Call.TRACE, "m")),
        ("/v2/logging", Route(Call.LOGGING)),
        ("/", Route(Call.LANDING)),
        ("/v2/models", Route(Call.MODELS)),
        ("/openapi.json", Route(Call.OPENAPI)),
        ("/console", Route(Call.CONSOLE)),
        ("/console/", Route(Call.CONSOLE)),
        ("/console/server/logs.js", Route(Call.CONSOLE, file="server/logs.js")),
        ("/v2/console/snapshot", Route(Call.CONSOLE_SNAPSHOT)),
        ("/v2/console/events", Route(Call.CONSOLE_EVENTS)),
        ("/v2/console/logs", Route(Call.CONSOLE_LOGS)),
    ],
)
def test_path_means_a_call(path: str, route: Route) -> None:
    assert find_route(path) == route


@pytest.mark.parametrize(
    "path",
    ["", "//", "/v2/", "/v1", "/v2/models/", "/openapi.json/", "/console/../x.js", "/consoles", "/console/X.js",
     "/v2/models/m/", "/v2/models/m/versions/abc",
     "/v2/models/m/versions/", "/v2/models/m/versions/1/", "/v2/models/m/versions/1/trace/setting",
     "/v2/models/m/versions/-1/infer", "/v2/repository", "/v2/systemsharedmemory/region/register",
     "/v2/models/m/infer\n", "/v2/models/a%2Fb", "/v2/models/%2f", "/v2/models/m%00", "/v2/models/%ff/infer",
     "/v2/models%2Fm", "/v2/models/%C3/infer", "/v2/repository/models/..%2fm/load"],
)  # fmt: skip
def test_any_other_path_means_nothing(path: str) -> None:
    assert find_route(path) is None


@given(st.text(min_size=1).filter(lambda name: not set(name) & {"/", "\0"}))
def test_any_name_can_be_in_a_path(name: str) -> None:
    encoded = quote(name, safe="")
    assert find_route(f"/v2/models/{encoded}/infer") == Route(Call.INFER, name)
    assert find_route(f"/v2/repository/models/{encoded}/unload") == Route(Call.UNLOAD, name)


PIECES = ("%", "2", "F", "f", "5", "0", "c3", "bc", ".", "..", "a", "\xc3", "\xbc", "\xff", "%2F", "%25")


@given(st.lists(st.sampled_from(PIECES), min_size=1).map("".join))
def test_a_decoded_name_is_one_segment_and_decoded_once(encoded: str) -> None:
    route = find_route(f"/v2/models/{encoded}/infer")
    if route is not None:
        assert route.call is Call.INFER
        assert not set(route.model) & {"/", "\0"}
        assert find_route(f"/v2/models/{quote(route.model, safe='')}/infer") == route


@given(st.text("0123456789 +-_.eE\xb2\u0663", min_size=1, max_size=25))
def test_a_version_is_digits_below_2_to_63_and_nothing_else(text: str) -> None:
    route = find_route(f"/v2/models/m/versions/{quote(text)}/infer")
    if route is None:
        assert not (text.isascii() and text.isdigit())
        return
    try:
        assert 0 <= route.version == int(text) < 1 << 63
    except InvalidArgumentError:
        assert int(text) >= 1 << 63


def test_long_path_means_what_a_short_one_does() -> None:
    name = "m" * 1000
    assert find_route(f"/v2/models/{name}/infer") == Route(Call.INFER, name)


def test_no_version_is_minus_one() -> None:
    assert Route(Call.INFER, "m").version == -1
    assert Route(Call.INFER, "m", "007").version == 7
    assert Route(Call.INFER, "m", "0" * 5000).version == 0


@pytest.mark.parametrize("digits", ["9223372036854775808", "1" * 5000])
def test_impossible_version_is_refused(digits: str) -> None:
    with pytest.raises(InvalidArgumentError, match="version should be an integral value > 0"):
        _ = Route(Call.INFER, "m", digits).version
