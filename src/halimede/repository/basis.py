"""What a loaded version stands on, to be compared with what a directory holds now."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Basis:
    """What a version was loaded from. Equal bases: loading again would give the same.

    Attributes:
        directory: the model's directory.
        files: digests of the version's files and of those that all versions share.
        config: the configuration without its version policy, serialised.
    """

    directory: Path
    files: tuple[bytes, bytes]
    config: bytes
