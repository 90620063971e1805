"""The limits of cgroups around this process's own hold for it, too."""

from pathlib import Path

import pytest

from halimede.core.cgroups import directories
from halimede.core.cpus import cpu_quota
from halimede.core.idle_cores import IdleCores
from halimede.core.memory import memory_limit

V1 = "9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/a/b\n0::/\n"
V2 = "0::/a/b\n"


class System:
    """The files of a system whose process is in the cgroup `/a/b`, unless the text says otherwise."""

    def __init__(self, directory: Path, own: str) -> None:
        self.proc = directory / "proc"
        self.mount = directory / "cgroup"
        self.write(self.proc / "self" / "cgroup", own)
        self.write(self.proc / "meminfo", "MemTotal: 8000 kB\n")

    def write(self, file: Path, text: str) -> None:
        """Write a file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def limit_memory(self, own: str, limits: dict[str, str]) -> int:
        """The limit of memory if these cgroups have these ones."""
        root, name = (
            (self.mount / "memory", "memory.limit_in_bytes") if own == V1 else (self.mount, "memory.max")
        )
        for cgroup, limit in limits.items():
            self.write(root / cgroup / name, limit)
        return memory_limit(self.proc, self.mount)


@pytest.mark.parametrize("own", [V1, V2])
@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({".": "max", "a": "max", "a/b": "3000"}, 3000),
        ({".": "max", "a": "2000", "a/b": "3000"}, 2000),
        ({".": "1000", "a": "2000", "a/b": "3000"}, 1000),
        ({".": "9223372036854771712", "a": "2000", "a/b": "max"}, 2000),
        ({"a/other": "10", "b": "10", "a/b/below": "10", "a/b": "3000"}, 3000),
        ({".": "max"}, 8000 * 1024),
        ({}, 8000 * 1024),
    ],
)
def test_memory_is_limited_by_each_cgroup_around_the_process(
    tmp_path: Path, own: str, limits: dict[str, str], limit: int
) -> None:
    assert System(tmp_path, own).limit_memory(own, limits) == limit


@pytest.mark.parametrize("own", ["0::/on/the/host\n", "0::/../outside\n", ""])
def test_mount_that_shows_only_the_containers_cgroup_has_its_limit_at_the_root(
    tmp_path: Path, own: str
) -> None:
    system = System(tmp_path, own)
    assert system.limit_memory(own, {".": "2000"}) == 2000
    assert all(each.is_relative_to(system.mount) for each in directories("memory", system.proc, system.mount))


@pytest.mark.parametrize(("outer", "inner", "quota"), [("max", "50000", 0.5), ("20000", "50000", 0.2)])
def test_processors_are_limited_by_each_cgroup_around_the_process(
    tmp_path: Path, outer: str, inner: str, quota: float
) -> None:
    system = System(tmp_path, V2)
    system.write(system.mount / "a" / "cpu.max", f"{outer} 100000")
    system.write(system.mount / "a" / "b" / "cpu.max", f"{inner} 100000")
    found, cgroup = cpu_quota(system.proc, system.mount)
    assert found == quota
    assert cgroup == (system.mount / "a" if outer != "max" else system.mount / "a" / "b")


def test_what_is_left_of_a_quota_is_counted_in_the_cgroup_that_has_it(tmp_path: Path) -> None:
    system = System(tmp_path, V1)
    for file, text in (("cpu.cfs_quota_us", "100000"), ("cpu.cfs_period_us", "100000")):
        system.write(system.mount / "cpu" / "a" / file, text)
    used = system.mount / "cpuacct" / "a" / "cpuacct.usage"
    system.write(used, "0")
    system.write(system.proc / "stat", "".join(f"cpu{number} 0 0 0 0 0\n" for number in range(64)))
    cores = IdleCores(system.proc, system.mount)
    system.write(system.proc / "stat", "".join(f"cpu{number} 0 0 0 900000 0\n" for number in range(64)))
    assert 0.9 < cores.measure()[0] <= 1
    system.write(system.proc / "stat", "".join(f"cpu{number} 0 0 0 1800000 0\n" for number in range(64)))
    system.write(used, str(10**15))
    assert cores.measure()[0] == 0
