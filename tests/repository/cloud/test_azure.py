"""Repositories in Azure's storage, as Azurite emulates it."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import AzureStore

from halimede.core.errors import InvalidArgumentError
from halimede.repository.cloud.failures import BucketError, ReplacedError
from halimede.repository.cloud.locations import parse_location
from halimede.repository.cloud.stores import open_store
from halimede.repository.layout import find_models
from tests.repository.cloud.mirrors import ALL, IDENTITY, fetch, files, mirror
from tests.support.azurite import ACCOUNT, KEY, azurite, make_container, put_all

CONTENT = bytes(range(256)) * 100


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with azurite() as url:
        yield url


@pytest.fixture
def container(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> tuple[AzureStore, str]:
    """A container with two models, and its URL; the environment has its key."""
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    name = f"models{secrets.token_hex(8)}"
    store = make_container(endpoint, name)
    put_all(
        store, {"a/config.pbtxt": IDENTITY + ALL, "a/1/model": CONTENT, "a/2/model": "2", "b/1/model": "b"}
    )
    return store, f"as://{endpoint}/{ACCOUNT}/{name}/repository"


def test_models_are_found_fetched_and_followed(container: tuple[AzureStore, str], tmp_path: Path) -> None:
    store, url = container
    with mirror(url, tmp_path) as found:
        found.check()
        assert find_models([found.directory]).keys() == {"a", "b"}
        expected = {"config.pbtxt": (IDENTITY + ALL).encode(), "1/model": CONTENT, "2/model": b"2"}
        assert files(fetch(found, "a")) == expected
        put_all(store, {"a/2/model": "new"})
        assert files(fetch(found, "a")) == {**expected, "2/model": b"new"}
        obstore.delete(store, "repository/b/1/model")
        found.update_all()
        assert find_models([found.directory]).keys() == {"a"}


def test_an_object_that_is_replaced_after_it_was_listed_is_told(
    container: tuple[AzureStore, str], tmp_path: Path
) -> None:
    store, url = container
    with mirror(url, tmp_path) as found:
        found.update("a")
        put_all(store, {"a/2/model": "other"})
        with pytest.raises(ReplacedError, match="key 'repository/a/2/model'"):
            found.fetch("a", "", None, lambda _: False)


def test_the_key_may_come_from_the_credential_file(
    container: tuple[AzureStore, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = container
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    file = tmp_path / "credentials.json"
    file.write_text(f'{{"as": {{"": {{"account_str": "{ACCOUNT}", "account_key": "{KEY}"}}}}}}')
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", str(file))
    with mirror(url, tmp_path / "cache") as found:
        assert set(files(fetch(found, "b"))) == {"1/model"}


def test_a_wrong_key_is_refused_with_what_to_check(
    container: tuple[AzureStore, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = container
    monkeypatch.setenv("AZURE_STORAGE_KEY", "d3Jvbmc=")
    with mirror(url, tmp_path) as found, pytest.raises(BucketError) as caught:
        found.check()
    assert "Azure Blob Storage refuses it (403 " in str(caught.value)
    assert "Check the credentials (AZURE_STORAGE_KEY, or AZURE_STORAGE_AUTH_TYPE, or the file" in str(
        caught.value
    )


def test_a_container_that_does_not_exist_is_told(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    complaint = r"there is no such bucket .*ContainerNotFound"
    with (
        mirror(f"as://{endpoint}/{ACCOUNT}/nowhere", tmp_path) as found,
        pytest.raises(BucketError, match=complaint),
    ):
        found.check()


def test_an_unknown_way_to_log_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_AUTH_TYPE", "guess")
    with pytest.raises(InvalidArgumentError, match="must be managed_identity or default, got 'guess'"):
        open_store(parse_location("as://account/container"))
