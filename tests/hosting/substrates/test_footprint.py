"""What a process and those below it take of the memory."""

import os
import subprocess
import sys

from halimede.hosting.substrates.usage.footprint import memory_of


def test_the_memory_of_children_counts() -> None:
    before = memory_of(os.getpid())
    code = "data = bytearray(b'x' * 50_000_000); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        assert 50_000_000 < memory_of(child.pid) < 150_000_000
        assert memory_of(os.getpid()) > before + 50_000_000
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.wait(60)


def test_a_process_that_is_unknown_or_gone_takes_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait(60)
    assert memory_of(child.pid) == memory_of(0) == 0
