"""Models in repositories: `<repository>/<model>/<version>/<files>`."""

from collections.abc import Sequence
from pathlib import Path

from halimede.core.errors import InvalidArgumentError


def check_model_name(name: str) -> None:
    """Refuse a name that no model directory has.

    Raises:
        InvalidArgumentError: it is empty, or would lead out of the repository.
    """
    if not name.strip():
        raise InvalidArgumentError("Model name cannot be empty. Please enter a valid name to deploy.")
    if "/" in name or "\0" in name or ".." in name or name == ".":
        raise InvalidArgumentError(
            f"invalid model name '{name}', model name must not contain path traversal characters"
        )


def check_repositories(repositories: Sequence[Path]) -> None:
    """Refuse repositories that cannot be read.

    Raises:
        InvalidArgumentError: one is not there, is not a directory, or may not be read.
    """
    for repository in repositories:
        try:
            next(repository.iterdir(), None)
        except OSError as error:
            raise InvalidArgumentError(
                f"model repository '{repository}' cannot be read ({error.strerror}); "
                "it must be a directory that holds one directory a model"
            ) from error


def find_models(repositories: Sequence[Path]) -> dict[str, tuple[Path, ...]]:
    """Every model's directories, by name; a name that has more than one is ambiguous.

    Raises:
        OSError: a repository cannot be read.
    """
    found: dict[str, tuple[Path, ...]] = {}
    for repository in distinct(repositories):
        for entry in sorted(repository.iterdir()):
            if entry.is_dir():
                found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def find_model(repositories: Sequence[Path], name: str) -> tuple[Path, ...]:
    """The directories of one model, whose name is checked already; empty if there is none.

    Raises:
        OSError: the file system refuses to look.
    """
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
