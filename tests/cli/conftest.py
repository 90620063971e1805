from pathlib import Path

import pytest

from tests.cli.echo import write_model
from tests.support.server import FRONT_ENDS

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """If servers have several front ends, run only the tests for which that makes a difference."""
    if FRONT_ENDS == 1:
        return
    others = [
        item for item in items if _HERE in item.path.parents and not item.get_closest_marker("front_ends")
    ]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def echo_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the model `echo`, for vectors of any size."""
    directory = tmp_path_factory.mktemp("models")
    write_model(directory, size=-1)
    return directory
