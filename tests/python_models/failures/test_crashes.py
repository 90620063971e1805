"""Processes that die: who waits for them reads why at once, nobody else loses anything, and they come back."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.python_models.support import (
    BATCHED,
    DECOUPLED,
    FLOATS,
    ONES,
    Models,
    Stream,
    answering,
    executing,
    grpc_inputs,
    is_running,
    kill,
    serve_models,
)
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until

DYING = """
import ctypes, signal
WAYS = {
    1: lambda: os._exit(3),
    2: lambda: ctypes.string_at(0),
    3: lambda: os.kill(os.getpid(), signal.SIGKILL),
    4: os.abort,
    5: lambda: time.sleep(100),
    6: lambda: signal.raise_signal(signal.SIGUSR1),
    7: lambda: [None for _ in iter(int, 1)],
}
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = request.inputs()[0].as_numpy()
            way = WAYS.get(int(x.reshape(-1)[0]))
            if way is not None:
                print("doing", int(x.reshape(-1)[0]))
                way()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]))
        return responses
"""

FINE, EXIT, FAULT, KILLED, ABORT, SLEEP, SIGNAL, LOOP = (np.full(1, i, np.float32) for i in range(8))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """A server that is ready: one of which another module has had a model fail to load is not any more."""
    with serve_models(tmp_path_factory.mktemp("models")) as models:
        yield models


def unhealthy(name: str, words: str, instance: str = "0") -> str:
    return f"Stub process '{name}_{instance}' is not healthy. It {words}"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (EXIT, "exited with status 3"),
        (FAULT, "crashed with SIGSEGV, a fault in native code"),
        (KILLED, "was killed by SIGKILL"),
        (ABORT, "crashed with SIGABRT"),
        (SIGNAL, "was killed by SIGUSR1"),
    ],
    ids=["exit", "fault", "kill", "abort", "signal"],
)
def test_request_that_ends_its_process_is_told_how(models: Models, way: np.ndarray, words: str) -> None:
    name = models.load(DYING)
    pids = models.pids(name)
    status, message = models.infer_error(name, way)
    assert status == "500"
    assert message.startswith(unhealthy(name, words))
    assert models.infer(name, FINE).tolist() == [0]
    wait_until(lambda: models.ready(name), "the model to be ready again")
    assert models.pids(name) != pids
    with pytest.raises(InferenceServerException, match="is not healthy") as caught:
        models.grpc.infer(name, grpc_inputs(IN=way))
    assert caught.value.status() == "StatusCode.INTERNAL"
    assert models.statistics(name)["inference_stats"]["fail"]["count"] == 2


def test_fault_in_native_code_leaves_its_traceback_in_the_log(models: Models) -> None:
    name = models.load(DYING)
    models.infer_error(name, FAULT)
    models.server.wait_for(f"model '{name}' version 1: Fatal Python error: Segmentation fault")
    models.server.wait_for(f"Stub process '{name}_0' crashed with SIGSEGV")
    models.server.wait_for(f"restarted '{name}_0'")


def test_process_that_is_killed_while_idle_fails_nobody(models: Models) -> None:
    name = models.load(answering("x + 1"))
    for _ in range(10):
        kill(models.pids(name)[0])
        assert models.infer(name).tolist() == [2, 2, 2, 2]
        wait_until(lambda: len(models.pids(name)) == 1, "the process to be back")
    assert models.statistics(name)["inference_stats"]["fail"]["count"] == 0


def test_readiness_flips_while_the_process_is_gone(models: Models, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    name = models.load(
        answering("x + 1")
        + f"""
    def initialize(self, args):
        while os.path.exists("{gate}"):
            time.sleep(0.005)
