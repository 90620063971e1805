"""Nothing is left behind: processes, shared memory, descriptors, memory; whatever happened."""

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.python_models.support import (
    FLOATS,
    ONES,
    Models,
    answering,
    grpc_inputs,
    is_running,
    kill,
    processes,
    python_model,
    serve_models,
)
from tests.support.server import FRONT_ENDS, ServerProcess, start_server
from tests.support.waiting import wait_until

LARGE = np.ones(500_000, np.float32)


def shared_memory_files() -> set[str]:
    return {file.name for file in Path("/dev/shm").iterdir()}


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def resident(pid: int) -> int:
    """Bytes of memory that a process alone uses."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


def end_by_sigterm(models: Models) -> None:
    assert models.server.stop() == 0


def end_by_sigkill(models: Models) -> None:
    kill(models.server.process.pid)
    models.server.process.wait(10)


def end_by_sigabrt(models: Models) -> None:
    os.kill(models.server.process.pid, signal.SIGABRT)
    models.server.process.wait(10)


@pytest.mark.parametrize("end", [end_by_sigterm, end_by_sigkill, end_by_sigabrt])
def test_end_of_the_server_leaves_no_process_and_no_shared_memory(
    tmp_path: Path, end: Callable[[Models], None]
) -> None:
    before = shared_memory_files()
    with serve_models(tmp_path, "--log-info=true") as models:
        name = models.load(answering("x + 1"), FLOATS + "instance_group [{ count: 2 kind: KIND_CPU }]")
        models.infer(name, LARGE)
        busy = models.load(
            answering("x")
            + "\n    def initialize(self, args):\n"
            + "        import subprocess\n        subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        )
        assert len(models.pids("")) == 3
        everything = processes(models.server.process.pid)
        assert "sleep" in everything.values()
        assert models.infer(busy).tolist() == [1, 1, 1, 1]
        end(models)
        wait_until(lambda: not any(is_running(pid) for pid in everything), "all processes to be gone")
    wait_until(lambda: shared_memory_files() <= before, "its shared memory to be gone")


FORKS = {
    "fork": "os.fork() or stay()",
    "fork twice": "os.fork() or (os.fork() or stay(), os._exit(0))",
    "multiprocessing": "__import__('multiprocessing').Process(target=stay).start()",
    "session": "os.fork() or (os.setsid(), stay())",
    "daemon": "os.fork() or (os.setsid(), os.fork() or (os.setsid(), stay()), os._exit(0))",
    "daemons of a daemon": (
        "os.fork() or (os.setsid(), os.fork() or (os.fork() or (os.setsid(), stay()), stay()), stay())"
    ),
    "program": "subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "background of a shell": "os.system('setsid sleep 1000 > /dev/null 2>&1 &')",
}


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize("dies", [False, True])
def test_children_of_a_model_end_with_it(models: Models, fork: str, dies: bool) -> None:
    source = (
        "import subprocess\n\ndef stay():\n    open('/proc/self/comm', 'w').write('sleep')\n    time.sleep(1000)\n\n"
        f"{answering('x')}\n    def initialize(self, args):\n        {FORKS[fork]}\n"
    )
    name = models.load(source)
    worker = models.pids(name)[0]
    assert models.infer(name).tolist() == [1, 1, 1, 1]
    count = 3 if "daemons" in fork else 1
    wait_until(lambda: list(processes(worker).values()).count("sleep") == count, "it to have its children")
    children = processes(worker)
    if dies:
        kill(worker)
    else:
        models.http.unload_model(name)
    wait_until(lambda: not any(is_running(pid) for pid in children), "its children to end")
    models.http.unload_model(name)


def test_server_that_is_killed_while_models_work_leaves_nothing(tmp_path: Path) -> None:
    before = shared_memory_files()
    with serve_models(tmp_path) as models:
        name = models.load(answering("x if time.sleep(100) is None else x"))
        stuck = models.load(answering("x if [None for _ in iter(int, 1)] else x"))
        for model in (name, stuck):
            models.grpc.async_infer(model, grpc_inputs(IN=ONES), lambda result, error: None)
        everything = processes(models.server.process.pid)
        kill(models.server.process.pid)
        models.server.process.wait(10)
        wait_until(lambda: not any(is_running(pid) for pid in everything), "all processes to be gone")
    wait_until(lambda: shared_memory_files() <= before, "its shared memory to be gone")


def test_stop_is_not_held_up_by_a_model_that_works_for_ever(tmp_path: Path) -> None:
    with serve_models(tmp_path, "--exit-timeout-secs=1") as models:
        name = models.load(answering("x if print('began') or time.sleep(100) is None else x"))
        models.grpc.async_infer(name, grpc_inputs(IN=ONES), lambda result, error: None)
        models.server.wait_for(f"model '{name}' version 1: began")
        everything = processes(models.server.process.pid)
        models.server.stop(20)
        wait_until(lambda: not any(is_running(pid) for pid in everything), "all processes to be gone")


def test_stop_is_not_held_up_by_a_model_that_initializes_for_ever(tmp_path: Path) -> None:
    with serve_models(tmp_path, "--exit-timeout-secs=1") as models:
        name = models.write(answering("x") + "\n    def initialize(self, args):\n        time.sleep(100)\n")
        loading = threading.Thread(target=pytest.raises, args=(Exception, models.grpc.load_model, name))
        loading.start()
        wait_until(lambda: models.pids(name), "the worker")
        everything = processes(models.server.process.pid)
        models.server.stop(20)
        wait_until(lambda: not any(is_running(pid) for pid in everything), "all processes to be gone")
        loading.join()


def test_descriptors_and_memory_stay_flat_over_loads_and_crashes(tmp_path: Path) -> None:
    before = shared_memory_files()
    with serve_models(tmp_path) as models:
        server = models.server.process.pid
        name = models.write(answering("x + 1"))

        def load_and_unload() -> None:
            models.http.load_model(name)
            assert models.infer(name).tolist() == [2, 2, 2, 2]
            models.http.unload_model(name)

        def settled() -> tuple[int, int]:
            wait_until(lambda: not models.pids(name), "the last worker to be gone")
            return descriptors(server), threads(server)

        for _ in range(15):
            load_and_unload()
        counts, memory = settled(), resident(server)
        for _ in range(80):
            load_and_unload()
        settled()
        wait_until(lambda: descriptors(server) <= counts[0] + 2, "the descriptors to be closed")
        assert threads(server) <= counts[1] + 2
        assert resident(server) - memory < 4 << 20

        models.http.load_model(name)
        models.infer(name, LARGE)
        counts, memory = (descriptors(server), threads(server)), resident(server)

        def has_next(pid: int) -> bool:
            return models.pids(name) not in ([], [pid])

        for _ in range(25):
            pid = models.pids(name)[0]
            kill(pid)
            np.testing.assert_array_equal(models.infer(name, LARGE), LARGE + 1)
            wait_until(partial(has_next, pid), "the next worker")
        wait_until(lambda: descriptors(server) <= counts[0] + 3, "the descriptors to be closed")
        assert threads(server) <= counts[1] + 2
        assert resident(server) - memory < 6 << 20
        front_ends = FRONT_ENDS + 1 if FRONT_ENDS > 1 else 0  # and their parent
        assert len(processes(server)) == 2 + front_ends  # the worker and its parent
    wait_until(lambda: shared_memory_files() <= before, "its shared memory to be gone")


def test_worker_stays_flat_over_many_executions(models: Models) -> None:
    name = models.load(answering("x + 1"))
    for _ in range(50):
        models.infer(name, LARGE)
    pid = models.pids(name)[0]
    counts = descriptors(pid), threads(pid), resident(pid)
    for _ in range(150):
        models.infer(name, LARGE)
    assert descriptors(pid) <= counts[0] + 2
    assert threads(pid) == counts[1]
    assert resident(pid) - counts[2] < 8 << 20


# Limits of the system

_LIMITED = """
import resource, sys
resource.setrlimit(resource.{name}, ({value}, {value}))
from halimede.cli.main import main
sys.argv = ["halimede", *sys.argv[1:]]
main()
"""


def limited_server(repository: Path, limit: str, value: int) -> "subprocess.Popen[bytes]":
    """A server that loads everything and is under a limit of the system."""
    return subprocess.Popen(
        [
            sys.executable, "-c", _LIMITED.format(name=limit, value=value), "serve",
            f"--model-repository={repository}", "--http-port=0", "--grpc-port=0", "--metrics-port=0",
            f"--log-file={repository}.log",
        ],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_no_room_for_shared_memory_is_told_and_small_requests_go_on(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    python_model(repository, "m", answering("x + 1"), FLOATS)
    python_model(repository, "big", answering("np.ones(int(x[0]), np.float32)"), FLOATS)
    with Ending(limited_server(repository, "RLIMIT_FSIZE", 2 << 20)) as process:
        log = Path(f"{repository}.log")
        wait_until(log.exists, "the log")
        with log.open("rb") as file:
            server = ServerProcess(process, file)
            server.wait_until_open(3)
            server.wait_until_ready()
            models = Models(repository, server)
            assert models.infer("m", LARGE[:400_000]).shape == (400_000,)
            status, message = models.infer_error("m", np.ones(2_000_000, np.float32))
            assert status in ("413", "503")
            assert "memory" in message
            with pytest.raises(
                InferenceServerException, match="There is no memory for a message of"
            ) as caught:
                models.grpc.infer("m", grpc_inputs(IN=np.ones(2_000_000, np.float32)))
            assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
            status, message = models.infer_error("big", np.full(1, 2_000_000, np.float32))
            assert status == "500"
            assert "cannot get 8388608 bytes of shared memory: [Errno 27] File too large" in message
            assert models.infer("big", np.full(1, 3, np.float32)).tolist() == [1, 1, 1]
            assert models.infer("m", ONES).tolist() == [2, 2, 2, 2]
            models.close()


class Ending:
    """A process that is ended at the end of the block."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def __enter__(self) -> "subprocess.Popen[bytes]":
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def test_too_few_descriptors_for_another_model_is_a_load_error(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    python_model(repository, "m0", answering("x"), FLOATS)
    with start_server(repository, "--model-control-mode=explicit") as server:
        models = Models(repository, server)
        models.http.load_model("m0")
        open_now = descriptors(server.process.pid)
        soft, hard = resource.prlimit(
            server.process.pid, resource.RLIMIT_NOFILE, (open_now + 20, open_now + 20)
        )
        assert soft <= hard
        messages = []
        for index in range(1, 10):
            python_model(repository, f"m{index}", answering("x"), FLOATS)
            try:
                models.http.load_model(f"m{index}")
            except InferenceServerException as error:
                messages.append(str(error.message()))
        assert messages
        assert "out of file descriptors" in messages[0] or "too many open files" in messages[0]
        assert models.infer("m0").tolist() == [1, 1, 1, 1]
        models.close()
