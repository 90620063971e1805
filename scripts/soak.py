"""Load on Python models while one of their processes is killed every second: is any answer lost, or anything left?

    python -m scripts.soak MINUTES

A request that ran in a process that was killed fails with that reason. No other request fails, every answer is right,
and descriptors, memory and processes of the server stay what they were. Otherwise the exit status is 1.
"""

import http.client
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from scripts.soaking import say
from tests.python_models.support import (
    DECOUPLED,
    FLOATS,
    TEXTS,
    Array,
    answering,
    executing,
    grpc_inputs,
    http_inputs,
    is_running,
    python_model,
)
from tests.support.server import ServerProcess, start_server

PATIENCE = 30.0
"""Seconds after which an answer counts as lost."""

SETTLING = 15.0
"""Seconds in which the server may give back what the load needed."""

MORE_DESCRIPTORS = 8
MORE_MEMORY = 32 << 20
"""What the server may have more at the end than after its first minute, in bytes."""

_ENDS = ("was killed by SIGKILL", "ended; how is not known")
"""What becomes of a process that is killed; the second if its parent was killed before."""

STREAMED = 20
"""Responses of one request to the streaming model."""

_CALL = """
    def ask(self, value):
        tensor = pb_utils.Tensor("IN", value)
        request = pb_utils.InferenceRequest(model_name="quick", requested_output_names=["OUT"], inputs=[tensor])
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
"""

MODELS = {
    "quick": (answering("x + 1"), FLOATS + "instance_group [{ count: 2 kind: KIND_CPU }]"),
    "batched": (
        answering("x + 1 if time.sleep(0.005) is None else x"),
        FLOATS + "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 2000 }",
    ),
    "large": (answering("x + 1"), FLOATS),
    "caller": (answering("self.ask(self.ask(self.ask(x)))") + _CALL, FLOATS),
    "texts": (answering("np.array([e[::-1] for e in x], object)"), TEXTS),
    "late": (
        executing("""
            for request in requests:
                x = request.inputs()[0].as_numpy()
                response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + 1)])
                threading.Timer(0.002, request.get_response_sender().send, (response, 1)).start()
            return None
        """),
        FLOATS,
    ),
    "streaming": (
        executing(f"""
            def work(sender, x):
                for i in range({STREAMED}):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + i)]))
                sender.send(flags=1)
            for request in requests:
                arguments = request.get_response_sender(), request.inputs()[0].as_numpy()
                threading.Thread(target=work, args=arguments).start()
        """),
        FLOATS + DECOUPLED,
    ),
    "coming": (answering("x + 1"), FLOATS),
}
Infer = Callable[[str, Array], Array | None]
"""Sends a model the input `IN`, and returns the output `OUT`."""

_STAYING = [name for name in MODELS if name != "coming"]


@dataclass
class Tally:
    """What became of the requests to one model.

    Attributes:
        right: answered as they should be.
        ended: failed because a process was killed in which they ran.
        wrong: other answers and errors, each with what it was.
        lost: without an answer.
    """

    right: int = 0
    ended: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    lost: int = 0


