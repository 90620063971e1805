"""Repositories in Google's storage, as an emulator has it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.repository.cloud.failures import BucketError, ReplacedError
from halimede.repository.cloud.locations import parse_location
from halimede.repository.cloud.stores import open_store
from halimede.repository.layout import find_models
from tests.repository.cloud.mirrors import ALL, IDENTITY, fetch, files, mirror
from tests.support.gcs import BUCKET, Storage, gcs_emulator

CONTENT = bytes(range(256)) * 100
URL = f"gs://{BUCKET}/repository"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """Storage with two models, to which the environment leads."""
    with gcs_emulator() as found:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", found.url.removeprefix("http://"))
        found.put("repository/a/config.pbtxt", IDENTITY + ALL)
        found.put("repository/a/1/model", CONTENT)
        found.put("repository/a/2/model", "2")
        found.put("repository/b/1/model", "b")
        yield found


def test_models_are_found_fetched_and_followed(storage: Storage, tmp_path: Path) -> None:
    with mirror(URL, tmp_path) as found:
        found.check()
        assert find_models([found.directory]).keys() == {"a", "b"}
        expected = {"config.pbtxt": (IDENTITY + ALL).encode(), "1/model": CONTENT, "2/model": b"2"}
        assert files(fetch(found, "a")) == expected
        storage.requests.clear()
        storage.put("repository/a/2/model", "new")
        assert files(fetch(found, "a")) == {**expected, "2/model": b"new"}
        assert storage.requests == ["repository/a/2/model"]
        storage.delete("repository/b/1/model")
        found.update_all()
        assert find_models([found.directory]).keys() == {"a"}


def test_an_object_that_is_replaced_after_it_was_listed_is_told(storage: Storage, tmp_path: Path) -> None:
    with mirror(URL, tmp_path) as found:
        found.update("a")
        storage.put("repository/a/2/model", "other")
        with pytest.raises(ReplacedError, match="key 'repository/a/2/model'"):
            found.fetch("a", "", None, lambda _: False)


def test_a_bucket_that_does_not_exist_is_told(storage: Storage, tmp_path: Path) -> None:
    complaint = r"there is no such bucket .*NoSuchBucket"
    with mirror("gs://nowhere", tmp_path) as found, pytest.raises(BucketError, match=complaint):
        found.check()
    assert storage.requests == []


@pytest.mark.parametrize("named_by", ["GOOGLE_APPLICATION_CREDENTIALS", "TRITON_CLOUD_CREDENTIAL_PATH"])
def test_a_service_account_that_cannot_be_read_is_named(
    named_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, credentials = tmp_path / "account.json", tmp_path / "credentials.json"
    credentials.write_text(f'{{"gs": {{"": "/nowhere/else.json", "{URL}": "{account}"}}}}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/default.json")
    monkeypatch.setenv(named_by, str(account if named_by.startswith("GOOGLE") else credentials))
    complaint = f"{URL}: the credentials cannot be used: .*{account}"
    with pytest.raises(InvalidArgumentError, match=complaint):
        open_store(parse_location(URL))
