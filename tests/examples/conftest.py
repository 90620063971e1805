"""The example repository, built once, and a server of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.build import build
from tests.support.server import ServerProcess, start_server


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `make serve` builds: `models` and the picture."""
    directory = tmp_path_factory.mktemp("examples")
    build(directory)
    return directory


@pytest.fixture(scope="session")
def server(examples: Path) -> Iterator[ServerProcess]:
    """A server of all example models."""
    with start_server(examples / "models") as running:
        yield running


@pytest.fixture
def controlled_server(examples: Path) -> Iterator[ServerProcess]:
    """A server that has loaded nothing yet."""
    with start_server(examples / "models", "--model-control-mode=explicit") as running:
        yield running
