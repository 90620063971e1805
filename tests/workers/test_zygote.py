import json
import logging
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halimede.core.errors import InternalError
from halimede.workers import zygote_process
from halimede.workers.zygote import Zygote, Zygotes
from halimede_worker import zygote as protocol
from tests.support.loops import LoopThread
from tests.workers.zygotes import ENVIRONMENT, MAIN, Nursery, heard, nursery, open_files, told


@pytest.fixture
def workers() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "halimede-zygote"]


class Deaths:
    """Waits for the ends of processes that are not ours to wait for."""

    def __init__(self, pids: list[int]) -> None:
        self.descriptors = {os.pidfd_open(pid): pid for pid in pids}

    def wait(self) -> set[int]:
        """Those that live on."""
        poller = select.poll()
        for descriptor in self.descriptors:
            poller.register(descriptor, select.POLLIN)
        while self.descriptors:
            events = poller.poll(20_000)
            if not events:
                break
            for descriptor, _ in events:
                poller.unregister(descriptor)
                os.close(descriptor)
                del self.descriptors[descriptor]
        return set(self.descriptors.values())


# What a worker finds


def test_a_worker_finds_what_a_process_of_its_own_would_have(workers: Nursery) -> None:
    process = workers.spawn("tell", name="resnet")
    report = told(process)
    assert report["arguments"] == [""]
    assert report["path"][0] == ""
    assert report["directory"] == str(Path.cwd())
    assert report["main thread"]
    assert report["name"] == "halimede-resnet"
    assert not report["halimede"]
    workers.end(process)


def test_a_worker_has_no_files_but_its_own(workers: Nursery) -> None:
    first, second = workers.spawn("wait_for_end"), workers.spawn("tell")
    files = told(second)["files"]
    assert files == ["/dev/null", "pipe", "pipe", "socket", "socket"]
    for process in (first, second):
        workers.end(process, kill=True)


def test_no_two_workers_share_random_numbers(workers: Nursery) -> None:
    processes = [workers.spawn("tell") for _ in range(3)]
    numbers = [told(process)["random"] for process in processes]
    assert len({python for python, _ in numbers}) == 3
    assert len({numpy for _, numpy in numbers}) == 3
    for process in processes:
        workers.end(process)


def test_signals_to_all_processes_leave_a_worker_and_its_zygote_alive(workers: Nursery) -> None:
    first = workers.spawn("get_signals")
    assert heard(first) == b"alive"
    pid = workers.zygote.pid
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    second = workers.spawn("greet")
    assert heard(second) == b"hello"
    assert workers.zygote.pid == pid
    for process in (first, second):
        workers.end(process)


def test_what_a_model_forks_can_be_ended_by_a_signal(workers: Nursery) -> None:
    process = workers.spawn("fork_and_terminate")
    assert int(heard(process)) == signal.SIGTERM
    workers.end(process)


