"""What was fetched earlier: whether it is still as it came, and will do while the bucket is away."""

import os
from pathlib import Path

import pytest

from halimede.core.errors import OutOfMemoryError
from halimede.repository.cloud.failures import AwayError
from tests.repository.cloud.mirrors import IDENTITY, fetch, files, mirror, nothing
from tests.support.buckets import Bucket, Proxy, unchanged

CONTENT = {"config.pbtxt": IDENTITY.encode(), "1/a": b"first", "1/b": b"second"}


@pytest.fixture
def url(bucket: Bucket, front: Proxy) -> str:
    """A repository behind the proxy."""
    bucket.put_all({f"m/{path}": content for path, content in CONTENT.items()})
    return bucket.url(endpoint=front.url)


def test_a_file_that_was_changed_by_hand_is_fetched_again(url: str, front: Proxy, tmp_path: Path) -> None:
    with mirror(url, tmp_path) as found:
        directory = fetch(found, "m")
        status = (directory / "1" / "a").stat()
        (directory / "1" / "a").write_bytes(b"FIRST")
        os.utime(directory / "1" / "a", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        front.requests.clear()
        assert files(fetch(found, "m")) == CONTENT
        assert [each.path.rpartition("/")[2] for each in front.gets()] == ["a"]


def test_a_file_that_was_changed_by_hand_will_not_do_while_the_bucket_is_away(
    url: str, front: Proxy, tmp_path: Path
) -> None:
    with mirror(url, tmp_path) as found:
        directory = fetch(found, "m")
        assert found.has_fetched("m")
        (directory / "1" / "a").write_bytes(b"longer than it was")
        assert not found.has_fetched("m")
        front.fault = lambda _request, _answer: None
        with pytest.raises(AwayError):
            found.update("m", fetched_suffices=True)
        with pytest.raises(AwayError):
            found.fetch("m", "", None, nothing, fetched_suffices=True)


@pytest.mark.parametrize(
    "note", [b"", b"{", b"[]", b"3", b'{"1/a": 3}', b'{"1/a": [5]}', b'{"1/a": [5, "x"]}']
)
def test_a_note_that_was_damaged_counts_for_nothing(note: bytes, url: str, tmp_path: Path) -> None:
    with mirror(url, tmp_path) as found:
        directory = fetch(found, "m")
        (directory / ".halimede-fetched.json").write_bytes(note)
        assert not found.has_fetched("m")
        assert not found.has_any_fetched()
        assert files(fetch(found, "m")) == CONTENT
        assert found.has_any_fetched()


def test_files_of_two_fetches_are_never_loaded_together(
    url: str, bucket: Bucket, front: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mirror(url, tmp_path) as found:
        fetch(found, "m")
        bucket.put_all({"m/1/a": b"new first", "m/1/b": b"new second"})
        replace, replaced = Path.replace, []

        def break_off(source: Path, target: Path) -> Path:
            if target.name in "ab":
                replaced.append(target.name)
                if len(replaced) == 2:
                    raise OSError(5, "Input/output error")
            return replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", break_off)
            with pytest.raises(OutOfMemoryError, match="Input/output error"):
                fetch(found, "m")
    with mirror(url, tmp_path) as found:
        assert not found.has_fetched("m")
        front.fault = lambda _request, _answer: None
        with pytest.raises(AwayError):
            found.fetch("m", "", None, nothing, fetched_suffices=True)
        front.fault = unchanged
        assert files(fetch(found, "m")) == {**CONTENT, "1/a": b"new first", "1/b": b"new second"}


def test_while_the_bucket_is_away_it_is_not_asked_for_what_was_fetched(
    url: str, bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    with mirror(url, tmp_path) as found:
        fetch(found, "m")
        bucket.put("repository/m/1/a", "new first")
        found.update("m")
        front.fault = lambda _request, _answer: None
        with pytest.raises(AwayError):
            found.update_names()
        front.requests.clear()
        found.update("m", fetched_suffices=True)
        assert not found.fetch("m", "", None, nothing, fetched_suffices=True)
        assert front.requests == []
        assert files(found.directory / "m") == CONTENT
        front.fault = unchanged
        found.update_names()
        assert found.fetch("m", "", None, nothing, fetched_suffices=True)
        assert files(found.directory / "m")["1/a"] == b"new first"
