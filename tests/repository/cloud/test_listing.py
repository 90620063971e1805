import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.repository.cloud.failures import BucketError
from halimede.repository.cloud.listing import RECORDS, BucketObject, Listing, group_by_model
from halimede.repository.cloud.locations import parse_location
from halimede.repository.fingerprint import fingerprint

LOCATION = parse_location("s3://bucket/repository")


def listed(**objects: int) -> list[dict[str, object]]:
    """Objects as obstore lists them: path → size."""
    return [
        {"path": f"repository/{path}", "size": size, "e_tag": f'"{path}"'} for path, size in objects.items()
    ]


def one(**objects: int) -> Listing:
    """What a bucket has of the model `m`."""
    return group_by_model(LOCATION, listed(**{f"m/{path}": size for path, size in objects.items()}))["m"]


def test_objects_are_grouped_by_model_and_those_beside_models_are_left_out() -> None:
    found = listed(**{"b/1/model.onnx": 3, "a/config.pbtxt": 2, "README.md": 9, "b/2/model.onnx": 4})
    assert group_by_model(LOCATION, found) == {
        "a": Listing({"config.pbtxt": BucketObject(2, "a/config.pbtxt")}),
        "b": Listing(
            {
                "1/model.onnx": BucketObject(3, "b/1/model.onnx"),
                "2/model.onnx": BucketObject(4, "b/2/model.onnx"),
            }
        ),
    }


def test_a_whole_bucket_can_be_a_repository() -> None:
    found = [{"path": "m/config.pbtxt", "size": 1, "e_tag": None}]
    assert group_by_model(parse_location("s3://bucket"), found).keys() == {"m"}


def test_empty_objects_that_stand_for_directories_are_directories() -> None:
    listing = one(**{"1": 0, "2": 0, "2/model.py": 5, "warmup": 0, "warmup/x": 1, "config.pbtxt": 0})
    assert set(listing.objects) == {"2/model.py", "warmup/x", "config.pbtxt"}
    assert listing.versions == {1, 2}


def test_the_order_of_a_listing_changes_nothing() -> None:
    found = listed(**{f"m/{n}/file{m}": n for n in range(1, 9) for m in range(9)})
    shuffled = random.Random(0).sample(found, len(found))
    listing = group_by_model(LOCATION, shuffled)["m"]
    assert listing == group_by_model(LOCATION, found)["m"]
    assert list(listing.objects) == sorted(listing.objects)


@pytest.mark.parametrize(
    ("objects", "key"),
    [
        ({"1": 5, "1/model.onnx": 3}, "repository/m/1"),
        ({"1/../../etc": 3}, "repository/m/1/../../etc"),
        ({"1//model.onnx": 3}, "repository/m/1//model.onnx"),
        ({f"1/{'x' * 256}": 3}, f"repository/m/1/{'x' * 256}"),
        ({"1/nul\0": 3}, "repository/m/1/nul\0"),
    ],
)
def test_keys_that_cannot_be_files_are_refused_by_name(objects: dict[str, int], key: str) -> None:
    with pytest.raises(BucketError) as caught:
        one(**objects)
    assert f"'{key}'" in str(caught.value)
    assert "rename" in str(caught.value)


def test_objects_that_are_called_like_the_mirror_s_own_notes_are_left_out() -> None:
    assert set(one(**{RECORDS[0]: 5, RECORDS[1]: 5, "config.pbtxt": 1}).objects) == {"config.pbtxt"}


def test_a_listing_is_read_as_it_was_written(tmp_path: Path) -> None:
    listing = one(**{"1": 0, "2/model.py": 5, "ü": 1})
    listing.write(tmp_path)
    assert Listing.read(tmp_path) == listing


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"objects": [1], "directories": []}', '{"objects": {"a": 1}}']
)
def test_a_note_that_makes_no_sense_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / RECORDS[0]).write_text(text)
    assert Listing.read(tmp_path) is None


def test_the_fingerprint_is_that_of_the_bucket_not_of_what_was_fetched(tmp_path: Path) -> None:
    objects = {"config.pbtxt": 1, "labels.txt": 1, "1/model.py": 5, "2/model.py": 5}
    one(**objects).write(tmp_path)
    before = fingerprint(tmp_path)
    (tmp_path / "config.pbtxt").write_text("fetched")
    (tmp_path / "1").mkdir()
    assert fingerprint(tmp_path) == before
    one(**{**objects, "2/model.py": 6}).write(tmp_path)
    after = fingerprint(tmp_path)
    assert (after.config, after.shared, after.versions[1]) == (
        before.config,
        before.shared,
        before.versions[1],
    )
    assert after.versions[2] != before.versions[2]
    one(**{**objects, "config.pbtxt": 2}).write(tmp_path)
    changed = fingerprint(tmp_path)
    assert changed.config != before.config
    assert (changed.shared, changed.versions) == (before.shared, before.versions)


@given(st.dictionaries(st.text(), st.integers(0, 9), max_size=8))
def test_any_keys_are_files_that_stay_inside_the_model_or_refused(objects: dict[str, int]) -> None:
    found = [{"path": f"repository/m/{path}", "size": size, "e_tag": "x"} for path, size in objects.items()]
    try:
        models = group_by_model(LOCATION, found)
    except BucketError:
        return
    for listing in models.values():
        assert all(not {"", ".", ".."} & set(path.split("/")) for path in listing.objects)
        assert not {parent for path in listing.objects for parent in Path(path).parents} & {
            Path(path) for path in listing.objects
        }
        json.dumps(sorted(listing.versions))
