from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosting.scaling.serving import Scaled, scaled
from tests.support.memory import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Scaled]:
    """A host that only scales."""
    with scaled(tmp_path) as made:
        yield made
