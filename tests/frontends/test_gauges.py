from pathlib import Path

import pytest

from halimede.core.clock import SECOND, VirtualClock
from halimede.frontends.gauges import CpuUtilization, memory_bytes


def write_stat(proc: Path, user: int, idle: int, iowait: int = 0) -> None:
    (proc / "stat").write_text(f"cpu  {user} 0 0 {idle} {iowait} 0 0 0 7 7\ncpu0 1 1 1 1\n")


def test_utilization_is_the_busy_share_since_the_last_measurement(tmp_path: Path) -> None:
    clock = VirtualClock()
    write_stat(tmp_path, user=100, idle=100)
    gauge = CpuUtilization(clock, 1000, tmp_path)
    write_stat(tmp_path, user=130, idle=160, iowait=10)
    clock.advance(SECOND)
    assert gauge.read() == pytest.approx(0.3)


def test_utilization_is_measured_once_an_interval(tmp_path: Path) -> None:
    clock = VirtualClock()
    write_stat(tmp_path, user=0, idle=0)
    gauge = CpuUtilization(clock, 1000, tmp_path)
    write_stat(tmp_path, user=50, idle=50)
    clock.advance(SECOND // 2)
    assert gauge.read() == 0.0
    clock.advance(SECOND // 2)
    assert gauge.read() == 0.5
    write_stat(tmp_path, user=150, idle=50)
    assert gauge.read() == 0.5
    clock.advance(SECOND)
    assert gauge.read() == 1.0


def test_memory_in_use_is_what_is_not_available(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nHugePages: 0\n"
    )
    assert memory_bytes(tmp_path) == (1_024_000, 614_400)


def test_a_system_without_proc_tells_nothing(tmp_path: Path) -> None:
    clock = VirtualClock()
    gauge = CpuUtilization(clock, 1000, tmp_path)
    clock.advance(SECOND)
    assert gauge.read() == 0.0
    assert memory_bytes(tmp_path) is None
