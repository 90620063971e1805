from pathlib import Path

import pytest

from tests.cli.echo import write_model


@pytest.fixture(scope="session")
def echo_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the model `echo`, for vectors of any size."""
    directory = tmp_path_factory.mktemp("models")
    write_model(directory, size=-1)
    return directory
