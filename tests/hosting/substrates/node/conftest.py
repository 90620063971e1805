"""Servers of archives, and stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosting.substrates.node.serving import ArchiveServer, archive_server
from tests.hosting.substrates.node.taking import Taking


@pytest.fixture
def server() -> Iterator[ArchiveServer]:
    """A server of archives."""
    with archive_server() as running:
        yield running


@pytest.fixture
def node(tmp_path: Path) -> Taking:
    """A store without a limit."""
    return Taking(tmp_path / "node")
