import os
import signal
from pathlib import Path

import pytest

from halimede.workers.exit_reason import ExitReason, count_oom_kills


def _write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ExitReason(0), "exited with status 0"),
        (ExitReason(3 << 8), "exited with status 3"),
        (ExitReason(signal.SIGSEGV), "crashed with SIGSEGV, a fault in native code"),
        (ExitReason(signal.SIGSEGV | 0x80), "crashed with SIGSEGV, a fault in native code (core dumped)"),
        (ExitReason(signal.SIGTERM), "was killed by SIGTERM"),
        (ExitReason(40), "was killed by signal 40"),
        (ExitReason(signal.SIGKILL, killed=True), "was killed by the server"),
        (ExitReason(signal.SIGKILL, killed=True, oom_kills=1), "was killed by the server"),
        (ExitReason(3 << 8, killed=True), "exited with status 3"),
        (ExitReason(None), "ended; how is not known"),
        (ExitReason(None, killed=True), "was killed by the server"),
    ],
)
def test_an_exit_is_told_in_words(reason: ExitReason, words: str) -> None:
    assert reason.words == words


def test_sigkill_tells_whether_the_out_of_memory_killer_has_acted() -> None:
    assert "perhaps by the kernel's out-of-memory killer" in ExitReason(signal.SIGKILL).words
    assert "not by the kernel's out-of-memory killer" in ExitReason(signal.SIGKILL, oom_kills=0).words
    one = ExitReason(signal.SIGKILL, oom_kills=1).words
    assert "probably by the kernel's out-of-memory killer" in one
    assert "ended a process while it ran" in one
    assert "ended 2 processes while it ran" in ExitReason(signal.SIGKILL, oom_kills=2).words


def test_oom_kills_are_read_from_the_cgroup_of_version_2(tmp_path: Path) -> None:
    _write(tmp_path, "proc/self/cgroup", "0::/pod/main\n")
    _write(tmp_path, "proc/vmstat", "nr_free_pages 1\noom_kill 9\n")
    _write(tmp_path, "sys/fs/cgroup/pod/main/memory.events", "low 0\noom 5\noom_kill 3\noom_group_kill 1\n")
    assert count_oom_kills(tmp_path) == 3


def test_oom_kills_are_read_where_the_container_sees_its_cgroup_as_the_root(tmp_path: Path) -> None:
    _write(tmp_path, "proc/self/cgroup", "0::/host/path\n")
    _write(tmp_path, "sys/fs/cgroup/memory.events", "oom 5\noom_kill 4\n")
    assert count_oom_kills(tmp_path) == 4


def test_oom_kills_are_read_from_the_memory_cgroup_of_version_1(tmp_path: Path) -> None:
    _write(tmp_path, "proc/self/cgroup", "3:cpu,cpuacct:/a\n2:memory:/a/b\n0::/\n")
    _write(tmp_path, "sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n")
    assert count_oom_kills(tmp_path) == 2


def test_without_a_cgroup_the_systems_oom_kills_count(tmp_path: Path) -> None:
    _write(tmp_path, "proc/vmstat", "nr_free_pages 1\noom_kill 9\n")
    assert count_oom_kills(tmp_path) == 9


def test_unreadable_oom_kills_are_unknown(tmp_path: Path) -> None:
    assert count_oom_kills(tmp_path) is None


def test_the_words_fit_what_the_kernel_says_of_a_real_process() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    assert ExitReason(os.waitpid(pid, 0)[1]).words == "exited with status 5"
