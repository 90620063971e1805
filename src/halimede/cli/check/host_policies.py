"""`--host-policy`: policies by name."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from halimede.core.host_policies import HostPolicy

_NODES: Final = Path("/sys/devices/system/node")
_SETTINGS: Final = ("numa-node", "cpu-cores")
_CPU_RANGE: Final = re.compile("([0-9]{1,9})-([0-9]{1,9})")
_MAX_CPUS: Final = 8192
"""No Linux has more."""


def host_policies(entries: Iterable[str]) -> dict[str, HostPolicy]:
    """The policies that the flag describes; of a setting that is given again, the last value holds.

    Raises:
        click.UsageError: one is malformed, or cannot be had on this machine.
    """
    settings: dict[str, dict[str, str]] = {}
    for entry in entries:
        front, _, value = entry.partition("=")
        name, _, key = front.partition(",")
        if not (name and key and value):
            msg = f"--host-policy option format is '<policy_name>,<setting>=<value>'. Got {entry}"
            raise click.UsageError(msg)
        if key not in _SETTINGS:
            supported = ", ".join(f"'{each}'" for each in _SETTINGS)
            msg = f"Unsupported host policy setting '{key}' is specified, supported settings are {supported}"
            raise click.UsageError(msg)
        settings.setdefault(name, {})[key] = value
    return {name: _policy(name, values) for name, values in settings.items()}


def _policy(name: str, values: dict[str, str]) -> HostPolicy:
    if not hasattr(os, "sched_setaffinity"):
        msg = f"--host-policy {name}: processors can be chosen on Linux only"
        raise click.UsageError(msg)
    node = _node(values["numa-node"]) if "numa-node" in values else None
    cpus = _cores(values["cpu-cores"]) if "cpu-cores" in values else _cpus_of(node or 0)
    policy = HostPolicy(cpus, node)
    try:
        with policy.held():
            pass
    except OSError as error:
        written = ", ".join(f"{key}={value}" for key, value in values.items())
        msg = (
            f"--host-policy {name},{written}: this machine does not grant it: {error.strerror}. This process may use "
            f"the CPUs {_ranges(os.sched_getaffinity(0))}; memory of one NUMA node may need CAP_SYS_NICE in a container"
        )
        raise click.UsageError(msg) from None
    return policy


def _cores(text: str) -> tuple[int, ...]:
    if not (range_ := _CPU_RANGE.fullmatch(text)) or not int(range_[1]) <= int(range_[2]) < _MAX_CPUS:
        msg = (
            f"host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got {text}"
        )
        raise click.UsageError(msg)
    return tuple(range(int(range_[1]), int(range_[2]) + 1))


def _node(text: str) -> int:
    if not (re.fullmatch("[0-9]{1,9}", text) and (_NODES / f"node{int(text)}").is_dir()):
        there = sorted(int(each.name.removeprefix("node")) for each in _NODES.glob("node[0-9]*"))
        nodes = ", ".join(map(str, there)) or "none"
        msg = f"host policy setting 'numa-node': there is no NUMA node '{text}' on this machine; there are: {nodes}"
        raise click.UsageError(msg)
    return int(text)


def _cpus_of(node: int) -> tuple[int, ...]:
    """The CPUs of a node."""
    cpus: list[int] = []
    for part in (_NODES / f"node{node}" / "cpulist").read_text().strip().split(","):
        low, _, high = part.partition("-")
        cpus += range(int(low), int(high or low) + 1)
    return tuple(cpus)


def _ranges(cpus: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))