def test_variables_can_be_set_and_removed(workers: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    plain = workers.spawn("tell")
    changed = workers.spawn("tell", environment={"GREETING": "hallo", "HOME": None})
    first, second = told(plain), told(changed)
    assert (first["greeting"], first["home"]) == (None, "/somewhere")
    assert (second["greeting"], second["home"]) == ("hallo", None)
    for process in (plain, changed):
        workers.end(process)


def test_modules_where_the_server_was_started_do_not_disturb_the_zygote(
    workers: Nursery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "random.py").write_text("raise RuntimeError('not me')")
    monkeypatch.chdir(tmp_path)
    process = workers.spawn("tell")
    assert told(process)["directory"] == str(tmp_path)
    workers.end(process)


# Coming and going of zygotes


def test_without_workers_there_is_no_zygote() -> None:
    files, threads = len(open_files()), _threads()
    Zygotes(MAIN).close()
    zygotes = Zygotes(MAIN)
    assert (len(open_files()), _threads()) == (files, threads)
    zygotes.close()


def test_workers_of_one_interpreter_and_environment_share_a_zygote(workers: Nursery) -> None:
    processes = [workers.spawn("wait_for_end") for _ in range(2)]
    pid = workers.zygote.pid
    for process in processes:
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert f"PPid:\t{pid}\n" in status
        workers.end(process, kill=True)


def test_closing_ends_all_zygotes_and_workers_and_leaves_nothing() -> None:
    with LoopThread() as loop:
        files, threads = len(open_files()), len(_threads())
        workers = Nursery(loop)
        processes = [workers.spawn("hang", environment={"GREETING": each}) for each in "ab"]
        assert workers.zygotes._zygotes is not None  # noqa: SLF001 - what is left is seen only inside
        pids = [zygote.pid for zygote in workers.zygotes._zygotes.values()]  # noqa: SLF001 - what is left is seen only inside
        deaths = Deaths([*pids, *(process.pid for process in processes)])
        workers.zygotes.close()
        assert deaths.wait() == set()
        for process in processes:
            assert workers.end(process) == "was killed by the server"
        assert (len(open_files()), len(_threads())) == (files, threads)
        with pytest.raises(InternalError, match="the server is stopping"):
            workers.spawn()


def test_a_zygote_outlives_the_thread_that_started_it(workers: Nursery) -> None:
    thread = threading.Thread(target=lambda: workers.end(workers.spawn()))
    thread.start()
    thread.join(60)
    pid = workers.zygote.pid
    process = workers.spawn("greet")
    assert heard(process) == b"hello"
    assert workers.zygote.pid == pid
    workers.end(process)


def test_a_zygote_without_workers_ends_after_a_while_and_comes_again() -> None:
    with LoopThread() as loop:
        zygote = Zygote(Path(sys.executable), ENVIRONMENT, MAIN, idle_s=0.2)
        process = zygote.spawn(loop.loop, {"deeds": ["greet", "wait_for_end"]}, "m")
        pid = zygote.pid
        deaths = Deaths([pid])
        assert heard(process) == b"hello"
        loop.run(process.end(kill=True))
        assert deaths.wait() == set()
        again = zygote.spawn(loop.loop, {"deeds": ["greet"]}, "m")
        assert heard(again) == b"hello"
        assert zygote.pid not in (0, pid)
        loop.run(again.end())
        zygote.close()


def test_when_the_zygote_is_killed_its_workers_go_on_and_the_next_gets_a_new_one(
    workers: Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    first = workers.spawn("wait_for_end", "greet", "wait_for_end")
    pid = workers.zygote.pid
    with caplog.at_level(logging.WARNING, "halimede"):
        os.kill(pid, signal.SIGKILL)
        second = workers.spawn("greet")
        assert heard(second) == b"hello"
        assert workers.zygote.pid not in (0, pid)
        first.work.send(b"go on")
        assert heard(first) == b"hello"
    assert f"the parent process of Python workers ({pid}" in caplog.text
    # its end is noticed, though nobody can say how it came about
    os.kill(first.pid, signal.SIGKILL)
    words = workers.end(first)
    assert words == "ended; how is not known" or words.startswith("was killed by SIGKILL")
    workers.end(second)


def test_closing_also_ends_workers_whose_zygote_was_killed(workers: Nursery) -> None:
    processes = [workers.spawn("hang")]
    for _ in range(2):
        os.kill(workers.zygote.pid, signal.SIGKILL)
        processes.append(workers.spawn("hang"))
    deaths = Deaths([process.pid for process in processes])
    workers.zygotes.close()
    assert deaths.wait() == set()
    for process in processes:
        assert workers.end(process) == "was killed by the server"


def test_without_pidfds_workers_end_with_their_zygote(
    workers: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    process = workers.spawn("hang")
    deaths = Deaths([process.pid])
    monkeypatch.setattr(os, "pidfd_open", refuse)
    os.kill(workers.zygote.pid, signal.SIGKILL)
    assert workers.end(process) == "was killed by the server"
    assert deaths.wait() == set()


_SERVER = """
import asyncio, json, sys, threading
from halimede.workers.zygote import Zygotes
loop = asyncio.new_event_loop()
zygotes = Zygotes("stand_in:run")
environments = ({"GREETING": "a"}, {"GREETING": "b"})
workers = [
    zygotes.spawn(loop, None, environment, {"deeds": ["hang"]})
    for environment in environments for _ in range(2)
]
pids = [each.pid for each in (*workers, *zygotes._zygotes.values())]
print(json.dumps(pids), flush=True)
threading.Event().wait()
"""


def test_when_the_server_is_killed_nothing_stays_alive() -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": ":".join([*filter(None, sys.path), ENVIRONMENT["PYTHONPATH"] or ""]),
        },
    )
    with server:
        assert server.stdout is not None
        pids = json.loads(server.stdout.readline())
        assert len(pids) == 6
        deaths = Deaths(pids)
        server.kill()
    assert deaths.wait() == set()


# What does not work


def test_an_interpreter_that_is_not_there_is_named(workers: Nursery, tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=r"cannot run the Python interpreter '.*/python9': No such file"):
        workers.spawn(python=tmp_path / "python9")


def test_an_interpreter_that_cannot_be_run_is_named(workers: Nursery, tmp_path: Path) -> None:
    (tmp_path / "python").write_text("")
    with pytest.raises(
        InternalError, match=r"cannot run the Python interpreter '.*/python': Permission denied"
    ):
        workers.spawn(python=tmp_path / "python")


def test_an_interpreter_that_fails_is_quoted(workers: Nursery, tmp_path: Path) -> None:
    files = len(open_files())
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no libc for you' >&2\nexit 127\n")
    python.chmod(0o755)
    for _ in range(2):
        with pytest.raises(InternalError) as caught:
            workers.spawn(python=python)
        assert str(caught.value) == (
            f"cannot start workers: '{python}' exited with status 127: no libc for you"
        )
    assert len(open_files()) == files


def test_an_interpreter_that_does_not_get_ready_is_given_up(
    workers: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygote_process, "START_SECONDS", 0.05)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 1000\n")
    python.chmod(0o755)
    with pytest.raises(InternalError, match=r"it was not ready within 0\.05 s"):
        workers.spawn(python=python)


def test_an_environment_without_numpy_uses_the_servers_where_that_fits(
    workers: Nursery, tmp_path: Path
) -> None:
    import numpy as np

    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    process = workers.spawn("tell", python=tmp_path / "env/bin/python")
    report = told(process)
    assert report["numpy"] == np.__file__
    # nothing else of the server's is to be found
    assert str(Path(np.__file__).parent.parent) not in report["path"]
    workers.end(process)


def test_an_environment_without_numpy_that_the_servers_does_not_fit_is_told_so(
    workers: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygote_process, "EXTENSION_SUFFIXES", [".cpython-399-x86_64-linux-gnu.so"])
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env/bin/python"
    version = sys.version.split()[0]
    with pytest.raises(InternalError) as caught:
        workers.spawn(python=python)
    assert str(caught.value) == (
        f"'{python}': Python {version} has no numpy, which workers need; install it in that environment"
    )


def test_an_environment_that_was_built_anew_gets_a_new_zygote(workers: Nursery, tmp_path: Path) -> None:
    python = tmp_path / "python"
    for _ in range(2):
        python.unlink(missing_ok=True)
        python.symlink_to(sys.executable)
        workers.end(workers.spawn(python=python))
        os.utime(python, (1, 1), follow_symlinks=False)
    assert workers.zygotes._zygotes is not None  # noqa: SLF001 - what is left is seen only inside
    assert len(workers.zygotes._zygotes) == 2  # noqa: SLF001 - what is left is seen only inside


def test_settings_that_cannot_be_sent_are_refused_and_leave_nothing(workers: Nursery) -> None:
    workers.end(workers.spawn())
    files = len(open_files())
    with pytest.raises(ValueError, match="unmarshallable"):
        workers.zygotes.spawn(workers.loop.loop, None, ENVIRONMENT, {"what": object()})
    assert len(open_files()) == files
    workers.end(workers.spawn())


def test_long_settings_arrive(workers: Nursery) -> None:
    settings = {"deeds": ["greet"], "text": "x" * 5_000_000}
    process = workers.zygotes.spawn(workers.loop.loop, None, ENVIRONMENT, settings)
    assert heard(process) == b"hello"
    workers.end(process)


def test_too_many_open_files_are_told_and_leave_nothing(workers: Nursery) -> None:
    workers.end(workers.spawn())
    files = len(open_files())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    spare: list[int] = []
    try:
        while len(spare) < 200 and (not spare or spare[-1] < highest + 1):
            spare.append(os.open("/dev/null", os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1] + 4, hard))
        with pytest.raises(
            InternalError, match="cannot start a worker process: out of file descriptors, of which this"
        ):
            workers.spawn()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)
    assert len(open_files()) == files
    workers.end(workers.spawn())


def test_workers_are_heard_of_when_the_server_cannot_read_what_their_parent_says(
    workers: Nursery, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = workers.spawn("wait_for_end")
    pid = workers.zygote.pid
    receive, failures = protocol.receive, [RuntimeError("unforeseen")]

    def fail(end: socket.socket) -> tuple[Any, list[int]]:
        received = receive(end)
        if failures:
            raise failures.pop()
        return received

    monkeypatch.setattr(protocol, "receive", fail)
    second = workers.spawn("wait_for_end")
    assert not failures
    assert workers.zygote.pid not in (0, pid)
    assert f"the parent process of Python workers ({pid}) is ended" in caplog.messages
    for process in (first, second):
        os.kill(process.pid, signal.SIGKILL)
        assert workers.end(process)