class Load:
    """Clients that ask until they are stopped, each in a thread."""

    def __init__(self, server: ServerProcess) -> None:
        self.tallies = {name: Tally() for name in MODELS}
        self._server = server
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._values = itertools.count(1)
        clients: list[Callable[[], None]] = [
            *[partial(self._ask, "quick", self._over_grpc)] * 2,
            partial(self._ask, "quick", self._over_http),
            *[partial(self._ask, "batched", self._over_grpc)] * 3,
            partial(self._ask, "large", self._over_grpc),
            partial(self._ask, "large", self._over_http),
            partial(self._ask, "caller", self._over_http),
            partial(self._ask, "caller", self._over_grpc),
            partial(self._ask, "texts", self._over_http),
            partial(self._ask, "late", self._over_grpc),
            partial(self._ask, "late", self._over_http),
            self._stream,
            self._come_and_go,
        ]
        self._threads = [threading.Thread(target=client, daemon=True) for client in clients]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let what is under way be answered, and ask no more."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)

    def _ask(self, model: str, connect: Callable[[], Iterator[Infer]]) -> None:
        """Send one request after the other."""
        for infer in connect():
            given = self._given(model)
            try:
                got = infer(model, given)
            except InferenceServerException as error:
                self._failed(model, str(error.status()), str(error.message()))
            except OSError as error:
                self._failed(model, "", repr(error))
            else:
                self._answered(model, got, _expected(model, given))
            if self._stop.is_set():
                return

    def _given(self, model: str) -> Array:
        value = next(self._values) % 1_000_000
        if model == "texts":
            return np.array([f"{value} {i}".encode() for i in range(2000)], object)
        size = 1_000_000 if model == "large" else 16
        return np.full((1, size) if model == "batched" else size, value, np.float32)

    def _over_grpc(self) -> Iterator[Infer]:
        with grpcclient.InferenceServerClient(self._server.grpc) as client:
            while True:
                yield lambda model, given: client.infer(
                    model, grpc_inputs(IN=given), client_timeout=PATIENCE
                ).as_numpy("OUT")

    def _over_http(self) -> Iterator[Infer]:
        connection = http.client.HTTPConnection(self._server.http, timeout=PATIENCE)

        def infer(model: str, given: Array) -> Array | None:
            body, size = httpclient.InferenceServerClient.generate_request_body(http_inputs(IN=given))
            path = f"/v2/models/{model}/infer"
            connection.request("POST", path, body, {"Inference-Header-Content-Length": str(size)})
            response = connection.getresponse()
            data = response.read()
            if response.status != 200:
                raise InferenceServerException(data.decode(), str(response.status))
            header = response.headers["Inference-Header-Content-Length"]
            parse = httpclient.InferenceServerClient.parse_response_body
            array: Array | None = parse(data, header_length=int(header)).as_numpy("OUT")
            return array

        while True:
            yield infer

    def _stream(self) -> None:
        """Stream one request after the other, and check all that comes of each."""
        answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        client = grpcclient.InferenceServerClient(self._server.grpc)
        client.start_stream(lambda result, error: answers.put((result, error)))
        while not self._stop.is_set():
            given = self._given("streaming")
            client.async_stream_infer("streaming", grpc_inputs(IN=given), enable_empty_final_response=True)
            got: list[float] = []
            try:
                while True:
                    result, error = answers.get(timeout=PATIENCE)
                    if error is not None:
                        self._failed("streaming", "", str(error.message()))
                        break
                    if result.get_response().parameters["triton_final_response"].bool_param:
                        expected = [float(given[0]) + i for i in range(STREAMED)]
                        self._answered("streaming", np.array(got), np.array(expected))
                        break
                    got.append(float(result.as_numpy("OUT")[0]))
            except Empty:
                self._failed("streaming", "", "timed out")
        client.stop_stream()
        client.close()

    def _come_and_go(self) -> None:
        """Load a model, ask it, and unload it."""
        connection = self._over_grpc()
        infer = next(connection)
        with grpcclient.InferenceServerClient(self._server.grpc) as client:
            while not self._stop.wait(0.2):
                try:
                    client.load_model("coming", client_timeout=PATIENCE)
                    given = self._given("coming")
                    self._answered("coming", infer("coming", given), given + 1)
                    client.unload_model("coming", client_timeout=PATIENCE)
                except InferenceServerException as error:
                    self._failed("coming", str(error.status()), str(error.message()))

    def _answered(self, model: str, got: Array | None, expected: Array) -> None:
        with self._lock:
            if got is not None and np.array_equal(got, expected):
                self.tallies[model].right += 1
            else:
                self.tallies[model].wrong[f"wrong answer {got!r:.80} instead of {expected!r:.80}"] += 1

    def _failed(self, model: str, status: str, message: str) -> None:
        with self._lock:
            tally = self.tallies[model]
            if any(f"is not healthy. It {end}" in message for end in _ENDS):
                tally.ended += 1
            elif "DEADLINE" in status or "timed out" in message or "TimeoutError" in message:
                tally.lost += 1
            else:
                tally.wrong[f"{status} {message}"[:300]] += 1


def _expected(model: str, given: Array) -> Array:
    if model == "texts":
        return np.array([text[::-1] for text in given], object)
    expected: Array = given + (3 if model == "caller" else 1)
    return expected


@dataclass(frozen=True)
class Usage:
    """What the server takes.

    Attributes:
        descriptors: open ones.
        threads: of its own.
        memory: bytes that it alone uses.
        processes: of its models.
        shm: files in /dev/shm.
    """

    descriptors: int
    threads: int
    memory: int
    processes: int
    shm: int


