"""The interpreters and variables with which Python models run that bring an environment of their own.

    EXECUTION_ENV_PATH = directory  ──────────────────────────┐
    EXECUTION_ENV_PATH = archive  → extracted_archives ───────┼→ Environment
    requirements.txt              → virtual_environments ─────┘
    neither                       → the server's own interpreter

What workers need comes with them, on a path of ours, whatever the environment holds.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from halimede.backends.base import BackendOptions, ModelSource
from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.workers.extracted_archives import ExtractedArchives
from halimede.workers.programs import ProgramError, Programs
from halimede.workers.requirement_files import check_requirements
from halimede.workers.virtual_environments import cannot_read, requirements_of, virtual_environment

logger = logging.getLogger("halimede")

PARAMETER = "EXECUTION_ENV_PATH"
MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"

_CACHE = "environment-cache-directory"
_INSTALL = "install-requirements"
_SOURCES, _ANY, _CONFIGURED = "requirement-sources", "any", "configured"


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """What the command line says about environments.

    Attributes:
        cache: where they stay; None for the default of each kind.
        may_install: whether what a `requirements.txt` asks for may be installed.
        any_source: whether a `requirements.txt` may say where packages come from, and name files elsewhere.
    """

    cache: Path | None = None
    may_install: bool = True
    any_source: bool = True

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> "EnvironmentSettings":
        """From `--backend-config` for the Python backend.

        Raises:
            InvalidArgumentError: a value is none for its setting; the text says what would be.
        """
        cache, install = settings.get(_CACHE), settings.get(_INSTALL, "true").lower()
        where = "--backend-config=python,"
        if cache == "":
            raise InvalidArgumentError(f"{where}{_CACHE} must be a directory; it is empty")
        if install not in ("true", "false"):
            raise InvalidArgumentError(f"{where}{_INSTALL} must be true or false; got '{settings[_INSTALL]}'")
        sources = settings.get(_SOURCES, _ANY)
        if sources not in (_ANY, _CONFIGURED):
            raise InvalidArgumentError(f"{where}{_SOURCES} must be {_ANY} or {_CONFIGURED}; got '{sources}'")
        return cls(
            None if cache is None else Path(cache).absolute(), install == "true", any_source=sources == _ANY
        )


class Environment:
    """An interpreter and variables for a model's workers, which stay in place until `release`.

    Attributes:
        python: the interpreter.
        variables: those that are set, or with None removed, on top of the server's.
    """

    def __init__(self, directory: Path, release: Callable[[], None] = lambda: None) -> None:
        self.python = interpreter_of(directory)
        self.variables = variables_of(directory)
        self._release = release

    def release(self) -> None:
        """The model's workers have ended. To be called once."""
        self._release()


class Environments:
    """The environments of a server. May be used from any thread."""

    def __init__(self) -> None:
        self._programs = Programs()
        self._archives = ExtractedArchives(self._programs, self._finish)

    def prepare(
        self, source: ModelSource, options: BackendOptions, default: Path | None = None
    ) -> Environment | None:
        """The environment that a model brings; None if it brings none. Blocks while it is made.

        Args:
            source: the model version.
            options: whose settings say where environments stay and whether requirements are installed.
            default: the archive for a model that names none; it need not be there.

        Raises:
            HalimedeError: it cannot be used or made; the text says why.
        """
        settings = EnvironmentSettings.read(options.settings)
        requirements = requirements_of(source)
        named = (
            source.config.parameters[PARAMETER].string_value if PARAMETER in source.config.parameters else ""
        )
        if not named and default is not None and default.is_file():
            named = str(default)
        if named:
            if requirements is not None:
                logger.warning(
                    "model '%s': the parameter %s names its environment, so '%s' is ignored",
                    source.name, PARAMETER, requirements,
                )  # fmt: skip
            path = _canonical(source, named)
            environment = self._named(path, settings)
        elif requirements is not None:
            if not settings.any_source:
                _check(source, requirements)
            cache = settings.cache or _user_cache()
            path = virtual_environment(source.name, requirements, cache, settings.may_install, self._programs)
            environment = Environment(path)
        else:
            return None
        logger.info("Using Python execution env %s", path)
        return environment

    def close(self) -> None:
        """Stop what is being made, and remove what does not stay. No worker runs any more. Blocks."""
        self._programs.close()
        self._archives.close()

    def _named(self, path: Path, settings: EnvironmentSettings) -> Environment:
        if path.is_dir():
            return Environment(path)
        extracted = self._archives.acquire(path, settings.cache)
        return Environment(extracted.directory, lambda: self._archives.release(extracted))

    def _finish(self, directory: Path, lock: int) -> None:
        """Make a conda environment that was just extracted know where it lies."""
        python = interpreter_of(directory)
        unpack = directory / "bin" / "conda-unpack"
        if not unpack.is_file():
            return
        try:
            self._programs.run([python, unpack], variables_of(directory), descriptors=[lock])
        except ProgramError as error:
            raise InternalError(f"'{unpack}', by '{python}', failed: {error}") from None


