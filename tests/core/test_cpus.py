import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os
from halimede.core.cpus import yield_processors
yield_processors()
print(os.sched_getscheduler(0) == os.SCHED_IDLE)
print(open("/proc/self/autogroup").read().split()[-1])
"""


def told(*, own_session: bool) -> list[str]:
    """Whether the process has only what others leave, and the niceness of its session."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=own_session,
    )
    return ended.stdout.split()


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel has no groups of sessions")
def test_process_that_yields_has_the_least_share_of_processors() -> None:
    assert told(own_session=True) == ["True", "19"]


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel has no groups of sessions")
def test_process_that_yields_does_not_make_others_of_its_session_yield() -> None:
    before = Path("/proc/self/autogroup").read_text().split()[-1]
    assert told(own_session=False) == ["True", before]
    assert os.sched_getscheduler(0) != os.SCHED_IDLE
