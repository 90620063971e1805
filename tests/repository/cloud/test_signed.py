"""Credentials of each source, held against a server that verifies signatures."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from halimede.repository.cloud.failures import BucketError
from tests.repository.cloud.mirrors import IDENTITY, fetch, files, mirror
from tests.support.buckets import Bucket
from tests.support.host import start_host

KEY, SECRET = "AKIDTEAM", "of-the-team"
KEYS = f'[keys.{KEY}]\nsecret = "{SECRET}"\naccount = "123456789012"\n'


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """A bucket that only one key may read."""
    place = tmp_path_factory.mktemp("host")
    (place / "keys.toml").write_text(KEYS)
    with start_host(place / "host", f"--keys={place / 'keys.toml'}") as host:
        bucket = Bucket(host.url, "models", KEY, SECRET)
        bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/ü + %20": "x"})
        yield bucket


def test_the_environment_has_the_key(signed: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with mirror(signed.url(), tmp_path) as found:
        assert set(files(fetch(found, "m"))) == {"config.pbtxt", "1/ü + %20"}


def test_a_profile_has_the_key(signed: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    profiles = tmp_path / "credentials"
    profiles.write_text(f"[team]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setenv("AWS_PROFILE", "team")
    with mirror(signed.url(), tmp_path / "cache") as found:
        assert set(files(fetch(found, "m"))) == {"config.pbtxt", "1/ü + %20"}


@pytest.mark.parametrize(
    "entry", [{"key_id": KEY, "secret_key": SECRET, "region": "eu-west-1"}, {"profile": "team"}]
)
def test_the_credential_file_has_the_key_whatever_the_environment_says(
    entry: dict[str, str], signed: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    profiles = tmp_path / "credentials"
    profiles.write_text(f"[team]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps({"s3": {"": {"key_id": "nobody", "secret_key": "x"}, signed.url(): entry}}))
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", str(file))
    with mirror(signed.url(), tmp_path / "cache") as found:
        assert set(files(fetch(found, "m"))) == {"config.pbtxt", "1/ü + %20"}


def test_a_wrong_secret_is_refused_and_never_told(
    signed: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guessed-secret")
    with mirror(signed.url(), tmp_path) as found, pytest.raises(BucketError) as caught:
        found.check()
    assert "S3 refuses it (403 Forbidden: SignatureDoesNotMatch: " in str(caught.value)
    assert "guessed-secret" not in str(caught.value)
    assert SECRET not in str(caught.value)
