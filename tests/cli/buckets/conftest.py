from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.buckets.servers import IDENTITY, new_bucket
from tests.support.buckets import Bucket, Proxy, proxy
from tests.support.host import start_host


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a host, which has an object store."""
    with start_host(tmp_path_factory.mktemp("host") / "host") as host:
        yield host.url


@pytest.fixture
def bucket(store: str) -> Bucket:
    """A bucket with the models a and b."""
    return new_bucket(store)


@pytest.fixture
def front(store: str) -> Iterator[Proxy]:
    with proxy(store) as found:
        yield found


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A directory with the model local."""
    version = tmp_path / "local-models" / "local" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(IDENTITY)
    return version.parent.parent
