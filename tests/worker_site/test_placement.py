"""Where the threads of a process run, and of which NUMA node they take memory."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from halimede_worker.placement import place, release_memory

CPU = min(os.sched_getaffinity(0))


def in_a_thread(work: Callable[[], object]) -> object:
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcome[0]


def test_threads_are_inherited_from_the_one_that_is_placed() -> None:
    def work() -> object:
        place([CPU], None)
        return os.sched_getaffinity(0), in_a_thread(lambda: os.sched_getaffinity(0))

    before = os.sched_getaffinity(0)
    assert in_a_thread(work) == ({CPU}, {CPU})
    assert os.sched_getaffinity(0) == before


def test_cpus_that_are_not_there_are_an_error() -> None:
    assert isinstance(in_a_thread(lambda: place([8000], None)), OSError)


def grants_memory() -> bool:
    """Whether this machine lets a thread choose the node of its memory; in some containers it may not."""
    return not isinstance(in_a_thread(release_memory), OSError)


def test_memory_comes_from_a_node_or_the_system_says_why_not() -> None:
    node = int(min(Path("/sys/devices/system/node").glob("node[0-9]*")).name.removeprefix("node"))

    def policy() -> str:
        place([CPU], node)
        lines = Path(f"/proc/self/task/{threading.get_native_id()}/numa_maps").read_text().splitlines()
        release_memory()
        return lines[0].split()[1]

    outcome = in_a_thread(policy)
    if grants_memory():
        assert outcome == f"bind:{node}"
    else:
        assert isinstance(outcome, PermissionError)


def test_a_node_that_is_not_there_is_an_error() -> None:
    outcome = in_a_thread(lambda: place([CPU], 1000))
    assert isinstance(outcome, OSError)


def test_a_machine_without_the_call_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    outcome = in_a_thread(lambda: place([CPU], 0))
    assert "memory of one NUMA node is not supported on pdp11" in str(outcome)
