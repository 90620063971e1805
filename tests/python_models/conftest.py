"""One server for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.python_models.support import Models, serve_models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """A server whose models each test writes for itself."""
    with serve_models(tmp_path_factory.mktemp("models")) as models:
        yield models
