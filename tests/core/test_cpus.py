import os
import subprocess
import sys
from pathlib import Path

from halimede.core.cpus import lower_priority

SCRIPT = """
import os
from pathlib import Path
from halimede.core.cpus import yield_processors
yield_processors()
print(os.sched_getscheduler(0) == os.SCHED_IDLE)
autogroup = Path("/proc/self/autogroup")
print(autogroup.read_text() if autogroup.exists() else "")
"""


FAMILY = """
import subprocess, sys, threading
threads = []
over = threading.Event()
def run():
    threads.append(threading.get_native_id())
    over.wait()
threading.Thread(target=run, daemon=True).start()
command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
children = [
    subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=leads) for leads in (False, True)
]
while not threads:
    pass
print(threads[0], *(child.pid for child in children), flush=True)
sys.stdin.read()
for child in children:
    child.stdin.close()
    child.wait()
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


def test_lower_priority_is_that_of_all_threads_and_descendants() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as leader:
        assert leader.stdin is not None
        assert leader.stdout is not None
        # a thread of the leader, a child, and a child that leads a session of its own
        tasks = [int(each) for each in leader.stdout.readline().split()]
        before = [os.getpriority(os.PRIO_PROCESS, task) for task in (leader.pid, *tasks)]
        lower_priority(leader.pid)
        after = [os.getpriority(os.PRIO_PROCESS, task) for task in (leader.pid, *tasks)]
        sessions = [Path(f"/proc/{each}/autogroup") for each in (leader.pid, tasks[-1])]
        shares = [session.read_text().split()[-1] for session in sessions if session.exists()]
        leader.stdin.close()
    assert before == [os.getpriority(os.PRIO_PROCESS, 0)] * 4
    assert after == [10] * 4
    assert set(shares) <= {"10"}


def test_process_that_yields_does_not_make_others_of_its_session_yield() -> None:
    before = session_niceness()
    assert yielded(own_session=False) == (True, before)
    assert os.sched_getscheduler(0) != os.SCHED_IDLE
