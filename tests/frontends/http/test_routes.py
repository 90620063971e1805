import pytest

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
        ("/v2/models/a%2Fb/versions/3/infer", Route(Call.INFER, "a%2Fb", "3")),
        ("/v2/models/m/generate", Route(Call.GENERATE, "m")),
        ("/v2/models/m/generate_stream", Route(Call.GENERATE_STREAM, "m")),
        ("/v2/repository/index", Route(Call.INDEX)),
        ("/v2/repository/r/index", Route(Call.INDEX, repository="r")),
        ("/v2/repository/models/m/load", Route(Call.LOAD, "m")),
        ("/v2/repository/r/models/m/unload", Route(Call.UNLOAD, "m", "", "r")),
        ("/v2/systemsharedmemory/status", Route(Call.SHARED_MEMORY_STATUS)),
        ("/v2/cudasharedmemory/region/r/status", Route(Call.SHARED_MEMORY_STATUS)),
        ("/v2/systemsharedmemory/region/r/register", Route(Call.SHARED_MEMORY_CHANGE)),
        ("/v2/systemsharedmemory/region/r/unregister", Route(Call.SHARED_MEMORY_CHANGE)),
        ("/v2/cudasharedmemory/unregister", Route(Call.SHARED_MEMORY_CHANGE)),
        ("/v2/trace/setting", Route(Call.TRACE)),
        ("/v2/models/m/trace/setting", Route(Call.TRACE)),
        ("/v2/logging", Route(Call.LOGGING)),
    ],
)
def test_path_means_a_call(path: str, route: Route) -> None:
    assert find_route(path) == route


@pytest.mark.parametrize(
    "path",
    ["", "/", "/v2/", "/v1", "/v2/models", "/v2/models/", "/v2/models/m/", "/v2/models/m/versions/abc",
     "/v2/models/m/versions/", "/v2/models/m/versions/1/", "/v2/models/m/versions/1/trace/setting",
     "/v2/models/m/versions/-1/infer", "/v2/repository", "/v2/systemsharedmemory/register",
     "/v2/models/m/infer\n"],
)  # fmt: skip
def test_any_other_path_means_nothing(path: str) -> None:
    assert find_route(path) is None


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
