"""Versions of a model: which lie on disk, and which of them its version policy selects."""

import logging
from collections.abc import Iterable
from pathlib import Path

from halimede.config.model_config_pb2 import ModelVersionPolicy
from halimede.core.versions import version_number

logger = logging.getLogger("halimede")

OTHER_DIRECTORIES = frozenset({"warmup", "initial_state", "configs"})
"""Directories that a model may have beside those of its versions."""


def find_versions(directory: Path) -> list[int]:
    """The versions in a model's directory, ascending; warns of directories that are none.

    Raises:
        OSError: the directory cannot be read.
    """
    versions = []
    for entry in directory.iterdir():
        if not entry.is_dir():
            continue
        version = version_number(entry.name)
        if version is not None:
            versions.append(version)
        elif entry.name not in OTHER_DIRECTORIES:
            logger.warning(
                "ignoring directory '%s' of model '%s': a version directory's name is "
                "an integer without leading zeros",
                entry.name,
                directory.name,
            )
    return sorted(versions)


def select_versions(policy: ModelVersionPolicy, found: Iterable[int]) -> list[int]:
    """The versions of `found` that the policy selects, ascending; all if it has no choice, none for ``latest{0}``."""
    versions = sorted(found)
    match policy.WhichOneof("policy_choice"):
        case "specific":
            wanted = set(policy.specific.versions)
            return [version for version in versions if version in wanted]
        case "latest":
            return versions[max(0, len(versions) - policy.latest.num_versions) :]
        case _:
            return versions
