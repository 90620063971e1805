"""Sequences on Python models while one of their processes is killed every second: is a sequence ever another one's?

    python -m scripts.soak_sequences SECONDS

A model tells with each answer the secret number with which the sequence, or the iterative request, began, and how many
requests or steps it has had, so that an answer with the state of another, or with a fresh one, is seen; it fails if it
keeps more of them than an instance has slots. Requests whose process was killed fail with that reason; each request is
answered in time; and once all clients are gone and the idle time is over, no sequence is left, and descriptors, memory
and processes of the server are what they were. Otherwise the exit status is 1.
"""

import http.client
import itertools
import json
import random
import re
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
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

from scripts.soak import MORE_DESCRIPTORS, MORE_MEMORY, PATIENCE, Family, Killer, Usage, measure
from scripts.soaking import hanging, say
from tests.python_models.support import Array, grpc_inputs, http_inputs, is_running, python_model
from tests.support.server import ServerProcess, start_server

IDLE = 6.0
"""Seconds of silence after which a sequence is over."""

INSTANCES = 3

SLOTS = 4
"""Sequences of an instance at the same time, and rows of a batch."""

LONGEST = 40
"""Requests of a sequence, at most."""

_MOST = (
    f"MOST = {2 * SLOTS}  # states that an instance keeps: of some it may not know yet that they are over\n"
)

_SOURCE = """
class TritonPythonModel:
    def initialize(self, args):
        self.states = {}

    def execute(self, requests):
        time.sleep(0.001)
        return [self.respond(request) for request in requests]

    def respond(self, request):
        start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy().item()
        if not pb_utils.get_input_tensor_by_name(request, "READY").as_numpy().item():
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros((1, 3), np.int64))])
        secret, value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0].tolist()
        state = [secret, 0, 0] if start else self.states.get(request.correlation_id())
        if state is None:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("the instance does not know the sequence"))
        self.states[request.correlation_id()] = state
        if len(self.states) > MOST:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{len(self.states)} states are kept"))
        state[1] += value
        state[2] += 1
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([state], np.int64))])

    def on_sequence_end(self, correlation_id, reason):
        self.states.pop(correlation_id, None)
"""

_CONFIG = f"""
max_batch_size: {SLOTS}
input {{ name: "IN" data_type: TYPE_INT64 dims: [ 2 ] }}
output {{ name: "OUT" data_type: TYPE_INT64 dims: [ 3 ] }}
instance_group {{ count: {INSTANCES} kind: KIND_CPU }}
sequence_batching {{
  max_sequence_idle_microseconds: {IDLE * 1e6:.0f}
  control_input [
    {{ name: "START" control {{ kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] }} }},
    {{ name: "READY" control {{ kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] }} }}
  ]
"""

_STEPS_SOURCE = """
class TritonPythonModel:
    def initialize(self, args):
        self.steps = {}

    def execute(self, requests):
        time.sleep(0.001)
        for request in requests:
            name, sender = request.correlation_id(), request.get_response_sender()
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                secret, count = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0].tolist()
                self.steps[name] = [secret, count, 0]
            state = self.steps[name]
            state[2] += 1
            assert len(self.steps) <= MOST, f"{len(self.steps)} states are kept"
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([state], np.int64))]))
            if state[2] < state[1] and not request.is_cancelled():
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            else:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                del self.steps[name]

    def on_sequence_end(self, correlation_id, reason):
        self.steps.pop(correlation_id, None)
"""

_STEPS_CONFIG = f"""
max_batch_size: {SLOTS}
input {{ name: "IN" data_type: TYPE_INT64 dims: [ 2 ] }}
output {{ name: "OUT" data_type: TYPE_INT64 dims: [ 3 ] }}
instance_group {{ count: {INSTANCES} kind: KIND_CPU }}
model_transaction_policy {{ decoupled: true }}
sequence_batching {{ iterative_sequence: true oldest {{ max_candidate_sequences: {SLOTS} }} }}
"""

