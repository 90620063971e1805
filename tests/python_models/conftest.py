"""One server for the tests of a module, or two: see `IN_SERVER_TOO`."""

from collections.abc import Iterator

import pytest

from tests.python_models.support import Models, serve_models


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let modules with `IN_SERVER_TOO` test models in processes and in the server; but for marked tests."""
    both = getattr(metafunc.module, "IN_SERVER_TOO", False)
    if both and "models" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("needs_process") is not None
        metafunc.parametrize(
            "models", ["process"] if alone else ["process", "none"], indirect=True, scope="module"
        )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Models]:
    """A server whose models each test writes for itself."""
    with serve_models(tmp_path_factory.mktemp("models")) as models:
        models.in_server = getattr(request, "param", "process") == "none"
        yield models
