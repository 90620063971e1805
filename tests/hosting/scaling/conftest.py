from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosting.scaling.serving import Scaled, scaled


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Scaled]:
    """A host that only scales."""
    with scaled(tmp_path) as made:
        yield made
