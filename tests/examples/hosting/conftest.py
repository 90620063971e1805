"""What the walk-throughs of the host upload, built once."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def hosting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `make host` builds: archives and the picture."""
    from examples.hosting.build import build

    directory = tmp_path_factory.mktemp("hosting")
    build(directory)
    return directory
