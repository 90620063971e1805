import os
from pathlib import Path

from halimede.repository.private_directories import PrivateDirectory, remove_abandoned


def age(path: Path) -> None:
    os.utime(path, (1, 1))


def test_a_directory_is_nobody_elses_and_goes_with_what_is_in_it(tmp_path: Path) -> None:
    made = PrivateDirectory.make(tmp_path, "mine-")
    assert made.path.parent == tmp_path
    assert made.path.name.startswith("mine-")
    assert made.path.stat().st_mode & 0o777 == 0o700
    (made.path / "below").mkdir()
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_only_old_directories_of_that_name_that_nobody_holds_are_removed(tmp_path: Path) -> None:
    held, young, dead = (PrivateDirectory.make(tmp_path, "mine-") for _ in range(3))
    os.close(young.lock)
    os.close(dead.lock)
    other = tmp_path / "other"
    other.mkdir()
    file = tmp_path / "mine-file"
    file.touch()
    link = tmp_path / "mine-link"
    link.symlink_to(other)
    for path in (held.path, dead.path, other, file):
        age(path)
    remove_abandoned(tmp_path, "mine-")
    assert set(tmp_path.iterdir()) == {held.path, young.path, other, file, link}
    held.remove()


def test_what_was_left_goes_when_the_next_is_made(tmp_path: Path) -> None:
    dead = PrivateDirectory.make(tmp_path, "mine-")
    os.close(dead.lock)
    age(dead.path)
    made = PrivateDirectory.make(tmp_path, "mine-")
    assert list(tmp_path.iterdir()) == [made.path]
    made.remove()
