import os
from pathlib import Path

import numpy as np
import pytest

from halimede.core.memory import heap_bytes, memory_limit, private_bytes

GIB = 1 << 30


def machine(directory: Path, kilobytes: int) -> Path:
    proc = directory / "proc"
    proc.mkdir()
    (proc / "meminfo").write_text(f"MemTotal:       {kilobytes} kB\nMemFree:        123 kB\n")
    return proc


@pytest.mark.parametrize(
    ("file", "text", "limit"),
    [
        ("memory.max", f"{GIB}\n", GIB),
        ("memory.max", "max\n", 4 * GIB),
        ("memory.max", f"{8 * GIB}\n", 4 * GIB),
        ("memory/memory.limit_in_bytes", f"{GIB}\n", GIB),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", 4 * GIB),
        ("memory.other", "1\n", 4 * GIB),
    ],
)
def test_limit_is_the_smaller_of_the_machines_and_the_cgroups(
    tmp_path: Path, file: str, text: str, limit: int
) -> None:
    proc = machine(tmp_path, 4 * GIB // 1024)
    (tmp_path / "cgroup" / "memory").mkdir(parents=True)
    (tmp_path / "cgroup" / file).write_text(text)
    assert memory_limit(proc, tmp_path / "cgroup") == limit


def test_limit_is_that_of_the_cgroup_where_the_machine_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000")
    assert memory_limit(tmp_path / "nowhere", tmp_path) == 1000
    assert memory_limit(tmp_path / "nowhere", tmp_path / "nowhere") == 0


def test_this_machine_tells() -> None:
    assert memory_limit() > 64 << 20


def test_private_memory_grows_by_what_is_written_and_shrinks_when_that_is_given_back() -> None:
    before = private_bytes()
    block = bytearray(64 << 20)
    for page in range(0, len(block), 4096):
        block[page] = 1
    grown = private_bytes()
    assert 60 << 20 < grown - before < 80 << 20
    del block
    assert private_bytes() < grown - (56 << 20)


def test_allocated_memory_is_counted_even_if_it_was_never_written() -> None:
    before = heap_bytes()
    block = np.empty(64 << 20, np.uint8)
    assert heap_bytes() - before > 60 << 20
    del block
    assert heap_bytes() - before < 4 << 20


def test_memory_of_a_process_that_is_gone_is_nothing() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert private_bytes(child) == 0


def test_private_memory_leaves_out_what_is_shared_with_another_process(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    rollup = tmp_path / "7" / "smaps_rollup"
    rollup.write_text("5580-7ffc ---p 0 [rollup]\nPrivate_Dirty:      300 kB\nAnonymous:      900 kB\n")
    assert private_bytes(7, tmp_path) == 300 * 1024
    rollup.write_text("an old kernel's\n")
    assert private_bytes(7, tmp_path) == 0
