import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os
from pathlib import Path
from halimede.core.cpus import yield_processors
yield_processors()
print(os.sched_getscheduler(0) == os.SCHED_IDLE)
autogroup = Path("/proc/self/autogroup")
print(autogroup.read_text() if autogroup.exists() else "")
"""


AUTOGROUP = Path("/proc/self/autogroup")


def session_niceness() -> str:
    """The niceness of this process's session; empty for the session that the kernel itself began, which has none."""
    return "".join(AUTOGROUP.read_text().split()[-1:]) if AUTOGROUP.exists() else ""


def yielded(*, own_session: bool) -> tuple[bool, str]:
    """What a process that yields says: whether it has only what others leave, and its session's niceness."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=own_session,
    )
    only_what_is_left, *autogroup = ended.stdout.split()
    return only_what_is_left == "True", "".join(autogroup[-1:])


def test_process_that_yields_has_only_what_others_leave() -> None:
    least_share = "19" if AUTOGROUP.exists() else ""
    assert yielded(own_session=True) == (True, least_share)


def test_process_that_yields_does_not_make_others_of_its_session_yield() -> None:
    before = session_niceness()
    assert yielded(own_session=False) == (True, before)
    assert os.sched_getscheduler(0) != os.SCHED_IDLE
