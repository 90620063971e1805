"""What a load request brings instead of the repository's: a configuration, and files.

Files replace the whole model directory: a temporary directory holds them and nothing else.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.override import ConfigOverride
from halimede.core.errors import InvalidArgumentError
from halimede.core.uploads import FILES
from halimede.repository.layout import inside

FILE_PREFIX = "file:"

LoadParameters = Mapping[str, str | bytes | ConfigOverride]
"""What a load request brings: ``config`` → JSON or what was read of it, ``file:<path>`` → content."""

_RUN_PARAMETERS: Final = ("EXECUTION_ENV_PATH", "CPU_EXTENSION_PATH")
_PATHS: Final = ("_path", "_paths")


class OverrideFilesError(InvalidArgumentError):
    """Files of a load request cannot stand for a model's directory."""


@dataclass(frozen=True, slots=True)
class Override:
    """What a load request brings.

    Attributes:
        config: None to use the one on disk.
        files: path relative to the model directory → content; empty to use those on disk.
    """

    config: ConfigOverride | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def given(self) -> bool:
        """Whether it brings anything."""
        return self.config is not None


def parse_parameters(parameters: LoadParameters) -> Override:
    """The override that the parameters of a load request spell.

    Args:
        parameters: ``config`` → JSON text or what was read of it, ``file:<path>`` → the decoded bytes. Slashes before
            the path are ignored.

    Raises:
        OverrideFilesError: files without ``config``, or a path that leads out of the model directory.
        InvalidArgumentError: another parameter, or a wrong type.
    """
    config: ConfigOverride | None = None
    files: dict[str, bytes] = {}
    for key, value in parameters.items():
        if key == "config":
            if isinstance(value, bytes):
                raise InvalidArgumentError("Load parameter 'config' must be a string that holds JSON")
            config = ConfigOverride(value) if isinstance(value, str) else value
        elif key.startswith(FILE_PREFIX):
            if not isinstance(value, bytes):
                raise InvalidArgumentError(f"Load parameter '{key}' must be the bytes of the file")
            path = key.removeprefix(FILE_PREFIX).lstrip("/")
            try:
                inside(Path(), path)
            except InvalidArgumentError as error:
                raise OverrideFilesError(error.message) from error
            files[path] = value
        else:
            raise InvalidArgumentError(
                f"unexpected load parameter '{key}', expected 'config' or 'file:<path>'"
            )
    if files and config is None:
        raise OverrideFilesError("Load parameter 'config' must be specified for model file override")
    return Override(config, files)


def code_in(parameters: LoadParameters) -> str:
    """What the parameters of a load request bring that may be code, or name code to run; "" for nothing.

    A file name of a configuration that stays inside the model's directory names what its owner has put there.
    """
    if any(key.startswith(FILE_PREFIX) for key in parameters):
        return FILES
    given = parameters.get("config")
    override = ConfigOverride(given) if isinstance(given, str) else given
    try:
        config = override.read() if isinstance(override, ConfigOverride) else ModelConfig()
    except InvalidArgumentError:
        return ""  # which the load tells
    if config.model_operations.op_library_filename:
        return "configurations with op_library_filename"
    for name in _RUN_PARAMETERS:
        if name in config.parameters:
            return f"configurations with {name}"
    accelerators = config.optimization.execution_accelerators
    for accelerator in (*accelerators.gpu_execution_accelerator, *accelerators.cpu_execution_accelerator):
        for name in accelerator.parameters:
            if name.endswith(_PATHS):
                return f"configurations with {name}"
    return ""


def write_files(files: Mapping[str, bytes]) -> Path:
    """A new temporary directory that holds the files; `remove` it after use.

    Raises:
        OSError: the file system refuses a name or is full; nothing is left behind.
    """
    directory = Path(tempfile.mkdtemp(prefix="halimede-model-"))
    try:
        for relative, content in files.items():
            path = inside(directory, relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(content)
    except BaseException:
        remove(directory)
        raise
    return directory


def remove(directory: Path) -> None:
    """Delete a directory made by `write_files`."""
    if os.path.lexists(directory):
        shutil.rmtree(directory)