SEQUENTIAL = {
    "direct": _CONFIG + "direct { }\n}",
    "oldest": _CONFIG + f"oldest {{ max_candidate_sequences: {SLOTS} }}\n}}",
}
ITERATIVE = "iterative"
MODELS = (*SEQUENTIAL, ITERATIVE)

_KILLED = re.compile(r"is not healthy\. It (was killed by SIGKILL|ended; how is not known)")
_LOST = re.compile(r"^(sequence \S+ of|the request to) model '\w+' is lost: ")


@dataclass
class Tally:
    """What became of the requests to one model.

    Attributes:
        right: answered as they should be.
        killed: failed because the process was killed in which they ran.
        lost: refused because their sequence was lost.
        left: sequences whose client went away in the middle.
        slowest: seconds that the slowest answer took.
        wrong: other answers and errors, each with what it was.
    """

    right: int = 0
    killed: int = 0
    lost: int = 0
    left: int = 0
    slowest: float = 0.0
    wrong: Counter[str] = field(default_factory=Counter)


@dataclass
class Dialogue:
    """A sequence, as its client knows it.

    Attributes:
        name: its correlation id.
        values: what its requests add.
        secret: the number that only its answers have.
    """

    name: int | str
    values: list[int]
    secret: int

    def given(self, index: int) -> Array:
        """The input of a request."""
        return np.array([[self.secret, self.values[index]]], np.int64)

    def expected(self, index: int) -> list[int]:
        """What the answer to a request must be."""
        return [self.secret, sum(self.values[: index + 1]), index + 1]

    def options(self, index: int) -> dict[str, Any]:
        """Where in the sequence a request stands."""
        return {
            "sequence_id": self.name,
            "sequence_start": index == 0,
            "sequence_end": index == len(self.values) - 1,
        }


