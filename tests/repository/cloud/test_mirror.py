from pathlib import Path

import pytest

from halimede.config.override import ConfigOverride
from halimede.core.errors import InvalidArgumentError
from halimede.core.steps import watched_by
from halimede.repository.cloud.failures import BucketError
from halimede.repository.cloud.locations import parse_location
from halimede.repository.layout import find_models
from halimede.repository.resolve import resolve
from halimede.repository.snapshots import sight_models
from tests.repository.cloud.mirrors import ALL, IDENTITY, fetch, files, mirror
from tests.support.buckets import Bucket, Proxy
from tests.support.steps import SeenSteps


def test_models_are_known_by_name_before_anything_of_them_is_fetched(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    bucket.put_all({"a/config.pbtxt": IDENTITY, "b/1/model.onnx": b"x", "README.md": "no model"})
    with mirror(bucket.url(endpoint=front.url), tmp_path) as found:
        found.check()
        assert find_models([found.directory]).keys() == {"a", "b"}
        assert all(each.lists for each in front.requests)
        bucket.delete("repository/b/1/model.onnx")
        found.update_names()
        assert find_models([found.directory]).keys() == {"a"}


def test_only_the_versions_that_the_policy_selects_are_fetched(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/labels.txt": "a\n", "m/warmup/x": b"w"})
    bucket.put_all({f"m/{number}/file": f"{number}" for number in (1, 2, 10)})
    with mirror(bucket.url(endpoint=front.url), tmp_path) as found:
        directory = fetch(found, "m")
        assert files(directory) == {
            "config.pbtxt": IDENTITY.encode(), "labels.txt": b"a\n", "warmup/x": b"w", "10/file": b"10",
        }  # fmt: skip
        assert resolve("m", directory).versions == (10,)
        keys = [each.path.partition("/m/")[2] for each in front.gets()]
        assert keys[0] == "config.pbtxt"
        assert sorted(keys) == ["10/file", "config.pbtxt", "labels.txt", "warmup/x"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (ALL, (1, 2, 3)),
        ("version_policy: { latest { num_versions: 2 } }", (2, 3)),
        ("version_policy: { specific { versions: [1, 3, 7] } }", (1, 3)),
    ],
)
def test_each_version_policy_selects_as_for_a_directory(
    policy: str, expected: tuple[int, ...], bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put_all(
        {"m/config.pbtxt": IDENTITY + policy, **{f"m/{number}/file": b"x" for number in (1, 2, 3)}}
    )
    with mirror(bucket.url(), tmp_path) as found:
        directory = fetch(found, "m")
        assert {each.name for each in directory.iterdir() if each.is_dir()} == {
            str(each) for each in expected
        }
        assert resolve("m", directory).versions == expected


def test_the_configuration_that_is_asked_for_selects_the_versions(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all(
        {"m/config.pbtxt": IDENTITY, "m/configs/all.pbtxt": IDENTITY + ALL, "m/1/x": b"1", "m/2/x": b"2"}
    )
    with mirror(bucket.url(), tmp_path) as found:
        assert resolve("m", fetch(found, "m", "all"), config_name="all").versions == (1, 2)
        assert resolve("m", fetch(found, "m", "other"), config_name="other").versions == (2,)
        override = ConfigOverride(
            '{"backend": "identity", "version_policy": {"specific": {"versions": [1]}}}'
        )
        assert resolve("m", fetch(found, "m", override=override), config_override=override).versions == (1,)


def test_a_configuration_that_cannot_be_read_is_told_by_whoever_loads_it(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put_all({"m/config.pbtxt": "nonsense {", "m/1/x": b"1"})
    with (
        mirror(bucket.url(), tmp_path) as found,
        pytest.raises(InvalidArgumentError, match="failed to read text proto"),
    ):
        resolve("m", fetch(found, "m"))


def test_a_version_that_is_only_a_marker_is_an_empty_directory(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/": b""})
    with mirror(bucket.url(), tmp_path) as found:
        assert resolve("m", fetch(found, "m")).versions == (1,)


def test_a_restart_fetches_nothing_that_has_not_changed(bucket: Bucket, front: Proxy, tmp_path: Path) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/a": b"a", "m/1/b": b"b", "m/1/empty": b""})
    url = bucket.url(endpoint=front.url)
    with mirror(url, tmp_path) as found:
        before = files(fetch(found, "m"))
        assert set(before) == {"config.pbtxt", "1/a", "1/b", "1/empty"}
    front.requests.clear()
    with mirror(url, tmp_path) as found:
        assert files(fetch(found, "m")) == before
        assert front.gets("/a") == front.gets("/b") == front.gets("/config.pbtxt") == []
        bucket.put("repository/m/1/b", "new")
        bucket.delete("repository/m/1/a")
        assert files(fetch(found, "m")) == {"config.pbtxt": IDENTITY.encode(), "1/b": b"new", "1/empty": b""}
        assert [each.path.rpartition("/")[2] for each in front.gets() if each.headers.get("range")] == ["b"]


def test_files_that_were_damaged_on_disk_are_fetched_again(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/a": b"whole"})
    with mirror(bucket.url(), tmp_path) as found:
        directory = fetch(found, "m")
        (directory / "1" / "a").write_bytes(b"cut")
        (directory / "config.pbtxt").unlink()
        assert files(fetch(found, "m")) == {"config.pbtxt": IDENTITY.encode(), "1/a": b"whole"}


def test_a_file_may_become_a_directory_and_a_directory_a_file(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/a": b"file", "m/1/b/c": b"below"})
    with mirror(bucket.url(), tmp_path) as found:
        fetch(found, "m")
        bucket.delete("repository/m/1/a")
        bucket.delete("repository/m/1/b/c")
        bucket.put_all({"m/1/a/deep/x": b"below", "m/1/b": b"file"})
        assert files(fetch(found, "m")) == {
            "config.pbtxt": IDENTITY.encode(), "1/a/deep/x": b"below", "1/b": b"file",
        }  # fmt: skip


def test_odd_keys_are_files_of_the_same_names(bucket: Bucket, tmp_path: Path) -> None:
    names = ["a b", "ü%20", "c+d=e&f?g#h", "…", "x" * 255]
    bucket.put_all({"m/config.pbtxt": IDENTITY, **{f"m/1/{name}": name for name in names}})
    with mirror(bucket.url(), tmp_path) as found:
        directory = fetch(found, "m")
        assert {name: (directory / "1" / name).read_text() for name in names} == {
            name: name for name in names
        }


def test_a_look_at_all_models_sees_changes_without_fetching_anything(
    bucket: Bucket, front: Proxy, tmp_path: Path
) -> None:
    bucket.put_all({"a/config.pbtxt": IDENTITY, "a/1/x": b"1", "b/config.pbtxt": IDENTITY})
    with mirror(bucket.url(endpoint=front.url), tmp_path) as found:
        found.update_all()
        before = sight_models([found.directory])
        assert before.keys() == {"a", "b"}
        found.update_all()
        assert sight_models([found.directory]) == before
        bucket.put("repository/a/1/x", "2")
        bucket.delete("repository/b/config.pbtxt")
        found.update_all()
        after = sight_models([found.directory])
        assert after.keys() == {"a"}
        assert after["a"] != before["a"]
        assert all(each.lists for each in front.requests)


def test_a_model_that_is_gone_from_the_bucket_is_gone(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/x": b"1", "m2/config.pbtxt": IDENTITY})
    with mirror(bucket.url(), tmp_path) as found:
        directory = fetch(found, "m")
        for key in ("config.pbtxt", "1/x"):
            bucket.delete(f"repository/m/{key}")
        assert not fetch(found, "m").exists()
        assert not directory.exists()


def test_a_url_that_names_a_model_is_refused_with_the_repository_around_it(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/x": b"1"})
    with mirror(bucket.url("repository/m"), tmp_path) as found, pytest.raises(InvalidArgumentError) as caught:
        found.check()
    assert str(caught.value) == (
        f"'{bucket.url('repository/m')}' is a model, not a directory of models; name what is around it, "
        f"'{bucket.url()}'"
    )


def test_a_bucket_that_is_a_model_itself_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("config.pbtxt", IDENTITY)
    with (
        mirror(bucket.url(""), tmp_path) as found,
        pytest.raises(InvalidArgumentError, match="is a model, not a dir"),
    ):
        found.check()


def test_a_configuration_that_is_gone_selects_nothing_any_more(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY + ALL, "m/1/x": b"1", "m/2/x": b"2"})
    with mirror(bucket.url(), tmp_path) as found:
        assert set(files(fetch(found, "m"))) == {"config.pbtxt", "1/x", "2/x"}
        bucket.delete("repository/m/config.pbtxt")
        assert set(files(fetch(found, "m"))) == {"2/x"}


def test_two_servers_of_one_repository_each_have_a_mirror(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/x": b"1"})
    with mirror(bucket.url(), tmp_path) as one, mirror(bucket.url(), tmp_path) as other:
        assert one.directory != other.directory
        assert files(fetch(one, "m")) == files(fetch(other, "m"))
        used = one.directory
    with mirror(bucket.url(), tmp_path) as again:
        assert again.directory == used


def test_a_bucket_that_does_not_exist_is_named_with_what_to_check(moto: str, tmp_path: Path) -> None:
    with mirror(f"s3://{moto}/nowhere/repository", tmp_path) as found, pytest.raises(BucketError) as caught:
        found.check()
    text = str(caught.value)
    assert text.startswith(
        f"cannot list s3://{moto}/nowhere/repository (bucket 'nowhere', key 'repository'): "
    )
    assert (
        "there is no such bucket (404 Not Found: NoSuchBucket: The specified bucket does not exist)" in text
    )
    assert text.endswith("Check the URL and the endpoint")


def test_the_key_of_what_lies_in_a_whole_bucket_has_no_slash_before_it() -> None:
    assert parse_location("s3://bucket").key("m", "1/x") == "m/1/x"


@pytest.mark.parametrize("key", ["n" * 256 + "/1/model", "../1/model"])
def test_a_name_that_cannot_be_a_directory_is_told_with_what_to_do(
    key: str, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put_all({key: "x"})
    with (
        mirror(bucket.url(), tmp_path) as found,
        pytest.raises(BucketError, match="rename the object") as caught,
    ):
        found.update_names()
    assert f"repository/{key.removesuffix('/1/model')}" in str(caught.value)


@pytest.mark.parametrize("key", ["a//1/model", "a/../b/1/model", "a/./model"])
def test_a_key_that_cannot_be_a_file_is_told_with_what_to_do(
    key: str, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put_all({key: "x"})
    with (
        mirror(bucket.url(), tmp_path) as found,
        pytest.raises(BucketError, match="rename the object") as caught,
    ):
        found.update_all()
    assert f"repository/{key}" in str(caught.value)


def test_how_far_a_fetch_is_can_be_watched(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_all({"m/config.pbtxt": IDENTITY, "m/1/file": b"x" * 5_000, "m/labels.txt": b"a\n"})
    seen = SeenSteps()
    with watched_by(seen), mirror(bucket.url(), tmp_path) as found:
        found.check()
        fetch(found, "m")
    assert seen.ended_steps == [(f"Listing {bucket.url()}", 0, None), ("Fetching 'm'", 5_002, 5_002)]
