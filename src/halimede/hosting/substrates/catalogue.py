"""Instance types and what an instance of each may use: a table that a TOML file can extend.

["ml.my.large"]
cpus = 8
memory_gib = 32
gpus = 1
reserve_memory = true
"""

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from halimede.hosting.errors import invalid
from halimede.hosting.substrates.base import Resources

_GIB = 1 << 30


def _sizes(cpus: float, memory_gib: float, gpus: int = 0) -> Resources:
    return Resources(cpus, int(memory_gib * _GIB), gpus)


_TYPES: Mapping[str, Resources] = {
    "ml.m5.large": _sizes(2, 8),
    "ml.m5.xlarge": _sizes(4, 16),
    "ml.m5.2xlarge": _sizes(8, 32),
    "ml.m5.4xlarge": _sizes(16, 64),
    "ml.c5.large": _sizes(2, 4),
    "ml.c5.xlarge": _sizes(4, 8),
    "ml.c5.2xlarge": _sizes(8, 16),
    "ml.c5.4xlarge": _sizes(16, 32),
    "ml.g4dn.xlarge": _sizes(4, 16, 1),
    "ml.g4dn.2xlarge": _sizes(8, 32, 1),
    "ml.g4dn.4xlarge": _sizes(16, 64, 1),
    "ml.g4dn.8xlarge": _sizes(32, 128, 1),
    "ml.g4dn.12xlarge": _sizes(48, 192, 4),
    "ml.g4dn.16xlarge": _sizes(64, 256, 1),
    "ml.g5.xlarge": _sizes(4, 16, 1),
    "ml.g5.2xlarge": _sizes(8, 32, 1),
    "ml.g5.8xlarge": _sizes(32, 128, 1),
    "ml.p3.2xlarge": _sizes(8, 61, 1),
    "ml.p3.8xlarge": _sizes(32, 244, 4),
    "ml.p3.16xlarge": _sizes(64, 488, 8),
    "ml.inf2.xlarge": _sizes(4, 16),
    "ml.inf2.24xlarge": _sizes(96, 384),
}

_FIELDS = {"cpus": (int, float), "memory_gib": (int, float), "gpus": (int,), "reserve_memory": (bool,)}


class CatalogueError(Exception):
    """The file of instance types cannot be used; the text says where and why."""


class Catalogue:
    """The instance types.

    An instance never gets more than the machine has: published code that asks for a large machine runs on a small one.
    """

    def __init__(self, machine: Resources, further: Mapping[str, Resources] | None = None) -> None:
        """A catalogue for a machine; `further` types come on top of the usual ones."""
        self._machine = machine
        local = {
            "ml.local.cpu": replace(machine, cpus=1, gpus=0),
            "ml.local.gpu": replace(machine, cpus=1, gpus=1),
        }
        self._types = {**local, **_TYPES, **(further or {})}

    @property
    def names(self) -> list[str]:
        """The types."""
        return list(self._types)

    def resources(self, name: str) -> Resources:
        """What an instance of a type may use here.

        Raises:
            ApiError: there is no such type; the text names those that there are.
        """
        wanted = self._types.get(name)
        if wanted is None:
            msg = (
                f"there is no instance type '{name}' in this host's catalogue; there are {', '.join(self._types)}. "
                f"Others can be added with --catalogue"
            )
            raise invalid(msg)
        machine = self._machine
        return Resources(
            min(wanted.cpus, machine.cpus),
            min(wanted.memory_bytes, machine.memory_bytes),
            min(wanted.gpus, machine.gpus),
            min(wanted.reserved_bytes, machine.memory_bytes),
        )


def read_catalogue(path: Path) -> Mapping[str, Resources]:
    """The instance types of a file.

    Raises:
        CatalogueError: it cannot be read, or says something else than instance types.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(f"cannot read the catalogue {path}: {error}") from error
    return {name: _read(path, name, table) for name, table in document.items()}


def _read(path: Path, name: str, table: object) -> Resources:
    where = f'the catalogue {path}, ["{name}"]'
    if not name.startswith("ml."):
        raise CatalogueError(f"{where}: the name of an instance type begins with 'ml.'")
    if not isinstance(table, dict):
        raise CatalogueError(f"{where}: expected a table with {', '.join(_FIELDS)}")
    for field, value in table.items():
        kinds = _FIELDS.get(field)
        if kinds is None:
            raise CatalogueError(f"{where}: unknown field '{field}'; there are {', '.join(_FIELDS)}")
        if kinds == (bool,):
            if not isinstance(value, bool):
                raise CatalogueError(f"{where}: '{field}' must be true or false, got {value!r}")
        elif not isinstance(value, kinds) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise CatalogueError(f"{where}: '{field}' must be a number of at least 0, got {value!r}")
    missing = [field for field in ("cpus", "memory_gib") if field not in table]
    if missing:
        raise CatalogueError(f"{where}: '{missing[0]}' is missing")
    sizes = _sizes(table["cpus"], table["memory_gib"], table.get("gpus", 0))
    return replace(sizes, reserved_bytes=sizes.memory_bytes) if table.get("reserve_memory") else sizes


def this_machine(gpus: int) -> Resources:
    """What this machine has, and what of it this process may use."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Resources(len(os.sched_getaffinity(0)), memory, gpus)
