"""What lies in the directory of a node's store, and how each of it is called.

    DIRECTORY/
      lock                  held while room is counted and made
      model-KEY/            a model that may be used; who uses it holds a shared lock on this directory
        about.json          what it takes on disk, and its name
        stamp               its time is that of the last use
        model/              the extracted archive
      fetch-KEY/            a model that is being fetched, by whoever holds the lock of this directory; or by nobody
        about.json          the room that is kept for it
        archive             as much of it as has been fetched
        entry/              what becomes model-KEY
      trash-RANDOM/         what is being removed

KEY follows from the archive's name and ETag. Whatever else is there is left alone.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from halimede.hosting.store.source import Offer

_NAME = re.compile(r"(model|fetch|trash)-[0-9a-f]{32}")
_ABOUT = "about.json"


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a model on disk.

    Attributes:
        name: the URL of its archive.
        disk_bytes: what it takes on disk, or is kept for it while it is fetched.
    """

    name: str
    disk_bytes: int

    def write(self, directory: Path) -> None:
        """Write it into a directory, all of it or nothing."""
        beside = directory / f"{_ABOUT}.new"
        beside.write_text(json.dumps(asdict(self)))
        beside.rename(directory / _ABOUT)

    @staticmethod
    def forget(directory: Path) -> None:
        """Have a directory say nothing."""
        (directory / _ABOUT).unlink(missing_ok=True)

    @classmethod
    def read(cls, directory: Path) -> "About | None":
        """What a directory says; None if it says nothing that makes sense."""
        try:
            fields = json.loads((directory / _ABOUT).read_bytes())
            return cls(str(fields["name"]), int(fields["disk_bytes"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


class Layout:
    """The paths in a directory, which is made."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = directory / "lock"
        directory.mkdir(parents=True, exist_ok=True)
        self.lock.touch()

    def model(self, key: str) -> Path:
        """The directory of a model that may be used."""
        return self.directory / f"model-{key}"

    def fetch(self, key: str) -> Path:
        """The directory in which a model is made."""
        return self.directory / f"fetch-{key}"

    def is_made(self, fetch: Path) -> bool:
        """Whether the model of a directory in which it was made may be used."""
        return self.model(fetch.name.removeprefix("fetch-")).exists()

    def all(self, kind: str) -> Iterator[Path]:
        """The directories of a kind: ``model``, ``fetch`` or ``trash``."""
        with os.scandir(self.directory) as found:
            for entry in found:
                if entry.name.startswith(kind) and _NAME.fullmatch(entry.name):
                    yield Path(entry.path)

    def remove(self, path: Path) -> None:
        """Remove a directory: from the eyes of others at once."""
        trash = self.directory / f"trash-{secrets.token_hex(16)}"
        with suppress(FileNotFoundError):
            path.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)


def key_of(offer: Offer) -> str:
    """What tells an archive from others: its name and its version."""
    identity = json.dumps([offer.name, offer.etag, offer.size])
    return sha256(identity.encode()).hexdigest()[:32]
