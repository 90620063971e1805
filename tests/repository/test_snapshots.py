from pathlib import Path

from halimede.repository.snapshots import ABSENT, sight_model, sight_models


def test_sightings_are_equal_while_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    seen = sight_models([tmp_path])
    assert list(seen) == ["m"]
    assert seen["m"] == sight_model([tmp_path], "m")
    (tmp_path / "m" / "2").mkdir()
    assert seen["m"] != sight_model([tmp_path], "m")


def test_absent_and_ambiguous_models_have_no_contents(tmp_path: Path) -> None:
    assert sight_model([tmp_path], "m") == ABSENT
    repositories = [tmp_path / "a", tmp_path / "b"]
    for repository in repositories:
        (repository / "m").mkdir(parents=True)
    snapshot = sight_model(repositories, "m")
    assert snapshot.directories == (tmp_path / "a" / "m", tmp_path / "b" / "m")
    assert snapshot.contents is None
