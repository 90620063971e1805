from pathlib import Path

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.repository.layout import (
    check_repositories,
    find_model,
    find_models,
    inside,
    is_directory_name,
)


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a/", "/etc", ".", "./a", "a\0b"])
def test_name_that_leads_elsewhere_finds_nothing(tmp_path: Path, name: str) -> None:
    for directory in ("x", "repository/a/b", "repository/x"):
        (tmp_path / directory).mkdir(parents=True)
    assert not is_directory_name(name)
    assert find_model([tmp_path / "repository"], name) == ()


@pytest.mark.parametrize(
    "name", ["simple", "model.v1", "-x", ".hidden", "modèle", "*", " ", "...", "a..b", "..x"]
)
def test_other_names_are_fine(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert is_directory_name(name)
    assert find_model([tmp_path], name) == (tmp_path / name,)


def test_every_directory_is_a_model_and_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "README").write_text("no model")
    assert find_models([tmp_path]) == {"a": (tmp_path / "a",), "b": (tmp_path / "b",)}


def test_symbolic_links_to_directories_are_models(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "real"
    target.mkdir(parents=True)
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "linked").symlink_to(target)
    (repository / "dangling").symlink_to(tmp_path / "nowhere")
    assert list(find_models([repository])) == ["linked"]
    assert find_model([repository], "linked") == (repository / "linked",)
    assert find_model([repository], "dangling") == ()


def test_model_in_two_repositories_has_two_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for repository in (one, two):
        (repository / "m").mkdir(parents=True)
    assert find_models([two, one]) == {"m": (one / "m", two / "m")}
    assert find_model([two, one], "m") == (one / "m", two / "m")


def test_repository_given_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "r" / "m").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(tmp_path / "r")
    again = tmp_path / "r" / ".." / "r"
    assert list(find_models([tmp_path / "r", again, tmp_path / "alias"]).values()) == [
        (tmp_path / "r" / "m",)
    ]


def test_unreadable_repository_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_repositories([tmp_path])
    with pytest.raises(InvalidArgumentError, match=r"nowhere' cannot be read \(No such file or directory\)"):
        check_repositories([tmp_path, tmp_path / "nowhere"])
    with pytest.raises(InvalidArgumentError, match=r"file' cannot be read \(Not a directory\)"):
        check_repositories([tmp_path / "file"])


@pytest.mark.parametrize("relative", ["", ".", "..", "../x", "a/../../x", "a/..", "/etc/passwd", "a\0"])
def test_files_outside_the_model_directory_are_refused(tmp_path: Path, relative: str) -> None:
    with pytest.raises(InvalidArgumentError, match="stay inside"):
        inside(tmp_path, relative)


def test_files_inside_the_model_directory_are_found(tmp_path: Path) -> None:
    assert inside(tmp_path, "labels/x.txt") == tmp_path / "labels" / "x.txt"
    assert inside(tmp_path, "..data") == tmp_path / "..data"
