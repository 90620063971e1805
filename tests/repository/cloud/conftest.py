import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.buckets import CREDENTIALS, Bucket, Proxy, moto_server, proxy
from tests.support.memory import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The URL of an S3 server."""
    with moto_server() as url:
        yield url


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that test servers take, and a cache of the test's own."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def bucket(moto: str) -> Bucket:
    """A bucket of the test's own."""
    return Bucket(moto, f"models-{secrets.token_hex(8)}")


@pytest.fixture
def front(moto: str) -> Iterator[Proxy]:
    """A proxy in front of the S3 server."""
    with proxy(moto) as found:
        yield found
