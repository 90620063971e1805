"""Models in repositories: `<repository>/<model>/<version>/<files>`."""

from collections.abc import Sequence
from pathlib import Path

from halimede.core.errors import InvalidArgumentError


def is_directory_name(name: str) -> bool:
    """Whether a directory of a repository can have that name; others would lead elsewhere."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def check_model_name(name: str) -> None:
    """Refuse names that no model of a repository can have.

    Raises:
        InvalidArgumentError: the text is tritonserver's.
    """
    if not name.strip():
        raise InvalidArgumentError("Model name cannot be empty. Please enter a valid name to deploy.")
    if "/" in name or ".." in name:
        raise InvalidArgumentError(
            f"invalid model name '{name}', model name must not contain path traversal characters"
        )


def check_repositories(repositories: Sequence[Path]) -> None:
    """Refuse repositories that cannot be read.

    Raises:
        InvalidArgumentError: one is not there, is not a directory, or may not be read.
    """
    for repository, why in unreadable(repositories).items():
        raise InvalidArgumentError(
            f"model repository '{repository}' cannot be read ({why}); "
            "it must be a directory that holds one directory a model"
        )


def unreadable(repositories: Sequence[Path]) -> dict[Path, str]:
    """The repositories that cannot be read, each with the reason."""
    reasons = {}
    for repository in repositories:
        try:
            next(repository.iterdir(), None)
        except OSError as error:
            reasons[repository] = error.strerror or str(error)
    return reasons


def find_models(repositories: Sequence[Path], *, namespaced: bool = False) -> dict[str, tuple[Path, ...]]:
    """Every model's directories, by name; a name that has more than one is ambiguous.

    Args:
        repositories: where to look.
        namespaced: give `identifier`s in the place of names; each has one directory.

    Raises:
        OSError: a repository cannot be read.
    """
    found: dict[str, tuple[Path, ...]] = {}
    for repository in distinct(repositories):
        for entry in sorted(repository.iterdir()):
            if entry.is_dir():
                name = identifier(repository, entry.name) if namespaced else entry.name
                found[name] = (*found.get(name, ()), entry)
    return found


def identifier(repository: Path, name: str) -> str:
    """What tells a model from those of equal names in other repositories (`--model-namespacing`)."""
    return f"{repository}::{name}"


def find_identified(repositories: Sequence[Path], identified: str) -> tuple[Path, ...]:
    """The directory of the model with that `identifier`; empty if there is none.

    Raises:
        OSError: the file system refuses to look.
    """
    for repository in distinct(repositories):
        prefix = identifier(repository, "")
        if identified.startswith(prefix):
            return find_model((repository,), identified.removeprefix(prefix))
    return ()


def find_model(repositories: Sequence[Path], name: str) -> tuple[Path, ...]:
    """The directories of one model; empty if there is none, or if no directory can have that name.

    Raises:
        OSError: the file system refuses to look.
    """
    if not is_directory_name(name):
        return ()
    return tuple(path for repository in distinct(repositories) if (path := repository / name).is_dir())


def distinct(repositories: Sequence[Path]) -> list[Path]:
    """The repositories in sorted order, each once, however it is spelt."""
    by_place = {repository.resolve(): repository for repository in reversed(repositories)}
    return sorted(by_place.values())


def inside(directory: Path, relative: str) -> Path:
    """The path of a file that a model names relative to its directory.

    Symbolic links may lead anywhere: whoever may make one in the repository may put the file there too.

    Raises:
        InvalidArgumentError: the name is empty, absolute or climbs out of the directory.
    """
    parts = Path(relative).parts
    if not parts or "\0" in relative or Path(relative).is_absolute() or ".." in parts:
        raise InvalidArgumentError(
            f"file name '{relative}' must be relative to the model directory and stay inside it, without '..'"
        )
    return directory / relative
