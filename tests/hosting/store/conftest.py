"""Hosts with an object store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosting.store.serving import StoreHost, store_host
from tests.support.memory import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StoreHost]:
    """A host that verifies no signatures, with an empty store."""
    with store_host(tmp_path / "store") as running:
        yield running


@pytest.fixture
def s3(host: StoreHost) -> Any:
    """A client of it, for which there is a bucket ``models``."""
    client = host.client()
    client.create_bucket(Bucket="models")
    return client
