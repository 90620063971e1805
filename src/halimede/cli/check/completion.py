"""What keeps name, platform, backend and versions of a model from being told, and what would tell them."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from halimede.backends.registry import BACKENDS, backend_class, backend_name
from halimede.config.autofill import ENSEMBLE, PLATFORM_BACKENDS, autofill
from halimede.config.ensembles import is_ensemble
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.model_files import advice, other_file
from halimede.config.validate import Problem
from halimede.core.errors import HalimedeError
from halimede.core.versions import version_number
from halimede.repository.versions import find_versions


def autofill_problems(config: ModelConfig, name: str, directory: Path) -> Iterator[Problem]:
    """What `autofill` refuses, each as if the problems before it were fixed; the configuration is filled in."""
    if config.name and config.name != name:
        try:
            autofill(config, name, directory)
        except HalimedeError as error:
            yield Problem(name, "name", error.message, f'name: "{name}"')
        config.name = ""
    try:
        autofill(config, name, directory)
    except HalimedeError as error:
        if config.platform:
            yield Problem(name, "platform", error.message, _platform_fix(config, name, directory))
        elif not is_nowhere(config, directory):
            fix = _backend_fix(config, directory)
            yield Problem(name, "backend", error.message.removesuffix(f": {fix}"), fix)


def is_nowhere(config: ModelConfig, directory: Path) -> bool:
    """Whether no backend can be told as the files are in the wrong place, which is a problem of the versions."""
    if backend_name(config) or config.HasField("ensemble_scheduling") or find_versions(directory):
        return False
    return advice(directory) is not None


def unknown_backend(config: ModelConfig, directory: Path) -> Iterator[Problem]:
    """The problem of a backend that this version does not have."""
    name = backend_name(config)
    if name and name not in (*BACKENDS, ENSEMBLE) and not is_ensemble(config):
        try:
            backend_class(config)
        except HalimedeError as error:
            yield Problem(config.name, "backend", error.message, _backend_fix(config, directory))


def _backend_fix(config: ModelConfig, directory: Path) -> str:
    """What would give a model whose backend is unknown or missing one."""
    name = backend_name(config)
    for version in find_versions(directory):
        told = ModelConfig()
        try:
            autofill(told, "model", directory)
        except HalimedeError:
            told.Clear()
        if told.backend:
            return f'backend: "{told.backend}"'
        found = other_file(directory / str(version), "", "")
        if found is not None:
            return f'backend: "{found.backend}"'
    close = get_close_matches(name, BACKENDS, 1) if name else []
    if close:
        return f'backend: "{close[0]}"'
    found_advice = advice(directory)
    if found_advice is not None:
        return found_advice.fix
    version_directory = directory / str(next(iter(find_versions(directory)), 1))
    return f"put the model's file into {version_directory}"


def _platform_fix(config: ModelConfig, name: str, directory: Path) -> str:
    told = ModelConfig(backend=config.backend)
    try:
        autofill(told, name, directory)
    except HalimedeError:
        pass
    else:
        return f'platform: "{told.platform}"' if told.platform else "remove platform"
    close = get_close_matches(config.platform, [*PLATFORM_BACKENDS, "ensemble"], 1)
    return f'platform: "{close[0]}"' if close else "remove platform, and name the backend alone"


def misnamed_file(config: ModelConfig, name: str, version: Path) -> Problem | None:
    """The problem of a written `default_model_filename` that a version has not; None if it has, or for none."""
    if not name or (version / name).exists():
        return None
    message = f"version {version.name} has no file '{name}', which default_model_filename names"
    there = {entry.name.casefold(): entry.name for entry in version.iterdir()}
    one = other_file(version, "", backend_name(config))
    close = get_close_matches(name.casefold(), there, 1)
    if one is None and not close:
        fix = f"put the model's file at {version / name}"
    else:
        fix = f'default_model_filename: "{there[close[0]] if one is None else one.path.name}"'
    return Problem(config.name, "default_model_filename", message, fix)


def no_version(config: ModelConfig, directory: Path) -> Problem:
    """The problem of a model of which no version would be served."""
    message = f"at least one version must be available under the version policy of model '{directory.name}'"
    found = find_versions(directory)
    if found:
        listed = ", ".join(map(str, found))
        fix = f"version_policy {{ specific {{ versions: {found[-1]} }} }}"
        return Problem(config.name, "version_policy", f"{message}; there are the versions {listed}", fix)
    misplaced = advice(directory)
    if misplaced is not None:
        return Problem(config.name, "", f"{message}. {misplaced.reason}", misplaced.fix)
    for entry in sorted(directory.iterdir()):
        right = entry.name.lstrip("0")
        if right != entry.name and version_number(right) is not None and entry.is_dir():
            return Problem(config.name, "", message, f"rename {entry} to {directory / right}")
    fix = f"make the directory {directory / '1'} and put the model's file into it"
    return Problem(config.name, "", message, fix)
