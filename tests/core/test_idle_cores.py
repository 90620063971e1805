import os
import threading
from pathlib import Path

import pytest

from halimede.core import idle_cores
from halimede.core.idle_cores import IdleCores

TICKS = os.sysconf("SC_CLK_TCK")
SECOND = 1_000_000_000


class System:
    """Files of a system with four cores, of which this process may use all but `cpu3`, and a clock."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = SECOND
        self.proc = directory / "proc"
        self.cgroup = directory / "cgroup"
        self.proc.mkdir()
        self.cgroup.mkdir()
        monkeypatch.setattr(idle_cores, "_own_cores", lambda: {0, 1, 2})
        monkeypatch.setattr(idle_cores, "monotonic_ns", lambda: self.now_ns)
        self.idle(0, 0, 0, 0)

    def idle(self, *seconds: float) -> None:
        """What the cores have been idle since the start."""
        lines = ["cpu  1 2 3 4 5 6 7 8 9 10"]
        lines += [f"cpu{core} 9 9 9 {int(TICKS * idle)} 0 9 9 9 0 0" for core, idle in enumerate(seconds)]
        (self.proc / "stat").write_text("\n".join([*lines, "intr 1 2 3", ""]))


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


def test_own_cores_count_from_one_look_to_the_next(system: System) -> None:
    cores = IdleCores(system.proc, system.cgroup)
    system.now_ns += SECOND
    system.idle(1, 0.5, 0, 1)
    assert cores.measure()[0] == pytest.approx(1.5)
    system.now_ns += 2 * SECOND
    system.idle(1, 0.5, 1, 9)
    assert cores.measure()[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("files", "usage"),
    [
        ({"cpu.max": "150000 100000"}, ("cpu.stat", "usage_usec 1200000\nuser_usec 3")),
        (
            {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"},
            ("cpuacct/cpuacct.usage", "1200000000"),
        ),
    ],
)
def test_quota_of_the_cgroup_leaves_no_more_than_it_has_left(
    system: System, files: dict[str, str], usage: tuple[str, str]
) -> None:
    name, text = usage
    for path, content in {**files, name: text.replace("12", "00")}.items():
        (system.cgroup / path).parent.mkdir(exist_ok=True)
        (system.cgroup / path).write_text(content)
    cores = IdleCores(system.proc, system.cgroup)
    system.now_ns += SECOND
    system.idle(1, 1, 1, 1)
    (system.cgroup / name).write_text(text)
    assert cores.measure()[0] == pytest.approx(0.3)


def test_system_that_tells_nothing_has_no_idle_cores(tmp_path: Path) -> None:
    assert IdleCores(tmp_path, tmp_path).measure() == (0.0, 0.0)


def test_thread_that_had_to_wait_for_a_core_is_seen(system: System) -> None:
    def queued(seconds: float) -> None:
        for task in system.proc.glob("self/task/*"):
            (task / "schedstat").write_text(f"5 {int(seconds * SECOND)} 7")

    (system.proc / "self/task" / str(threading.get_native_id())).mkdir(parents=True)
    queued(3)
    cores = IdleCores(system.proc, system.cgroup)
    system.now_ns += SECOND
    cores.measure()
    queued(3.25)
    system.now_ns += SECOND
    assert cores.measure()[1] == pytest.approx(0.25)
