"""Models that come as archives: `model.tar.gz`, as SageMaker keeps them, or a tar file compressed otherwise or not."""

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from halimede.core.errors import (
    AlreadyExistsError,
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
)
from halimede.core.steps import step
from halimede.repository.archives import FULL, NO_ROOM, REFUSED, Rules, command, file_state
from halimede.repository.private_directories import PrivateDirectory

MODEL = Rules(entries=100_000, ratio=200, ratio_from=1 << 30, reserve=256 << 20)
"""What an archive of models may hold: more than any has. Weights can hardly be compressed, and are few files."""

_PREFIX = ".halimede-extracting-"


def extract_model(
    archive: Path,
    directory: Path,
    rules: Rules = MODEL,
    on_started: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> None:
    """Extract an archive of models. Blocks.

    It is extracted in a directory beside, which takes its place when all is there.

    Args:
        archive: the file.
        directory: where to; there must be nothing, or an empty directory. The directory above it must be there.
        rules: what the archive may hold.
        on_started: told the program that extracts; whoever kills it gets an InternalError.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it cannot be read, is no archive, damaged or empty, or holds what it may not.
        OutOfMemoryError: the disk has no room for what is in it.
        AlreadyExistsError: there is something in the directory.
        InternalError: it cannot be extracted for another reason. Nothing is left after any error.
    """
    _check_free(directory)
    with _opened(archive) as file, _beside(directory) as beside:
        content = beside.path / "content"
        state = file_state(file)
        _run(archive, file, content, rules, beside.lock, on_started)
        if file_state(file) != state:
            raise InvalidArgumentError(f"model archive '{archive}' was changed while it was extracted")
        if not any(content.iterdir()):
            raise InvalidArgumentError(f"model archive '{archive}' is empty")
        content.rename(directory)


def _check_free(directory: Path) -> None:
    try:
        taken = os.path.lexists(directory) and (not directory.is_dir() or any(directory.iterdir()))
    except OSError as error:
        raise _cannot_make(directory, error) from error
    if taken:
        raise AlreadyExistsError(f"there is something at '{directory}' already")


@contextmanager
def _opened(archive: Path) -> Iterator[FileIO]:
    try:
        # a pipe without a writer would not open
        descriptor = os.open(archive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no model archive '{archive}'") from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgumentError(f"cannot read model archive '{archive}': {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidArgumentError(f"model archive '{archive}' is no file")
    with FileIO(descriptor) as file:
        yield file


@contextmanager
def _beside(directory: Path) -> Iterator[PrivateDirectory]:
    """A directory in which to make the other one.

    Raises:
        HalimedeError: one of them cannot be made.
    """
    try:
        beside = PrivateDirectory.make(directory.parent, _PREFIX)
        try:
            # what it becomes may be as open as other directories
            (beside.path / "content").mkdir()
            yield beside
        finally:
            beside.remove()
    except OSError as error:
        raise _cannot_make(directory, error) from error


def _cannot_make(directory: Path, error: OSError) -> HalimedeError:
    text = f"cannot make the directory '{directory}': {error.strerror}"
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
        return AlreadyExistsError(text)
    return OutOfMemoryError(text) if error.errno in FULL else InternalError(text)


def _run(
    archive: Path,
    file: FileIO,
    content: Path,
    rules: Rules,
    lock: int,
    on_started: Callable[[subprocess.Popen[bytes]], None] | None,
) -> None:
    program = command(content, rules)
    try:
        # a session of its own: the terminal's signals don't reach it
        process = subprocess.Popen(  # noqa: S603 - the server's own program
            program,
            stdin=file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[lock],
            start_new_session=True,
        )
    except OSError as error:
        raise InternalError(f"cannot run '{program[0]}' to extract an archive: {error.strerror}") from error
    size = os.fstat(file.fileno()).st_size
    # the program reads from the same open file, whose position tells how far it is
    with process, step(f"Extracting {archive.name}", size, of_bytes=True, position=file.tell):
        if on_started is not None:
            on_started(process)
        stderr = process.communicate()[1]
    said = stderr.decode(errors="replace").strip()
    match process.returncode:
        case 0:
            return
        case code if code == REFUSED:
            raise InvalidArgumentError(f"model archive '{archive}' cannot be extracted: {said}")
        case code if code == NO_ROOM:
            raise OutOfMemoryError(f"model archive '{archive}' cannot be extracted: {said}")
        case code:
            last = said.rpartition("\n")[2] or f"its program ended with {code}"
            raise InternalError(f"model archive '{archive}' cannot be extracted: {last}")
