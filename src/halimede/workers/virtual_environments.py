"""Virtual environments with what a model's `requirements.txt` asks for, made once for each content of it.

They see the packages of the server's own environment, and pip installs only what is missing there or has another
version. `--system-site-packages` alone would not do: where the server itself runs in a virtual environment, its
packages are not the system's.
"""

import hashlib
import logging
import platform
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from halimede.backends.base import ModelSource
from halimede.core.errors import InternalError
from halimede.core.steps import step
from halimede.workers.built_directories import build_once, is_built, place_in
from halimede.workers.programs import ProgramError, Programs

logger = logging.getLogger("halimede")

REQUIREMENTS = "requirements.txt"

_FILE_OPTION = re.compile(r"(?:-r|--requirement|-c|--constraint)[ \t=]*(\S+)")
"""Options in such a file that name another one, whose content counts as well."""


def requirements_of(source: ModelSource) -> Path | None:
    """The model version's `requirements.txt`: in the version's directory, else in the model's."""
    for directory in (source.version_directory, source.directory):
        path = directory.absolute() / REQUIREMENTS
        if path.is_file():
            return path
    return None


def cannot_read(model: str, error: OSError) -> InternalError:
    """The error for a file of requirements that cannot be read."""
    return InternalError(f"model '{model}': cannot read '{error.filename}': {error.strerror}")


def virtual_environment(
    model: str, requirements: Path, cache: Path, may_install: bool, programs: Programs
) -> Path:
    """The directory of a virtual environment in which the requirements are met. Blocks while it is made.

    Args:
        model: whose requirements they are, for texts.
        requirements: the file.
        cache: the directory below which such environments stay.
        may_install: False to refuse to make one that is not there yet.
        programs: runs pip.

    Raises:
        InternalError: it may not or cannot be made; then nothing of it is left.
    """
    try:
        key = _key(requirements)
    except OSError as error:
        raise cannot_read(model, error) from None
    directory = place_in(cache, "venvs", key)
    if not may_install and not is_built(directory):
        raise InternalError(
            f"model '{model}': what '{requirements}' asks for is not installed, and "
            "--backend-config=python,install-requirements=false forbids to install it; allow it, or name an "
            "environment that has it with the parameter EXECUTION_ENV_PATH"
        )
    build_once(directory, partial(_build, model, requirements, directory, programs), programs.closing)
    return directory


def _build(model: str, requirements: Path, directory: Path, programs: Programs, lock: int) -> None:
    logger.info("model '%s': installing what '%s' asks for into '%s'", model, requirements, directory)
    python = directory / "bin" / "python"
    # pip comes with the server's packages, if it is among them
    without_pip = ["--without-pip"] if find_spec("pip") is not None else []
    # -P: what lies where the server was started, or beside the requirements, is not to be imported
    pip = ["-P", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    environment = {"PYTHONHOME": None, "VIRTUAL_ENV": str(directory)}
    try:
        with step(f"Installing requirements of '{model}'"):
            programs.run(
                [sys.executable, "-P", "-m", "venv", *without_pip, directory], environment, descriptors=[lock]
            )
            _show_server_packages(directory)
            programs.run(
                [python, *pip, "--requirement", requirements],
                environment,
                directory=requirements.parent,
                descriptors=[lock],
                on_line=partial(logger.info, "model '%s': pip: %s", model),
            )
    except ProgramError as error:
        raise InternalError(
            f"model '{model}': cannot install what '{requirements}' asks for: {error}"
        ) from None


def _show_server_packages(directory: Path) -> None:
    """Let the environment's interpreter find the server's packages, after its own."""
    packages = directory / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    lines = [f"import site; site.addsitedir({each!r})\n" for each in _server_directories()]
    (packages / "halimede-server.pth").write_text("".join(lines))


def _server_directories() -> list[str]:
    """Where the server's packages are, the first found first."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*user, *site.getsitepackages()]


def _key(requirements: Path) -> str:
    """A name for all that decides what is installed."""
    parts = [
        sys.version,
        sys.prefix,
        sys.base_prefix,
        sysconfig.get_platform(),
        *platform.libc_ver(),
        *_server_packages(),
        *_content(requirements, set()),
    ]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def _server_packages() -> list[str]:
    """The names of the server's packages, with their versions."""
    return sorted(
        f"{directory}/{found.name}"
        for directory in _server_directories()
        for found in Path(directory).glob("*.dist-info")
    )


def _content(path: Path, seen: set[Path]) -> Iterator[str]:
    """What a file of requirements says, and the state of the files that it names."""
    if path in seen:
        return
    seen.add(path)
    text = path.read_text(errors="surrogateescape")
    yield text
    for line in text.splitlines():
        option = _FILE_OPTION.match(line.strip())
        if option is not None and (path.parent / option[1]).is_file():
            yield from _content(path.parent / option[1], seen)
        else:
            yield from _named(path.parent, line)


def _named(directory: Path, line: str) -> Iterator[str]:
    """The state of the files and directories that a line names, which pip sees from that directory."""
    if line.lstrip().startswith("#"):
        return
    for word in re.split(r"[\s=]+", line):
        path = directory / re.sub(r"\[.*", "", word.removeprefix("file://"))
        if (line.startswith("-") or "/" in word or word.startswith(".")) and path.exists():
            found = path.stat()
            yield f"{path} {found.st_size} {found.st_mtime_ns}"
