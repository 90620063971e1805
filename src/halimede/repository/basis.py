"""What a loaded version stands on, to be compared with what a directory holds now."""

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Basis:
    """What a version was loaded from. Equal bases: loading again would give the same.

    Attributes:
        directory: the model's directory.
        files: digests of the version's files and of those that all versions share.
        config: the configuration without its version policy and its instance groups, serialised.
        instances: the instance groups.
    """

    directory: Path
    files: tuple[bytes, bytes]
    config: bytes
    instances: tuple[bytes, ...] = ()

    def differs_in_instances(self, other: "Basis | None") -> bool:
        """Whether nothing but the instance groups is different."""
        return other is not None and self != other and replace(self, instances=other.instances) == other
