"""One server for the tests of all modules; each module has its models run where `IN_SERVER_TOO` says."""

from collections.abc import Iterator

import pytest

from tests.python_models.support import RATE_LIMITER, Models, serve_models


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let modules with `IN_SERVER_TOO` test models in processes and in the server; but for marked tests."""
    both = getattr(metafunc.module, "IN_SERVER_TOO", False)
    if both and "models" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("needs_process") is not None
        metafunc.parametrize(
            "models", ["process"] if alone else ["process", "none"], indirect=True, scope="module"
        )


@pytest.fixture(scope="session")
def server_of_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """The server of all modules that need no flags."""
    with serve_models(tmp_path_factory.mktemp("models")) as models:
        yield models


@pytest.fixture(scope="module")
def models(server_of_models: Models, request: pytest.FixtureRequest) -> Iterator[Models]:
    """A server whose models each test writes for itself."""
    server_of_models.in_server = getattr(request, "param", "process") == "none"
    yield server_of_models
    server_of_models.unload_all()


@pytest.fixture(scope="session")
def server_with_rate_limiter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """The server of all modules that need a rate limiter."""
    with serve_models(tmp_path_factory.mktemp("models"), RATE_LIMITER) as models:
        yield models


@pytest.fixture(scope="module")
def limited_models(server_with_rate_limiter: Models) -> Iterator[Models]:
    """A server with a rate limiter, whose models each test writes for itself."""
    yield server_with_rate_limiter
    server_with_rate_limiter.unload_all()
