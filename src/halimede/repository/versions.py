"""Versions of a model: which lie on disk, and which of them its version policy selects."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from halimede.config.model_config_pb2 import ModelVersionPolicy
from halimede.core.versions import version_number

logger = logging.getLogger("halimede")

OTHER_DIRECTORIES = frozenset({"warmup", "initial_state", "configs"})
"""Directories that a model may have beside those of its versions."""

_IGNORED: Final = {
    "zero": "ignore version directory '%s' of model '%s': versions begin with 1",
    "leading zeros": "ignore version directory '%s' which contains leading zeros in its directory name, of model '%s'",
    "no number": "ignore version directory '%s' which fails to convert to integral number, of model '%s'",
}
"""The log's words, as tritonserver has them."""


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
            logger.warning(_IGNORED[_fault(entry.name)], entry.name, directory.name)
    return sorted(versions)


def _fault(name: str) -> str:
    if name == "0":
        return "zero"
    return "leading zeros" if name.isascii() and name.isdecimal() and name.startswith("0") else "no number"


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