"""
    )
    assert models.ready(name)
    assert models.grpc.is_model_ready(name)
    wait_until(lambda: models.server.get("/v2/health/ready")[0] == 200, "processes of other tests to be back")
    gate.touch()
    kill(models.pids(name)[0])
    wait_until(lambda: not models.ready(name), "the model not to be ready")
    assert not models.grpc.is_model_ready(name)
    assert models.server.get("/v2/health/ready")[0] == 400
    assert not models.grpc.is_server_ready()
    assert models.server.get("/v2/health/live")[0] == 200
    results: list[list[float]] = []
    inputs = grpc_inputs(IN=ONES)
    waiting = threading.Thread(
        target=lambda: results.append(models.grpc.infer(name, inputs).as_numpy("OUT").tolist())
    )
    waiting.start()
    gate.unlink()
    wait_until(lambda: models.ready(name), "the model to be ready again")
    assert models.grpc.is_model_ready(name)
    assert models.server.get("/v2/health/ready")[0] == 200
    waiting.join()
    assert results == [[2, 2, 2, 2]]


def test_only_the_running_request_fails_when_a_busy_process_is_killed(models: Models) -> None:
    name = models.load(DYING)
    for _ in range(200):  # known to be quick, it is sent requests ahead
        models.infer(name, FINE)
    outcomes: list[object] = []
    failures: list[Exception | None] = []
    models.grpc.async_infer(name, grpc_inputs(IN=SLEEP), lambda result, error: failures.append(error))
    models.server.wait_for(f"model '{name}' version 1: doing 5")
    for index in range(10, 40):
        models.grpc.async_infer(
            name,
            grpc_inputs(IN=np.full(1, index, np.float32)),
            lambda result, error: outcomes.append(error or float(result.as_numpy("OUT")[0])),
        )
    wait_until(
        lambda: models.statistics(name)["inference_stats"]["success"]["count"] == 200, "the others to wait"
    )
    kill(models.pids(name)[0])
    wait_until(lambda: len(outcomes) + len(failures) == 31, "all answers")
    assert unhealthy(name, "was killed by SIGKILL") in str(failures[0])
    assert sorted(outcomes) == list(range(10, 40))  # type: ignore[type-var]


def test_crash_fails_every_request_of_the_batch_with_the_reason(models: Models) -> None:
    name = models.load(DYING, BATCHED)
    outcomes = models.infer_at_once(name, [np.full((1, 1), i, np.float32) for i in (0, 1, 0, 0)])
    assert all(unhealthy(name, "exited with status 3") in str(outcome) for outcome in outcomes)
    outcomes = models.infer_at_once(name, [np.full((1, 1), 0, np.float32)] * 4)
    assert all(isinstance(outcome, np.ndarray) for outcome in outcomes)


def test_other_instances_go_on_when_one_dies(models: Models) -> None:
    name = models.load(DYING, FLOATS + "instance_group [{ count: 3 kind: KIND_CPU }]")
    stop = threading.Event()
    failures: list[Exception] = []

    def ask() -> None:
        import tritonclient.grpc as grpcclient

        with grpcclient.InferenceServerClient(models.server.grpc) as client:
            while not stop.is_set():
                try:
                    client.infer(name, grpc_inputs(IN=FINE), client_timeout=10)
                except InferenceServerException as error:
                    failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        status, message = models.infer_error(name, EXIT)
        assert status == "500"
        assert "exited with status 3" in message
    stop.set()
    for thread in threads:
        thread.join()
    # others may only have been running in the process that ended
    assert len(failures) == 0, failures
    wait_until(lambda: len(models.pids(name)) == 3, "all three to be back")
    wait_until(lambda: models.ready(name), "the model to be ready")


def test_open_streams_get_an_error_when_the_process_dies(models: Models) -> None:
    name = models.load(
        executing("""
            sender = requests[0].get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))]))
            self.kept = getattr(self, "kept", []) + [sender]
        """),
        FLOATS + DECOUPLED,
    )
    stream = Stream(models)
    for request_id in "abc":
        stream.send(name, request_id=request_id)
    assert [answer.value for answer in stream.take_all(3)] == [1, 1, 1]
    kill(models.pids(name)[0])
    assert all(unhealthy(name, "was killed by SIGKILL") in answer.error for answer in stream.take_all(3))
    stream.send(name)
    assert stream.take().value == 1
    kill(models.pids(name)[0])
    stream.close()


def test_decoupled_execution_that_crashes_is_told_and_others_are_not_lost(models: Models) -> None:
    name = models.load(
        executing("""
            x = requests[0].inputs()[0].as_numpy()
            if x[0] == 1:
                time.sleep(0.2)
                os._exit(3)
            requests[0].get_response_sender().send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]), 1)
        """),
        FLOATS + DECOUPLED,
    )
    stream = Stream(models)
    for value in (0, 1, 2, 3, 4):
        stream.send(name, np.full(1, value, np.float32), request_id=str(value))
    answers = stream.take_all(5)
    assert sorted(answer.value for answer in answers if answer.value is not None) == [0, 2, 3, 4]
    assert [unhealthy(name, "exited with status 3") in answer.error for answer in answers].count(True) == 1
    stream.close()


def test_late_answers_become_errors_when_the_process_dies(models: Models) -> None:
    name = models.load(
        executing("""
            self.kept = getattr(self, "kept", []) + [requests[0].get_response_sender()]
            return None
        """)
    )
    outcomes: list[object] = []
    for _ in range(3):
        models.grpc.async_infer(name, grpc_inputs(IN=ONES), lambda result, error: outcomes.append(error))
    wait_until(lambda: models.statistics(name)["execution_count"] == 3, "the executions")
    kill(models.pids(name)[0])
    wait_until(lambda: len(outcomes) == 3, "the errors")
    assert all(unhealthy(name, "was killed by SIGKILL") in str(outcome) for outcome in outcomes)


@pytest.mark.parametrize("policy", ["", DECOUPLED])
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("os._exit(3)", "is not healthy. It exited with status 3"),
        ("raise ValueError('cold')", "ValueError: cold"),
    ],
)
def test_warm_up_that_fails_fails_the_load(models: Models, policy: str, body: str, text: str) -> None:
    warm_up = """
        model_warmup [{ name: "w" batch_size: 1
          inputs { key: "IN" value { data_type: TYPE_FP32 dims: [2] zero_data: true } } }]
    """
    assert text in models.load_error(executing(body), FLOATS + policy + warm_up)
    wait_until(lambda: not models.pids(models.last_name), "its process to be gone")


def test_memory_that_runs_out_is_an_error_and_the_process_goes_on(models: Models) -> None:
    name = models.load(
        executing("""
            x = requests[0].inputs()[0].as_numpy()
            out = np.ones(int(x[0]), np.float32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]
        """)
        + """
    def initialize(self, args):
        import resource
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), resource.RLIM_INFINITY))
"""
    )
    pids = models.pids(name)
    status, message = models.infer_error(name, np.full(1, 1 << 28, np.float32))
    assert status == "500"
    assert "MemoryError: Unable to allocate 1.00 GiB for an array" in message
    assert models.infer(name, np.full(1, 2, np.float32)).tolist() == [1, 1]
    # even when there is no room for its inputs
    status, message = models.infer_error(name, np.full(30 << 20, 2, np.float32))
    assert status == "500"
    assert "bytes of shared memory: [Errno 12] Cannot allocate memory" in message
    assert models.infer(name, np.full(1, 2, np.float32)).tolist() == [1, 1]
    # or its outputs
    status, message = models.infer_error(name, np.full(1, 15 << 20, np.float32))
    assert status == "500"
    assert "bytes of shared memory: [Errno 12] Cannot allocate memory" in message
    assert models.infer(name, np.full(1, 2, np.float32)).tolist() == [1, 1]
    assert models.pids(name) == pids


def test_request_that_ends_its_process_before_it_is_begun_is_not_tried_for_ever(models: Models) -> None:
    name = models.load(
        answering("x")
        + """
    def initialize(self, args):
        from halimede_worker.execution import Executions
        run = Executions.run
        Executions.run = lambda self, message: os._exit(4) if message[2][0][1] == "bad" else run(self, message)