class Load:
    """Clients that have sequences until they are stopped, each in a thread."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.tallies = {name: Tally() for name in MODELS}
        self._server = server
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._secrets = itertools.count(1)
        self._random = random.Random(seed)  # noqa: S311 - no secret
        clients: list[Callable[[], None]] = []
        for model in SEQUENTIAL:
            clients += [partial(self._over_http, model, f"{model}-{number}") for number in range(6)]
            clients += [partial(self._over_grpc, model) for _ in range(6)]
            clients += [partial(self._leave, model)]
        clients += [self._step_by_step for _ in range(8)]
        self._threads = [threading.Thread(target=client, daemon=True) for client in clients]
        for thread in self._threads:
            thread.start()

    def stop(self) -> int:
        """Let sequences end, and begin no more: how many clients hang."""
        self._stop.set()
        return hanging(self._threads, 2 * PATIENCE)

    def _dialogue(self, name: int | str = 0) -> Dialogue:
        with self._lock:
            secret = next(self._secrets)
            count = self._random.randint(1, LONGEST)
            values = [self._random.randint(0, 1000) for _ in range(count)]
        return Dialogue(name or secret, values, secret)

    def _over_http(self, model: str, name: str) -> None:
        """One sequence after the other of the same name, each request after the answer to the one before."""
        connection = http.client.HTTPConnection(self._server.http, timeout=PATIENCE)
        while not self._stop.is_set():
            dialogue = self._dialogue(name)
            for index in range(len(dialogue.values)):
                began = time.monotonic()
                try:
                    got = _infer(connection, model, dialogue.given(index), dialogue.options(index))
                except InferenceServerException as error:
                    self._failed(model, str(error.message()), began)
                    break  # the sequence has lost a request, so begin it again
                except OSError as error:
                    self._failed(model, repr(error), began)
                    connection.close()
                    break
                self._answered(model, got, [dialogue.expected(index)], began)
        connection.close()

    def _over_grpc(self, model: str) -> None:
        """One sequence after the other, whose requests are all sent at once on a stream."""
        answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        client = grpcclient.InferenceServerClient(self._server.grpc)
        client.start_stream(lambda result, error: answers.put((result, error)))
        while not self._stop.is_set():
            dialogue = self._dialogue()
            began = time.monotonic()
            for index in range(len(dialogue.values)):
                client.async_stream_infer(
                    model, grpc_inputs(IN=dialogue.given(index)), **dialogue.options(index)
                )
            expected = [dialogue.expected(index) for index in range(len(dialogue.values))]
            try:
                for _ in dialogue.values:
                    result, error = answers.get(timeout=PATIENCE)
                    if error is not None:
                        self._failed(model, str(error.message()), began)
                        continue
                    # those that failed have no answer, so that the one that is next may be further on
                    got = result.as_numpy("OUT")[0].tolist()
                    ahead = expected.index(got) + 1 if got in expected else 0
                    self._answered(model, got, expected[:ahead], began)
                    del expected[:ahead]
            except Empty:
                self._failed(model, "timed out", began)
                break
        client.stop_stream()
        client.close()

    def _step_by_step(self) -> None:
        """One iterative request after the other, of which some are left in the middle."""
        while not self._stop.is_set():
            dialogue = self._dialogue()
            count = len(dialogue.values)
            until = count if dialogue.secret % 8 else count // 2  # where the client leaves
            body = json.dumps({"IN": [dialogue.secret, count]})
            began = time.monotonic()
            connection = http.client.HTTPConnection(self._server.http, timeout=PATIENCE)
            try:
                connection.request("POST", f"/v2/models/{ITERATIVE}/generate_stream", body)
                response = connection.getresponse()
                events = (json.loads(line[6:]) for line in response if line.startswith(b"data: "))
                step = 0
                for step, event in enumerate(itertools.islice(events, until), 1):
                    if "error" in event:
                        self._failed(ITERATIVE, event["error"], began)
                        break
                    self._answered(ITERATIVE, event["OUT"], [[dialogue.secret, count, step]], began)
                else:
                    if step < until:
                        self._failed(ITERATIVE, f"{step} responses instead of {until}", began)
                if until < count:
                    self._gone(ITERATIVE)
            except OSError as error:
                self._failed(ITERATIVE, repr(error), began)
            connection.close()

    def _leave(self, model: str) -> None:
        """Begin sequences and go away: between two requests, or while one is under way."""
        while not self._stop.wait(0.5):
            dialogue = self._dialogue()
            body, size = httpclient.InferenceServerClient.generate_request_body(
                http_inputs(IN=dialogue.given(0)), sequence_id=dialogue.name, sequence_start=True
            )
            head = (
                f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n"
                f"Inference-Header-Content-Length: {size}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            host, port = self._server.http.split(":")
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
                client.sendall(head.encode() + body)
                if dialogue.secret % 2:
                    client.recv(1)
            self._gone(model)

    def _gone(self, model: str) -> None:
        with self._lock:
            self.tallies[model].left += 1

    def _answered(self, model: str, got: Any, expected: list[list[int]], began: float) -> None:
        tally = self.tallies[model]
        with self._lock:
            tally.slowest = max(tally.slowest, time.monotonic() - began)
            if expected and got == expected[-1]:
                tally.right += 1
            else:
                tally.wrong[f"the answer {got}, which is none of {expected}"[:300]] += 1

    def _failed(self, model: str, message: str, began: float) -> None:
        tally = self.tallies[model]
        with self._lock:
            tally.slowest = max(tally.slowest, time.monotonic() - began)
            if _KILLED.search(message):
                tally.killed += 1
            elif _LOST.search(message):
                tally.lost += 1
            else:
                tally.wrong[message[:300]] += 1


def _infer(
    connection: http.client.HTTPConnection, model: str, given: Array, options: dict[str, Any]
) -> list[int]:
    """The output over HTTP."""
    body, size = httpclient.InferenceServerClient.generate_request_body(http_inputs(IN=given), **options)
    connection.request(
        "POST", f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": str(size)}
    )
    response = connection.getresponse()
    data = response.read()
    if response.status != 200:
        raise InferenceServerException(data.decode().removeprefix('{"error":"'), str(response.status))
    header = int(response.headers["Inference-Header-Content-Length"])
    result = httpclient.InferenceServerClient.parse_response_body(data, header_length=header)
    values: list[int] = result.as_numpy("OUT")[0].tolist()
    return values


def soak(seconds: float, seed: int) -> list[str]:
    """What went wrong in so many seconds."""
    with tempfile.TemporaryDirectory() as directory:
        repository = Path(directory)
        for name, config in SEQUENTIAL.items():
            python_model(repository, name, _MOST + _SOURCE, config)
        python_model(repository, ITERATIVE, _MOST + _STEPS_SOURCE, _STEPS_CONFIG)
        with start_server(repository) as server:
            family = Family(server)
            problems = _soak(server, family, seconds, seed)
            everything = family.members()
            if server.process.poll() is None:
                problems += _stopped(server)
            end = time.monotonic() + PATIENCE
            while (left := [pid for pid in everything if is_running(pid)]) and time.monotonic() < end:
                time.sleep(0.1)
            if left:
                problems.append(f"processes are left: {left}")
    return problems


def _stopped(server: ServerProcess) -> list[str]:
    """Stop the server: it waits for sequences that are not over, and says how many there are."""
    before = len(server.log)
    problems = [] if server.stop(60) == 0 else ["the server did not stop as it should"]
    left = set(re.findall(r"Model '.*' has .* in-flight inferences", server.log[before:]))
    return problems + [f"sequences are left: {text}" for text in sorted(left)]


def _soak(server: ServerProcess, family: Family, seconds: float, seed: int) -> list[str]:
    end = time.monotonic() + seconds
    load, killer = Load(server, seed), Killer(family, seed)
    time.sleep(min(60.0, seconds / 3))
    before = measure(server, family)
    say(f"warm: {before}")
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 20))
        right = sum(tally.right for tally in load.tallies.values())
        say(
            f"{max(0, left - 20):.0f} s left, {killer.kills} kills, {right} answers: {measure(server, family)}"
        )
        if server.process.poll() is not None:
            return [f"the server ended:\n{server.log[-3000:]}"]
    killer.stop()
    hanging = load.stop()
    problems = _check(load, killer)
    if hanging:
        problems.append(f"{hanging} clients hang")
    usage, grown = _settled(server, family, before)
    say(f"idle: {usage}")
    return problems + grown


def _check(load: Load, killer: Killer) -> list[str]:
    problems = []
    titles = "".join(f"{title:>10}" for title in ("right", "killed", "lost", "left", "wrong", "slowest"))
    say(f"{'model':10}{titles}   ({killer.kills} kills)")
    for name, tally in load.tallies.items():
        wrong = tally.wrong.total()
        counts = (tally.right, tally.killed, tally.lost, tally.left, wrong)
        say(f"{name:10}{''.join(f'{count:>10}' for count in counts)}{tally.slowest:>8.2f} s")
        problems += [f"{name}: {count} × {what}" for what, count in tally.wrong.most_common(5)]
        if not tally.right:
            problems.append(f"{name}: nothing was answered")
        if killer.kills > 10 and not tally.lost:
            problems.append(f"{name}: {killer.kills} kills, and no sequence was lost")
    return problems


def _settled(server: ServerProcess, family: Family, before: Usage) -> tuple[Usage, list[str]]:
    """What the server takes once the idle time is over and all workers are back, and what is too much of it."""
    time.sleep(IDLE + 1)
    end = time.monotonic() + PATIENCE
    while True:
        usage, problems = measure(server, family), []
        workers = len(family.workers())
        if workers != INSTANCES * len(MODELS):
            problems.append(f"{workers} workers are there, and should be {INSTANCES * len(MODELS)}")
        if usage.descriptors > before.descriptors + MORE_DESCRIPTORS:
            problems.append(f"{usage.descriptors - before.descriptors} more descriptors are open")
        if usage.memory > before.memory + MORE_MEMORY:
            problems.append(f"the server takes {(usage.memory - before.memory) >> 20} MiB more")
        if usage.shm > before.shm:
            problems.append("files are left in /dev/shm")
        if not problems or time.monotonic() > end:
            return usage, problems
        time.sleep(0.5)


def main() -> None:
    """Soak for as many seconds as the first argument says."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    seed = int(time.time())
    say(f"{seconds:g} seconds, seed {seed}")
    problems = soak(seconds, seed)
    for problem in problems:
        say(f"PROBLEM: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
