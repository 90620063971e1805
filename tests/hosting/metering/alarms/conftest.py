"""A host whose clock stands still."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosting.metering.serving import Metered, metered


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Metered]:
    with metered(tmp_path) as running:
        yield running


@pytest.fixture
def client(host: Metered) -> Any:
    return host.client("cloudwatch")