class Family:
    """The processes of a server's models, also those whose parent was killed."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._sessions: set[int] = set()

    def members(self) -> dict[int, str]:
        """The processes that run, each with its name."""
        found: dict[int, tuple[str, int, int]] = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                state, *numbers = rest.split()[:4]
                if state != "Z":
                    found[int(entry.name)] = name, int(numbers[0]), int(numbers[2])
        for pid, (_, parent, session) in found.items():
            if parent == self._server.process.pid and session == pid:
                self._sessions.add(session)
        return {pid: name for pid, (name, _, session) in found.items() if session in self._sessions}

    def workers(self) -> list[int]:
        """Those that run models."""
        return [pid for pid, name in self.members().items() if name.startswith("halimede-")]

    def parents(self) -> list[int]:
        """Those that start the others."""
        return [pid for pid in self.members() if pid in self._sessions]


def measure(server: ServerProcess, family: Family) -> Usage:
    """What the server takes now."""
    pid = server.process.pid
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    return Usage(
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        len(list(Path(f"/proc/{pid}/task").iterdir())),
        private << 10,
        len(family.members()),
        len(list(Path("/dev/shm").iterdir())),  # noqa: S108 - to see that nothing is put there
    )


class Killer:
    """Kills a process of the models every second, and now and then their parent.

    Attributes:
        kills: how often.
    """

    def __init__(self, family: Family, seed: int) -> None:
        self.kills = 0
        self._family = family
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Kill no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(1):
            family = self._family
            targets = family.parents() if self.kills % 40 == 39 else family.workers()
            if targets:
                with suppress(ProcessLookupError):
                    os.kill(self._random.choice(targets), signal.SIGKILL)
                self.kills += 1


def soak(minutes: float, seed: int) -> list[str]:
    """What went wrong in so many minutes."""
    with tempfile.TemporaryDirectory() as directory:
        repository = Path(directory)
        for name, (source, config) in MODELS.items():
            python_model(repository, name, source, config)
        flags = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in _STAYING)]
        with start_server(repository, *flags) as server:
            family = Family(server)
            problems = _soak(server, family, minutes, seed)
            everything = family.members()
            if server.stop() != 0:
                problems.append("the server did not stop as it should")
            time.sleep(1)
            left = [pid for pid in everything if is_running(pid)]
            if left:
                problems.append(f"processes are left: {left}")
    return problems


def _soak(server: ServerProcess, family: Family, minutes: float, seed: int) -> list[str]:
    end = time.monotonic() + 60 * minutes
    load, killer = Load(server), Killer(family, seed)
    warm = min(60.0, 60 * minutes / 3)
    time.sleep(warm)
    busy_before = measure(server, family)
    say(f"after {warm:.0f} s: {busy_before}")
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 60))
        right = sum(tally.right for tally in load.tallies.values())
        now = measure(server, family)
        say(f"{max(0, left - 60) / 60:.0f} minutes left, {killer.kills} kills, {right} answers: {now}")
        if server.process.poll() is not None:
            return [f"the server ended:\n{server.log[-3000:]}"]
    busy = measure(server, family)
    killer.stop()
    load.stop()
    problems = _check(server, load, killer)
    time.sleep(SETTLING)
    idle = measure(server, family)
    say(f"at the end: {busy}\nand idle:   {idle}")
    workers = len(family.workers())
    if workers != len(_STAYING) + 1:
        problems.append(f"{workers} workers are there, and should be {len(_STAYING) + 1}")
    if idle.descriptors > busy_before.descriptors + MORE_DESCRIPTORS:
        problems.append(f"{idle.descriptors - busy_before.descriptors} more descriptors are open")
    if idle.memory > busy_before.memory + MORE_MEMORY:
        problems.append(f"the server takes {(idle.memory - busy_before.memory) >> 20} MiB more")
    if idle.threads > busy_before.threads + 2:
        problems.append(f"the server has {idle.threads - busy_before.threads} more threads")
    if idle.shm > busy_before.shm:
        problems.append("files are left in /dev/shm")
    return problems


def _check(server: ServerProcess, load: Load, killer: Killer) -> list[str]:
    problems = []
    say(f"{'model':12}{'right':>10}{'ended':>8}{'wrong':>8}{'lost':>8}   ({killer.kills} kills)")
    for name, tally in load.tallies.items():
        wrong = sum(tally.wrong.values())
        say(f"{name:12}{tally.right:>10}{tally.ended:>8}{wrong:>8}{tally.lost:>8}")
        problems += [f"{name}: {count} × {what}" for what, count in tally.wrong.most_common(5)]
        if tally.lost:
            problems.append(f"{name}: {tally.lost} answers are lost")
        if not tally.right:
            problems.append(f"{name}: nothing was answered")
    ended = sum(tally.ended for tally in load.tallies.values())
    if ended > 8 * killer.kills:
        problems.append(f"{ended} requests failed with {killer.kills} kills, more than can have been running")
    for name in _STAYING:
        if server.get(f"/v2/models/{name}/ready")[0] != 200:
            problems.append(f"model '{name}' is not ready")
    return problems


def main() -> None:
    """Soak for as many minutes as the first argument says."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(time.time())
    say(f"{minutes:g} minutes, seed {seed}")
    problems = soak(minutes, seed)
    for problem in problems:
        say(f"PROBLEM: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