"""
    )
    for _ in range(3):
        models.infer(name)
    inputs = grpc_inputs(IN=ONES)
    with pytest.raises(InferenceServerException, match=r"is not healthy\. It exited with status 4"):
        models.grpc.infer(name, inputs, request_id="bad")
    assert models.infer(name).tolist() == [1, 1, 1, 1]


def limited(seconds: str) -> str:
    return FLOATS + f'parameters {{ key: "EXECUTION_TIMEOUT_SECONDS" value {{ string_value: "{seconds}" }} }}'


@pytest.mark.parametrize("way", [SLEEP, LOOP], ids=["sleep", "loop"])
def test_execution_that_takes_too_long_is_ended(models: Models, way: np.ndarray) -> None:
    name = models.load(DYING, limited("0.3"))
    began = time.monotonic()
    status, message = models.infer_error(name, way)
    assert time.monotonic() - began >= 0.3
    assert status == "500"
    assert message.startswith(unhealthy(name, "was killed because an execution took longer than 0.3 s"))
    assert models.infer(name, FINE).tolist() == [0]


def test_time_in_the_queue_does_not_count_as_execution(models: Models) -> None:
    name = models.load(
        executing("""
            time.sleep(0.6)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))])]
        """),
        limited("2"),
    )
    outcomes = models.infer_at_once(name, [ONES] * 4)
    assert all(isinstance(outcome, np.ndarray) for outcome in outcomes), outcomes


def test_stuck_coroutine_is_found_although_others_end(models: Models) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            async def execute(self, requests):
                x = requests[0].inputs()[0].as_numpy()
                await asyncio.sleep(100 if x[0] else 0.01)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)])]
        """,
        limited("0.5") + 'parameters { key: "MAX_CONCURRENT_EXECUTIONS" value { string_value: "2" } }',
    )
    stuck: list[object] = []
    models.grpc.async_infer(name, grpc_inputs(IN=ONES), lambda result, error: stuck.append(error))

    def ask() -> bool:
        with suppress(InferenceServerException):  # it may have been running beside the other
            models.infer(name, FINE)
        return bool(stuck)

    wait_until(ask, "the stuck one to be found")
    assert "was killed because an execution took longer than 0.5 s" in str(stuck[0])


