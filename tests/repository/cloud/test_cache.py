"""The cache is bounded: what is not loaded goes, in the order in which it was last used."""

import os
from pathlib import Path

import pytest

from halimede.core.errors import InvalidArgumentError, OutOfMemoryError
from halimede.repository.cloud.cache import Cache
from halimede.repository.layout import find_models
from tests.repository.cloud.mirrors import IDENTITY, fetch, files, mirror
from tests.support.buckets import Bucket

MB = 1 << 20


@pytest.fixture
def models(bucket: Bucket) -> Bucket:
    """A bucket with the models a, b and c of 1 MiB each."""
    for name in "abc":
        bucket.put_all({f"{name}/config.pbtxt": IDENTITY, f"{name}/1/weights": os.urandom(MB)})
    return bucket


def fetched(directory: Path) -> set[str]:
    """The models whose files are on disk."""
    return {each.name for each in directory.iterdir() if files(each)}


def test_the_model_that_was_used_longest_ago_makes_room(models: Bucket, tmp_path: Path) -> None:
    with mirror(models.url(), tmp_path, limit=int(2.5 * MB)) as found:
        for age, name in enumerate("abc"):
            directory = fetch(found, name)
            os.utime(directory / ".halimede-fetched.json", (age, age))
        assert fetched(found.directory) == {"b", "c"}
        assert find_models([found.directory]).keys() == {"a", "b", "c"}
        fetch(found, "b")
        fetch(found, "a")
        assert fetched(found.directory) == {"a", "b"}


def test_models_in_use_stay_and_the_error_says_what_to_do(models: Bucket, tmp_path: Path) -> None:
    with mirror(models.url(), tmp_path, limit=int(2.5 * MB)) as found:
        fetch(found, "a")
        fetch(found, "b")
        with pytest.raises(OutOfMemoryError) as caught:
            fetch(found, "c", in_use=lambda directory: directory.name in "ab")
        assert f"models of buckets may take {int(2.5 * MB):,} in {tmp_path}" in str(caught.value)
        assert str(caught.value).endswith("Raise --cloud-cache-size, or unload some")
        assert fetched(found.directory) == {"a", "b"}
        fetch(found, "c", in_use=lambda directory: directory.name == "a")
        assert fetched(found.directory) == {"a", "c"}


def test_a_model_that_is_larger_than_the_cache_evicts_nothing(models: Bucket, tmp_path: Path) -> None:
    models.put("repository/c/1/more", os.urandom(2 * MB))
    with mirror(models.url(), tmp_path, limit=int(2.5 * MB)) as found:
        fetch(found, "a")
        with pytest.raises(OutOfMemoryError, match=r"'c' needs 3,145,728 bytes of disk"):
            fetch(found, "c")
        assert fetched(found.directory) == {"a"}


def test_what_another_server_has_left_makes_room_but_not_what_it_uses(models: Bucket, tmp_path: Path) -> None:
    url, limit = models.url(), int(2.5 * MB)
    with mirror(url, tmp_path, limit) as one, mirror(url, tmp_path, limit) as other:
        fetch(one, "a")
        fetch(one, "b")
        os.utime(one.directory / "a" / ".halimede-fetched.json", (0, 0))
        with pytest.raises(OutOfMemoryError):
            fetch(other, "c")
        assert fetched(one.directory) == {"a", "b"}
    models.put_all({"d/config.pbtxt": IDENTITY, "d/1/weights": os.urandom(MB)}, path="another")
    with mirror(models.url("another"), tmp_path, limit) as last:
        fetch(last, "d")
        assert fetched(one.directory) == {"b"}


def test_a_restart_counts_what_is_there(models: Bucket, tmp_path: Path) -> None:
    with mirror(models.url(), tmp_path) as found:
        fetch(found, "a")
        fetch(found, "b")
    with mirror(models.url(), tmp_path, limit=int(2.5 * MB)) as found:
        fetch(found, "c")
        assert len(fetched(found.directory)) == 2


def test_a_fetch_that_nobody_went_on_with_makes_room_first(models: Bucket, tmp_path: Path) -> None:
    with mirror(models.url(), tmp_path, limit=int(2.5 * MB)) as found:
        fetch(found, "a")
        partial = found.directory.parent / "partial" / "gone"
        partial.mkdir()
        (partial / "0123").write_bytes(os.urandom(MB))
        os.utime(partial, (0, 0))
    with mirror(models.url(), tmp_path, limit=int(2.5 * MB)) as found:
        fetch(found, "b")
        assert fetched(found.directory) == {"a", "b"}
        assert not list(partial.glob("*"))


def test_what_a_fetch_under_way_has_put_aside_stays(models: Bucket, tmp_path: Path) -> None:
    with mirror(models.url(), tmp_path) as found:
        fetch(found, "a")
        partial = found.directory.parent / "partial" / "b"
        partial.mkdir()
        (partial / "0123").write_bytes(os.urandom(MB))
        os.utime(partial, (0, 0))
    with mirror(models.url(), tmp_path, limit=int(2.5 * MB)) as found:
        with found._cache.model_lock(found.directory / "b"):  # noqa: SLF001 - the lock of another fetch
            fetch(found, "c")
        assert (partial / "0123").exists()
        assert fetched(found.directory) == {"c"}


def test_a_directory_that_cannot_be_made_is_told_with_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InvalidArgumentError, match=r"cannot be kept in .*/file/cache .* --cloud-cache-directory"
    ):
        Cache(tmp_path / "file" / "cache", 1.0)


def test_a_cache_that_cannot_be_written_is_told_with_what_to_do(models: Bucket, tmp_path: Path) -> None:
    with mirror(models.url(), tmp_path) as found:
        found.directory.rmdir()
        found.directory.write_text("no directory")
        for act in (found.update_names, found.update_all, lambda: found.update("a"), found.check):
            with pytest.raises(
                OutOfMemoryError, match=r"models cannot be kept in .*: Not a directory; free some of"
            ):
                act()
        assert found.away is None
