"""Which model a single-model endpoint serves: what lies in the model directory, and what the environment names."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import click

from halimede.cli.sagemaker.environment import BASE_DIR, DEFAULT_MODEL_NAME
from halimede.core.errors import HalimedeError
from halimede.repository.archive_layout import CONFIG, is_model
from halimede.repository.model_archives import extract_model

_ARCHIVE = ".tar.gz"


class SingleModel(NamedTuple):
    """The model that an endpoint serves.

    Attributes:
        repository: the directory that holds the model's.
        name: the model's directory in it.
        remark: what to warn of; "" for nothing.
    """

    repository: Path
    name: str
    remark: str


def find_single_model(directory: Path, wanted: str, scratch: Callable[[], Path]) -> SingleModel:
    """The model to serve from the directory that the platform has extracted the endpoint's archive to.

    A directory that holds nothing but one archive, as it does where no platform extracts it, is served from a copy.

    Args:
        directory: `/opt/ml/model`, or what stands in its place.
        wanted: the model that the environment names; "" for the only one.
        scratch: makes an empty directory, to extract into; called only if it is needed.

    Raises:
        click.UsageError: there is no such model, or there are several and none is named.
        OSError: the directory cannot be read.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        msg = f"'{directory}' {what}; it must hold the model, as NAME/{CONFIG}; {BASE_DIR} names the directory above it"
        raise click.UsageError(msg)
    repository = directory
    names = _models(repository)
    archives = [path for path in _entries(directory) if path.name.endswith(_ARCHIVE) and path.is_file()]
    if not names and len(archives) == 1:
        repository = scratch() / "model"
        try:
            extract_model(archives[0], repository)
        except HalimedeError as error:
            raise click.UsageError(error.message) from None
        names = _models(repository)
    # a copy's place would tell nobody anything
    shown = directory if repository is directory else archives[0]
    if not wanted:
        name = _only(names, shown)
        return SingleModel(
            repository,
            name,
            f"No {DEFAULT_MODEL_NAME} provided. Starting with the only existing model directory {name}",
        )
    if wanted not in names:
        msg = f"Directory with provided {DEFAULT_MODEL_NAME} {wanted} does not exist: '{shown}' holds {_listed(names)}"
        raise click.UsageError(msg)
    return SingleModel(repository, wanted, "")


def _models(directory: Path) -> list[str]:
    """The names of the models' directories; hidden ones, which editors and archivers leave, are none.

    Raises:
        click.UsageError: a model lies where its directory should.
    """
    directories = [path for path in _entries(directory) if path.is_dir()]
    configured = (directory / CONFIG).is_file()
    if configured or (is_model(directory) and not any(is_model(path) for path in directories)):
        found = CONFIG if configured else "a numbered version"
        msg = (
            "Incorrect directory structure. Model directory needs to contain the top level folder: "
            f"{found} lies at the top of the model directory or archive, and not in NAME/, with NAME/{CONFIG} and "
            "NAME/1/"
        )
        raise click.UsageError(msg)
    return [path.name for path in directories]


def _entries(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if not path.name.startswith("."))


def _only(names: Collection[str], place: Path) -> str:
    """The one name there is.

    Raises:
        click.UsageError: there is none, or several.
    """
    if not names:
        msg = (
            f"No model found in model repository: '{place}' must hold a model's directory, with NAME/{CONFIG} and "
            "NAME/1/"
        )
        raise click.UsageError(msg)
    if len(names) > 1:
        msg = (
            f"More than 1 model directory found in model repository. '{place}' holds {_listed(names)}; "
            f"{DEFAULT_MODEL_NAME} must name one of them"
        )
        raise click.UsageError(msg)
    [name] = names
    return name


def _listed(names: Collection[str]) -> str:
    shown = [f"'{name}'" for name in list(names)[:10]]
    return ", ".join(shown) + ", …" * (len(names) > len(shown)) if names else "no directory"