def _check(source: ModelSource, requirements: Path) -> None:
    """Refuse requirements that name sources of their own."""
    try:
        check_requirements(source.name, requirements, source.directory.absolute())
    except OSError as error:
        raise cannot_read(source.name, error) from None


def interpreter_of(directory: Path) -> Path:
    """The interpreter of an environment.

    Raises:
        InternalError: there is none.
    """
    candidates = [directory / "bin" / name for name in ("python", "python3")]
    for python in candidates:
        if python.is_file():
            return python
    for python in candidates:
        if python.is_symlink():
            raise InternalError(
                f"the Python environment has no interpreter: '{python}' is a link to '{python.readlink()}', which "
                "does not exist on this machine"
            )
    activate = directory / "bin" / "activate"
    if not activate.exists():
        raise InternalError(
            f"Path {activate} does not exist. The Python environment should contain an 'activate' script."
        )
    raise InternalError(f"the Python environment has no interpreter: '{candidates[0]}' does not exist")


def variables_of(directory: Path) -> dict[str, str | None]:
    """The variables that activating an environment sets, or with None removes."""
    path = os.environ.get("PATH", os.defpath)
    libraries = os.environ.get("LD_LIBRARY_PATH")
    return {
        "VIRTUAL_ENV": str(directory),
        "VIRTUAL_ENV_PROMPT": directory.name,
        "PATH": f"{directory / 'bin'}:{path}",
        "LD_LIBRARY_PATH": f"{directory / 'lib'}:{libraries}" if libraries else str(directory / "lib"),
        "PYTHONHOME": None,
    }


def _canonical(source: ModelSource, named: str) -> Path:
    """The path that the parameter names."""
    path = Path(named.replace(MODEL_DIRECTORY, str(source.directory.absolute())))
    if not path.is_absolute():
        raise InternalError(
            f"Failed to get the canonical path for {named}. The parameter {PARAMETER} of model '{source.name}' must be "
            f"an absolute path, or begin with {MODEL_DIRECTORY}, such as {MODEL_DIRECTORY}/{named}"
        )
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # also: a loop of links, a zero byte
        hint = ""
        if ".." in path.parts:
            hint = (
                " It leads out of a directory by '..'. If the model repository is in a bucket, only the model's own "
                f"directory is downloaded, so place the environment there: {MODEL_DIRECTORY}/{path.name}"
            )
        raise InternalError(f"Failed to get the canonical path for {path}.{hint}") from None


def _user_cache() -> Path:
    """The directory in the user's cache directory."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(named) if named.startswith("/") else Path.home() / ".cache"
    except RuntimeError:
        raise InternalError(
            "the user that the server runs as has no home directory, so it must be told where to install what a "
            f"requirements.txt asks for: --backend-config=python,{_CACHE}=DIRECTORY"
        ) from None
    return base / "halimede"
