import os
import subprocess
import sys

import pytest

GLIBC = "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "") if sys.platform == "linux" else False


def run(script: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


KEEP = "from halimede.cli.tuning import keep_freed_memory; print(keep_freed_memory())"
FAULTS = """
import resource
from halimede.cli.tuning import keep_freed_memory
assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytes(bytearray(40 << 20))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""
COLLECTOR = """
import gc
from halimede.cli.tuning import tune_garbage_collector
tune_garbage_collector()
assert gc.isenabled() and gc.get_threshold()[0] > 700
assert gc.get_freeze_count() > 1000
class Node: pass
import weakref
node = Node(); node.me = node
gone = weakref.ref(node)
del node
gc.collect()
print(gone() is None)
"""


@pytest.mark.skipif(not GLIBC, reason="other C libraries have no such thresholds")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    assert run(KEEP) == "True"
    assert int(run(FAULTS)) < 1000  # 20,000 without


def test_thresholds_of_the_environment_are_left_alone() -> None:
    assert run(KEEP, MALLOC_TRIM_THRESHOLD_="1000000") == "False"


def test_the_collector_still_finds_cycles() -> None:
    assert run(COLLECTOR) == "True"


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    code = (
        "import resource; from halimede.cli.tuning import allow_open_files\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512)); allow_open_files()\n"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60).stdout
    assert printed.split() == [b"512", b"512"]
