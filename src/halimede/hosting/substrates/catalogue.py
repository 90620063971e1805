"""Instance types and what an instance of each may use: a table that a TOML file can extend.

["ml.my.large"]
cpus = 8
memory_gib = 32
gpus = 1
reserve_memory = true
resources = { accelerator = 1 }
"""

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from halimede.hosting.errors import invalid
from halimede.hosting.substrates.base import Resources
from halimede.hosting.substrates.instance_types import INSTANCE_TYPES

_GIB = 1 << 30


def _sizes(cpus: float, memory_gib: float, gpus: int = 0) -> Resources:
    return Resources(cpus, int(memory_gib * _GIB), gpus)


_NUMBERS: Mapping[str, tuple[type[int | float], ...]] = {
    "cpus": (int, float),
    "memory_gib": (int, float),
    "gpus": (int,),
}
_FIELDS = (*_NUMBERS, "reserve_memory", "resources")


class CatalogueError(Exception):
    """The file of instance types cannot be used; the text says where and why."""


class Catalogue:
    """The instance types.

    An instance never gets more than the machine has: published code that asks for a large machine runs on a small one.
    """

    def __init__(
        self,
        machine: Resources,
        further: Mapping[str, Resources] | None = None,
        largest: Callable[[], Resources] | None = None,
    ) -> None:
        """A catalogue.

        Args:
            machine: this machine.
            further: types that come on top of SageMaker's.
            largest: the most that an instance can have; what this machine has if it is None.
        """
        self._largest = largest or (lambda: machine)
        local = {
            "ml.local.cpu": replace(machine, cpus=1, gpus=0),
            "ml.local.gpu": replace(machine, cpus=1, gpus=1),
        }
        own = {**local, **(further or {})}
        self._own = list(own)
        self._types = {**own, **INSTANCE_TYPES, **own}  # its own are named first

    @property
    def names(self) -> list[str]:
        """The types."""
        return list(self._types)

    def resources(self, name: str) -> Resources:
        """What an instance of a type may use here.

        Raises:
            ApiError: there is no such type; the text names the host's own and the most similar ones.
        """
        wanted = self._types.get(name)
        if wanted is None:
            known = ", ".join(dict.fromkeys([*get_close_matches(name, self._types), *self._own]))
            msg = (
                f"there is no instance type '{name}' in this host's catalogue; there are {known} and SageMaker's "
                f"types. Others can be added with --catalogue"
            )
            raise invalid(msg)
        machine = self._largest()
        return Resources(
            min(wanted.cpus, machine.cpus),
            min(wanted.memory_bytes, machine.memory_bytes),
            min(wanted.gpus, machine.gpus),
            min(wanted.reserved_bytes, machine.memory_bytes),
            wanted.custom,
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
        kinds = _NUMBERS.get(field)
        if field not in _FIELDS:
            raise CatalogueError(f"{where}: unknown field '{field}'; there are {', '.join(_FIELDS)}")
        if field == "resources":
            _check_custom(where, value)
        elif kinds is None:
            if not isinstance(value, bool):
                raise CatalogueError(f"{where}: '{field}' must be true or false, got {value!r}")
        elif not isinstance(value, kinds) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise CatalogueError(f"{where}: '{field}' must be a number of at least 0, got {value!r}")
    missing = [field for field in ("cpus", "memory_gib") if field not in table]
    if missing:
        raise CatalogueError(f"{where}: '{missing[0]}' is missing")
    sizes = _sizes(table["cpus"], table["memory_gib"], table.get("gpus", 0))
    sizes = replace(
        sizes, custom={name: float(amount) for name, amount in table.get("resources", {}).items()}
    )
    return replace(sizes, reserved_bytes=sizes.memory_bytes) if table.get("reserve_memory") else sizes


def _check_custom(where: str, value: object) -> None:
    """Refuse what names no resources of a cluster's nodes."""
    amounts = value.values() if isinstance(value, dict) else [None]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) and each > 0 for each in amounts):
        raise CatalogueError(
            f"{where}: 'resources' must be a table of numbers above 0, such as {{ accelerator = 1 }}, got {value!r}"
        )


def this_machine(gpus: int) -> Resources:
    """What this machine has, and what of it this process may use."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Resources(len(os.sched_getaffinity(0)), memory, gpus)
