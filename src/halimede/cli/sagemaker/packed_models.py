"""What `halimede pack` packs: a model or a repository of models, checked as far as that needs no backend."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from halimede.config.ensembles import is_ensemble, needs_of
from halimede.config.locate import locate
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import ConfigTextError, parse_text, read_text
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.versions import version_number
from halimede.repository.archive_layout import CONFIG, choose_entry, is_model
from halimede.repository.packing import is_left_out
from halimede.repository.versions import select_versions


@dataclass(slots=True)
class PackedModels:
    """Models to pack.

    Attributes:
        prefix: the directory of the archive in which the packed directory's contents come to lie, "" for its root.
        only: names of those of its contents that are packed; None for all.
        configs: name of each model → its configuration, empty if it has none.
        remarks: what to warn of.
    """

    prefix: str
    only: frozenset[str] | None
    configs: Mapping[str, ModelConfig]
    remarks: list[str] = field(default_factory=list)

    def entry(self, stem: str) -> str:
        """The model that requests are for to a multi-model endpoint, "" with a remark if it cannot be told.

        Args:
            stem: name of the archive without its suffix.
        """
        steps = {
            name: needs_of(config) if is_ensemble(config) else None for name, config in self.configs.items()
        }
        try:
            return choose_entry(steps, stem)
        except InvalidArgumentError as error:
            self.remarks.append(f"for a multi-model endpoint, {error.message}")
            return ""


def find_packed_models(directory: Path, *, flat: bool) -> PackedModels:
    """What there is to pack in a directory.

    Args:
        directory: a model's directory, or one of models' directories.
        flat: whether a model's contents go to the root of the archive.

    Raises:
        click.ClickException: there is no model, or something is wrong with one; the text says where.
    """
    try:
        if is_model(directory):
            name = os.path.basename(os.path.abspath(directory))  # noqa: PTH100, PTH119 - links keep their names
            found = PackedModels("" if flat else name, None, {name: _read_model(name, directory, flat)})
        else:
            found = _find_repository(directory, flat)
    except ConfigTextError as error:
        raise click.ClickException(_located(error)) from error
    except HalimedeError as error:
        raise click.ClickException(error.message) from error
    except OSError as error:
        msg = f"cannot read '{error.filename or directory}': {error.strerror}"
        raise click.ClickException(msg) from error
    found.remarks += _missing_steps(found.configs)
    return found


class _ModelError(ConfigTextError):
    """Something is wrong with a model; `path` is where."""

    def __init__(self, message: str, path: Path, line: int = 0, fix: str = "") -> None:
        super().__init__(message, line, 0, fix)
        self.path = path


def _located(error: ConfigTextError) -> str:
    """The error as `halimede check` tells it."""
    place = f"{error.path}:{error.line}: " if isinstance(error, _ModelError) and error.line else ""
    return place + error.message + (f"\n    fix: {error.fix}" if error.fix else "")


def _find_repository(directory: Path, flat: bool) -> PackedModels:
    entries = [entry for entry in sorted(directory.iterdir()) if not is_left_out(entry.name)]
    models = [entry for entry in entries if entry.is_dir() and is_model(entry)]
    if not models:
        msg = (
            f"there is no model in '{directory}': neither {CONFIG} nor a numbered version, as in a model's directory, "
            "nor directories that have them, as in a repository"
        )
        raise click.UsageError(msg)
    if flat:
        listed = ", ".join(f"'{model.name}'" for model in models)
        msg = (
            f"--flat takes the directory of one model; '{directory}' is one of models' directories: {listed}"
        )
        raise click.UsageError(msg)
    others = [entry.name for entry in entries if entry.is_dir() and entry not in models]
    remarks = []
    if others:
        listed = ", ".join(f"'{name}'" for name in others)
        remarks.append(f"not packed, as they hold neither {CONFIG} nor a numbered version: {listed}")
    return PackedModels(
        prefix="",
        only=frozenset(entry.name for entry in entries) - frozenset(others),
        configs={model.name: _read_model(model.name, model, flat) for model in models},
        remarks=remarks,
    )


def _read_model(name: str, directory: Path, flat: bool) -> ModelConfig:
    """The model's configuration, if a server could find it and a version of the model.

    Raises:
        HalimedeError: it could not.
    """
    path = directory / CONFIG
    config = ModelConfig()
    text = ""
    if path.exists():
        text = read_text(path)
        try:
            config = parse_text(text, str(path))
        except ConfigTextError as error:
            raise _ModelError(error.message, path, error.line, error.fix) from error
        # at the root of an archive the directory's name is lost
        if config.name not in ("", name) and not flat:
            message = (
                f"the model is called '{config.name}', and its directory '{name}'; they must be the same"
            )
            raise _ModelError(message, path, locate(text).line("name"), f'name: "{name}"')
    elif flat:
        raise InvalidArgumentError(
            f"--flat needs {directory / CONFIG}: SageMaker's servers tell by it that a model lies at the root"
        )
    versions = [
        version
        for entry in directory.iterdir()
        if entry.is_dir() and (version := version_number(entry.name)) is not None
    ]
    if not select_versions(config.version_policy, versions):
        if versions:
            there = (
                f"it has {', '.join(map(str, sorted(versions)))}, and its version policy selects none of them"
            )
            raise _ModelError(
                f"'{directory}' has no version: {there}", path, locate(text).line("version_policy")
            )
        content = "" if is_ensemble(config) else " and put the model's file into it"
        fix = f"make the directory {directory / '1'}{content}"
        raise _ModelError(f"'{directory}' has no version", path, fix=fix)
    return config


def _missing_steps(configs: Mapping[str, ModelConfig]) -> list[str]:
    return [
        f"ensemble '{name}' needs '{need}', which is not packed; pack the directory that holds both"
        for name, config in configs.items()
        if is_ensemble(config)
        for need in needs_of(config)
        if need not in configs
    ]