@pytest.mark.parametrize("value", ["-1", "soon", "nan", "inf"])
def test_wrong_execution_timeout_is_refused(models: Models, value: str) -> None:
    assert (
        f"the parameter EXECUTION_TIMEOUT_SECONDS must be a number of seconds, 0 for no limit; got '{value}'"
        in models.load_error(DYING, limited(value))
    )


# Coming back

FLAGGED = """
    def initialize(self, args):
        if os.path.exists("{flag}"):
            raise RuntimeError("the weights are gone")
"""


def test_model_that_cannot_start_again_says_so_at_once_and_recovers(models: Models, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    name = models.load(answering("x + 1") + FLAGGED.format(flag=flag))
    flag.touch()
    kill(models.pids(name)[0])
    wait_until(lambda: not models.ready(name), "the model not to be ready")
    models.server.wait_for(f"failed to restart '{name}_0': RuntimeError: the weights are gone")
    for _ in range(3):
        status, message = models.infer_error(name)
        assert status == "503"
        assert (
            f"model instance '{name}_0' could not be restarted: RuntimeError: the weights are gone" in message
        )
    with pytest.raises(InferenceServerException) as caught:
        models.grpc.infer(name, grpc_inputs(IN=ONES))
    assert caught.value.status() == "StatusCode.UNAVAILABLE"
    assert not models.ready(name)
    flag.unlink()
    wait_until(lambda: models.ready(name), "the model to recover")
    assert models.infer(name).tolist() == [2, 2, 2, 2]


def test_requests_that_wait_are_refused_when_the_model_cannot_start_again(
    models: Models, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    name = models.load(DYING + FLAGGED.format(flag=flag))
    flag.touch()
    outcomes = models.infer_at_once(name, [SLEEP_THEN_EXIT, FINE, FINE, FINE])
    assert "exited with status 3" in str(outcomes[0])
    assert all("the weights are gone" in str(outcome) for outcome in outcomes[1:])
    flag.unlink()
    wait_until(lambda: models.ready(name), "the model to recover")


SLEEP_THEN_EXIT = EXIT


def test_instance_that_cannot_start_again_leaves_the_others_serving(models: Models, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    name = models.load(
        answering("x + 1") + FLAGGED.format(flag=flag),
        FLOATS + "instance_group [{ count: 2 kind: KIND_CPU }]",
    )
    flag.touch()
    kill(models.pids(name)[0])
    models.server.wait_for(f"failed to restart '{name}_")
    for _ in range(20):
        assert models.infer(name).tolist() == [2, 2, 2, 2]
    assert not models.ready(name)
    flag.unlink()
    wait_until(lambda: models.ready(name), "the model to recover")
    assert len(models.pids(name)) == 2


def test_restarts_of_a_model_that_always_dies_come_ever_later(models: Models, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    flag = tmp_path / "flag"
    name = models.load(
        answering("x")
        + f"""
    def initialize(self, args):
        with open("{log}", "a") as file:
            file.write(f"{{time.monotonic()}}\\n")
        if os.path.exists("{flag}"):
            os._exit(1)
"""
    )
    flag.touch()
    kill(models.pids(name)[0])
    wait_until(lambda: complete_lines(log).count("\n") >= 5, "four restarts")
    times = [float(line) for line in log.read_text().split()[1:5]]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    # the first is at once, later ones at least so late; when they come exactly, is up to the machine
    assert all(gap > 0.1 * 2**number for number, gap in enumerate(gaps)), gaps
    flag.unlink()
    wait_until(lambda: models.ready(name), "the model to recover")


@pytest.mark.parametrize("state", ["restarting", "failing"])
def test_model_can_be_unloaded_while_it_comes_back(models: Models, tmp_path: Path, state: str) -> None:
    flag = tmp_path / "flag"
    action = "time.sleep(100)" if state == "restarting" else "raise RuntimeError('no')"
    name = models.load(
        answering("x")
        + FLAGGED.format(flag=flag).replace('raise RuntimeError("the weights are gone")', action)
    )
    flag.touch()
    kill(models.pids(name)[0])
    wait_until(lambda: not models.ready(name), "the model not to be ready")
    if state == "failing":
        models.server.wait_for(f"failed to restart '{name}_0'")
    models.http.unload_model(name)
    models.server.wait_for(f"successfully unloaded '{name}' version 1")
    wait_until(lambda: not models.pids(name), "its process to be gone")
    flag.unlink()
    models.http.load_model(name)
    assert models.infer(name).tolist() == [1, 1, 1, 1]


def test_processes_that_a_model_started_end_with_it(models: Models) -> None:
    source = executing("""
        import subprocess
        child = subprocess.Popen(["sleep", "1000"])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([child.pid], np.int64))])]
    """)
    name = models.load(source)
    child = int(models.infer(name)[0])
    assert is_running(child)
    kill(models.pids(name)[0])
    wait_until(lambda: not is_running(child), "the child to be gone")
    child = int(models.infer(name)[0])
    models.http.unload_model(name)
    wait_until(lambda: not is_running(child), "the child to be gone")


def test_signals_for_the_servers_group_do_not_end_models(models: Models) -> None:
    name = models.load(answering("x"))
    pids = models.pids(name)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pids[0], number)
    assert models.infer(name).tolist() == [1, 1, 1, 1]
    assert models.pids(name) == pids


def test_parent_of_the_processes_may_be_killed(models: Models) -> None:
    name = models.load(DYING)
    worker = models.pids(name)[0]
    parent = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    kill(parent)
    assert models.infer(name, FINE).tolist() == [0]
    assert is_running(worker)
    other = models.load(answering("x + 1"))
    assert models.infer(other).tolist() == [2, 2, 2, 2]
    kill(worker)
    assert models.infer(name, FINE).tolist() == [0]


# Finalizing

FINALIZING = answering("x") + "\n    def finalize(self):\n        {}\n"


def test_finalize_is_called_when_the_model_is_unloaded(models: Models) -> None:
    name = models.load(FINALIZING.format("print('put away')"))
    models.http.unload_model(name)
    models.server.wait_for(f"model '{name}' version 1: put away")
    models.server.wait_for(f"successfully unloaded '{name}' version 1")


@pytest.mark.parametrize(
    ("body", "logged"),
    [
        ("raise ValueError('cannot put away')", "ValueError: cannot put away"),
        ("os._exit(5)", "exited with status 5"),
        ("sys.exit(6)", "SystemExit: 6"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_finalize_that_fails_does_not_stop_the_unload(models: Models, body: str, logged: str) -> None:
    name = models.load(FINALIZING.format(body))
    models.http.unload_model(name)
    models.server.wait_for(f"successfully unloaded '{name}' version 1")
    assert any(logged in line and f"'{name}" in line for line in models.server.log.splitlines())
    assert not models.pids(name)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """A server that waits for neither executions nor ends of models."""
    config = ("stub-timeout-seconds=0.5", "execution-timeout-seconds=0.3")
    flags = [f"--backend-config=python,{each}" for each in config]
    with serve_models(tmp_path_factory.mktemp("models"), *flags) as models:
        yield models


def test_finalize_that_hangs_is_ended_after_the_timeout(hasty: Models) -> None:
    name = hasty.load(FINALIZING.format("time.sleep(100)"))
    hasty.http.unload_model(name)
    hasty.server.wait_for(f"'{name}_0' did not finalize within 0.5 s; its process is killed")
    hasty.server.wait_for(f"successfully unloaded '{name}' version 1")
    assert not hasty.pids(name)


def test_threads_that_a_model_left_running_do_not_stop_the_unload(hasty: Models) -> None:
    name = hasty.load(
        answering("x")
        + "\n    def initialize(self, args):\n        threading.Thread(target=time.sleep, args=(100,)).start()\n"
    )
    hasty.http.unload_model(name)
    hasty.server.wait_for(f"successfully unloaded '{name}' version 1")
    assert not hasty.pids(name)


def test_execution_timeout_of_the_backend_holds_for_every_model(hasty: Models) -> None:
    name = hasty.load(DYING)
    assert "took longer than 0.3 s" in hasty.infer_error(name, LOOP)[1]
    patient = hasty.load(DYING, limited("0"))
    outcomes: list[object] = []
    hasty.grpc.async_infer(patient, grpc_inputs(IN=SLEEP), lambda result, error: outcomes.append(error))
    hasty.server.wait_for(f"model '{patient}' version 1: doing 5")
    assert "took longer than 0.3 s" in hasty.infer_error(name, LOOP)[1]  # that began later
    assert not outcomes
    kill(hasty.pids(patient)[0])
