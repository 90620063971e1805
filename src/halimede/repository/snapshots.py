"""Looking at repositories: which directories a model has, and what is in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halimede.repository.fingerprint import Fingerprint, fingerprint
from halimede.repository.layout import find_identified, find_model, find_models


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one look saw of a model. Equal snapshots: nothing changed in between.

    Attributes:
        directories: its directory; several if repositories share the name, none if it is in no repository.
        contents: what is in the directory, if there is exactly one and it can be read.
    """

    directories: tuple[Path, ...] = ()
    contents: Fingerprint | None = None


ABSENT = Snapshot()


def sight_model(repositories: Sequence[Path], name: str, *, namespaced: bool = False) -> Snapshot:
    """What there is of one model.

    Args:
        repositories: where to look.
        name: the model's name, or its identifier.
        namespaced: it is the identifier.

    Raises:
        OSError: a repository cannot be read.
    """
    return _sight((find_identified if namespaced else find_model)(repositories, name))


def sight_directory(directory: Path) -> Snapshot:
    """What there is of a model in a directory of its own, outside the repositories."""
    return _sight((directory,) if directory.is_dir() else ())


def sight_models(repositories: Sequence[Path], *, namespaced: bool = False) -> dict[str, Snapshot]:
    """What there is of every model, by name, or by identifier if `namespaced`.

    Raises:
        OSError: a repository cannot be read.
    """
    found = find_models(repositories, namespaced=namespaced)
    return {name: _sight(directories) for name, directories in found.items()}


def _sight(directories: tuple[Path, ...]) -> Snapshot:
    contents = None
    if len(directories) == 1:
        try:
            contents = fingerprint(directories[0])
        except OSError:  # it vanished meanwhile, or is closed to us: whoever loads it says which
            contents = None
    return Snapshot(directories, contents)
