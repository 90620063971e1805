"""The file of a DALI model: a serialized pipeline (`model.dali`), or a module that defines one (`dali.py`)."""

import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from halimede.backends.base import ModelSource
from halimede.backends.dali import serialize
from halimede.backends.dali.definition import Definition
from halimede.backends.file_looks import note
from halimede.core.errors import InvalidArgumentError, NotFoundError, UnsupportedError

logger = logging.getLogger("halimede")

_SERIALIZED = "model.dali"
_MODULE = "dali.py"


def read_definition(source: ModelSource) -> Definition:
    """The model's pipeline. Blocks; a module runs in a process of its own, and not for longer than this.

    Raises:
        NotFoundError: there is no file.
        InvalidArgumentError: it is no pipeline; the text says where and why.
        UnsupportedError: it is one that requests cannot feed.
    """
    path = find_file(source)
    data = _serialize(source, path) if path.suffix == ".py" else path.read_bytes()
    try:
        return Definition.parse(data)
    except (InvalidArgumentError, UnsupportedError) as error:
        seen = note(path) if path.suffix != ".py" and isinstance(error, InvalidArgumentError) else ""
        raise type(error)(f"unable to load model '{source.name}': {path}: {error.message}{seen}") from error


def find_file(source: ModelSource) -> Path:
    """The file that the configuration names, or else the one that is there.

    Raises:
        NotFoundError: there is none.
    """
    named = source.version_directory / (source.config.default_model_filename or _SERIALIZED)
    # as in Triton: the module stands in for a serialized pipeline that is not there
    for path in (named, source.version_directory / _MODULE):
        if path.is_file():
            return path
    msg = (
        f"unable to load model '{source.name}': there is no file {named}; expected a serialized DALI pipeline there "
        f"(pipeline.serialize(filename=...)), or beside it {_MODULE}, with a pipeline that is marked @autoserialize"
    )
    raise NotFoundError(msg)


def _serialize(source: ModelSource, path: Path) -> bytes:
    """The pipeline that a module defines, serialized by a process that runs the module."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory, _SERIALIZED)
        # -P: the script's own directory is no place to look for modules
        command = [sys.executable, "-P", serialize.__file__, str(path), str(target)]
        done = subprocess.run(  # noqa: S603 - our own script
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, errors="replace"
        )
        if done.stderr:
            level = logging.INFO if done.returncode == 0 else logging.ERROR
            logger.log(level, "model '%s', %s:\n%s", source.name, path, done.stderr.rstrip())
        if done.returncode == 0:
            return target.read_bytes()
    reason = " ".join(done.stdout.split()) or f"its process ended with status {done.returncode}"
    raise InvalidArgumentError(f"unable to load model '{source.name}': {path} gave no pipeline: {reason}")
