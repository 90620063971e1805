"""Archives of Python environments that have been extracted: each content once, for as long as a model uses it.

They lie in a private directory below the system's temporary one, which goes when the server stops; what a killed
server has left there goes when the next one extracts an archive. Or they lie in a cache directory and stay.
"""

import hashlib
import logging
import os
import tempfile
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Protocol

from halimede.core.errors import InternalError
from halimede.core.steps import Step, step
from halimede.repository.archives import ENVIRONMENT, command, file_state
from halimede.repository.private_directories import PrivateDirectory
from halimede.workers.built_directories import build_once, place_in, remove
from halimede.workers.programs import ProgramError, Programs

logger = logging.getLogger("halimede")

_PREFIX = "halimede-environments-"


class Finish(Protocol):
    """What makes an environment of a directory into which an archive has been extracted."""

    def __call__(self, directory: Path, lock: int) -> None:
        """Raise a HalimedeError if it is none."""


@dataclass(slots=True)
class Extracted:
    """A directory with what was in an archive.

    Attributes:
        directory: the directory.
        digest: of the archive's content; "" if it stays anyway.
        users: how many use it.
    """

    directory: Path
    digest: str = ""
    users: int = 0


class ExtractedArchives:
    """The extracted archives of a server. May be used from any thread."""

    def __init__(self, programs: Programs, finish: Finish) -> None:
        """None, so far.

        Args:
            programs: runs the extraction.
            finish: is called with each directory and the descriptor that its programs are to hold open.
        """
        self._programs = programs
        self._finish = finish
        self._lock = threading.Lock()
        self._hashing = threading.Lock()
        self._digests: dict[tuple[int, ...], str] = {}
        self._extracted: dict[str, Extracted] = {}
        self._count = 0
        self._private: PrivateDirectory | None = None

    def acquire(self, path: Path, cache: Path | None) -> Extracted:
        """The directory with the archive's content, until it is given to `release`. Blocks.

        Args:
            path: the archive.
            cache: the directory in which it stays; None for one that goes when nobody uses it.

        Raises:
            HalimedeError: it cannot be extracted; nothing of it is left.
        """
        try:
            with path.open("rb", buffering=0) as archive:
                digest = self._digest(path, archive)
                extracted = self._enter(digest, cache)
                try:
                    build = partial(self._extract, path, archive, extracted.directory)
                    build_once(extracted.directory, build, self._programs.closing)
                except BaseException:
                    self.release(extracted)
                    raise
        except OSError as error:
            raise InternalError(f"cannot read the Python environment '{path}': {error.strerror}") from None
        return extracted

    def release(self, extracted: Extracted) -> None:
        """One user less."""
        if not extracted.digest:
            return
        with self._lock:
            extracted.users -= 1
            if extracted.users or self._private is None:
                return
            del self._extracted[extracted.digest]
        remove(extracted.directory)

    def close(self) -> None:
        """Remove all but what is in a cache directory; nobody uses it any more."""
        with self._lock:
            private, self._private = self._private, None
            if private is None:
                return
        private.remove()

    def _digest(self, path: Path, archive: FileIO) -> str:
        """A hash of the content, taken once for each state of a file."""
        state = file_state(archive)
        with self._hashing:
            if state not in self._digests:
                with _reading("Reading", path, archive):
                    self._digests[state] = hashlib.file_digest(archive, "sha256").hexdigest()[:32]
            return self._digests[state]

    def _enter(self, digest: str, cache: Path | None) -> Extracted:
        """One user more."""
        if cache is not None:
            return Extracted(place_in(cache, "archives", digest))
        with self._lock:
            self._programs.check_open()
            if self._private is None:
                self._private = _make_private()
            if digest not in self._extracted:
                # a number: environments don't bear long paths, nor to get that of one whose zygote still runs
                self._count += 1
                self._extracted[digest] = Extracted(self._private.path / str(self._count), digest)
            extracted = self._extracted[digest]
            extracted.users += 1
            return extracted

    def _extract(self, path: Path, archive: FileIO, directory: Path, lock: int) -> None:
        logger.info("Extracting Python execution env %s", path)
        state = file_state(archive)
        archive.seek(0)
        try:
            with _reading("Extracting", path, archive):
                self._programs.run(
                    command(directory, ENVIRONMENT),
                    standard_input=archive,
                    descriptors=[lock],
                )
        except ProgramError as error:
            raise InternalError(f"cannot extract the Python environment '{path}': {error.said}") from None
        if file_state(archive) != state:
            raise InternalError(f"the Python environment '{path}' was changed while it was extracted")
        self._finish(directory, lock)


def _reading(doing: str, path: Path, archive: FileIO) -> AbstractContextManager[Step]:
    """The step in which the archive is read to its end, here or by a program that it is open for."""
    size = os.fstat(archive.fileno()).st_size
    return step(f"{doing} {path.name}", size, of_bytes=True, position=archive.tell)


def _make_private() -> PrivateDirectory:
    try:
        return PrivateDirectory.make(Path(tempfile.gettempdir()), _PREFIX)
    except OSError as error:
        raise InternalError(f"cannot make a directory for Python environments: {error.strerror}") from None
