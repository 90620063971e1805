import os
import select
import signal
import threading
from collections.abc import Iterator

import pytest

from halimede.workers.process import WorkerProcess
from tests.workers.zygotes import Nursery, heard, nursery, open_files


@pytest.fixture(scope="module")
def workers() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


class Witness:
    """Notes what a process prints and why it ends."""

    def __init__(self, workers: Nursery, process: WorkerProcess) -> None:
        self.output = {False: b"", True: b""}
        self.closed: list[bool] = []
        self.words: list[str] = []
        self.over = threading.Event()

        def watch() -> None:
            process.on_exit(self._exited)
            process.on_output(self._printed)

        workers.loop.call(watch)

    def _printed(self, data: bytes, error: bool) -> None:
        assert not self.words, "output after the end"
        self.output[error] += data
        if not data:
            self.closed.append(error)

    def _exited(self, words: str) -> None:
        self.words.append(words)
        self.over.set()


def _is_over(pid: int) -> bool:
    """Wait until a process that is not ours to wait for has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(20_000))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("greet", "exited with status 0"),
        ("exit_with_3", "exited with status 3"),
        ("leave_with_4", "exited with status 4"),
        ("raise_error", "exited with status 1"),
        ("segfault", "crashed with SIGSEGV, a fault in native code"),
    ],
)
def test_the_way_a_worker_ends_is_told_once(workers: Nursery, deed: str, words: str) -> None:
    process = workers.spawn(deed)
    witness = Witness(workers, process)
    assert workers.end(process).removesuffix(" (core dumped)") == words
    assert [text.removesuffix(" (core dumped)") for text in witness.words] == [words]


def test_a_worker_that_somebody_kills_is_told_at_once(workers: Nursery) -> None:
    process = workers.spawn("greet", "hang")
    witness = Witness(workers, process)
    assert heard(process) == b"hello"
    os.kill(process.pid, signal.SIGKILL)
    assert witness.over.wait(60)
    assert witness.words[0].startswith("was killed by SIGKILL")
    assert "out-of-memory" in witness.words[0]
    assert heard(process) == b""
    workers.end(process)


def test_an_end_before_anybody_watches_is_told_with_all_that_was_printed(workers: Nursery) -> None:
    process = workers.spawn("print_lines", "exit_with_3")
    assert heard(process) == b""
    workers.loop.run(process._ended.wait())  # noqa: SLF001 - how the process ended is told later
    witness = Witness(workers, process)
    assert witness.over.wait(60)
    assert witness.words == ["exited with status 3"]
    assert witness.output[False] == b"one line\nno end of line"
    workers.end(process)


def test_all_that_a_worker_prints_arrives_before_its_end(workers: Nursery) -> None:
    process = workers.spawn("print_lines", "exit_with_3")
    witness = Witness(workers, process)
    workers.end(process)
    assert witness.output == {False: b"one line\nno end of line", True: b"an error\n"}
    assert sorted(witness.closed) == [False, True]


def test_an_uncaught_error_is_printed_with_its_traceback(workers: Nursery) -> None:
    process = workers.spawn("raise_error")
    witness = Witness(workers, process)
    workers.end(process)
    assert b"ValueError: what a pity" in witness.output[True]
    assert b"halimede_worker" not in witness.output[True]  # the zygote's loop is none of the model's business


def test_a_crash_in_native_code_prints_where_python_was(workers: Nursery) -> None:
    process = workers.spawn("segfault")
    witness = Witness(workers, process)
    workers.end(process)
    assert b"Fatal Python error: Segmentation fault" in witness.output[True]
    assert b"in segfault" in witness.output[True]


def test_a_worker_that_does_not_end_in_time_is_killed(workers: Nursery) -> None:
    process = workers.spawn("greet", "hang")
    assert heard(process) == b"hello"
    assert workers.end(process, within_s=0.01) == "was killed by the server"


def test_a_worker_that_is_told_to_end_gets_the_time_it_needs(workers: Nursery) -> None:
    process = workers.spawn("wait_for_end")
    process.work.send(b"end")
    assert workers.end(process) == "exited with status 0"


def test_a_worker_that_only_closes_its_socket_is_killed_soon(workers: Nursery) -> None:
    process = workers.spawn("close_work", "hang")
    witness = Witness(workers, process)
    assert heard(process) == b""
    workers.loop.call(process.kill_soon)
    assert witness.over.wait(60)
    assert witness.words == ["was killed by the server"]
    workers.end(process)


def test_a_worker_that_ends_by_itself_is_not_said_to_be_killed(workers: Nursery) -> None:
    process = workers.spawn("close_work", "exit_with_3")
    assert heard(process) == b""
    workers.loop.call(process.kill_soon)
    assert workers.end(process) == "exited with status 3"


def test_killing_a_worker_that_has_ended_does_nothing(workers: Nursery) -> None:
    process = workers.spawn()
    assert workers.end(process) == "exited with status 0"
    process.kill()
    assert workers.end(process, kill=True) == "exited with status 0"


@pytest.mark.parametrize("kill", [True, False])
def test_what_a_worker_has_started_ends_with_it(workers: Nursery, kill: bool) -> None:
    process = workers.spawn("start_program", "wait_for_end")
    witness = Witness(workers, process)
    program = int(heard(process))
    if not kill:
        process.work.send(b"end")
    workers.end(process, kill)
    assert _is_over(program)
    assert sorted(witness.closed) == [False, True]


def test_fifty_workers_leave_no_open_file(workers: Nursery) -> None:
    workers.end(workers.spawn())
    before = sorted(open_files())
    for number in range(50):
        process = workers.spawn("exit_with_3" if number % 2 else "hang")
        Witness(workers, process)
        workers.end(process, kill=number % 2 == 0)
    after = sorted(open_files())
    assert len(after) == len(before), set(after) - set(before)


def test_many_threads_may_start_workers_at_once(workers: Nursery) -> None:
    processes: list[WorkerProcess] = []
    threads = [
        threading.Thread(target=lambda: processes.append(workers.spawn("greet", "wait_for_end")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({process.pid for process in processes}) == 8
    for process in processes:
        assert heard(process) == b"hello"
    # each is alone with its sockets: its death is seen at once, though the others live on
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
        assert heard(process) == b""
    for process in processes:
        workers.end(process)
