"""Load over front ends while one of the server's processes is killed every second: is an answer wrong, doubled or lost?

    python -m scripts.soak_front_ends SECONDS

First 10,000 idle connections, a stream of a million responses, and a client that reads slowly. Then load, while front
ends, workers and, each minute, the server's own process are killed. A connection may break, and a request whose worker
was killed fails with that reason; each other request gets its own answer, once. At the end the processes, descriptors
and shared segments of the server are those that it began with. Otherwise the exit status is 1.
"""

import http.client
import itertools
import json
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from scripts.soaking import hanging, say
from tests.python_models.support import (
    DECOUPLED,
    FLOATS,
    answering,
    executing,
    grpc_inputs,
    is_running,
    processes,
    python_model,
)
from tests.support.server import ServerProcess, start_server

FRONT_ENDS: Final = 3
PATIENCE: Final = 60.0
"""Seconds after which an answer counts as lost."""

IDLE: Final = 10_000
RESPONSES: Final = 1_000_000
STREAMED: Final = 50
ENGINE_EVERY: Final = 60
"""Kills from one of the server's own process to the next."""

MORE_DESCRIPTORS: Final = 8
MORE_MEMORY: Final = 64 << 20

MODELS: Final = {
    "small": (
        answering("x + 1 if time.sleep(0.002) is None else x"),
        FLOATS + "instance_group [{ count: 2 kind: KIND_CPU }]",
    ),
    "large": (answering("x + 1"), FLOATS),
    "stream": (
        executing("""
            for request in requests:
                sender, (secret, count) = request.get_response_sender(), request.inputs()[0].as_numpy()
                for i in range(int(count)):
                    if request.is_cancelled():
                        break
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.float32([secret, i]))]))
                sender.send(flags=1)
        """),
        FLOATS + DECOUPLED,
    ),
}
SIZES: Final = {"small": 16, "large": 300_000}

_KILLED: Final = re.compile(r"is not healthy\. It (was killed by SIGKILL|ended; how is not known)")
_LEFT: Final = re.compile(
    r"the server has ended|Socket closed|recvmsg|[Cc]onnect|GOAWAY|is not ready|Broken pipe|reset"
)
"""What a client hears over gRPC of a connection that broke."""


@dataclass
class Tally:
    """What became of the requests of one kind.

    Attributes:
        right: answered as they should be.
        killed: failed because the worker was killed in which they ran.
        broken: their connection broke.
        wrong: other answers and errors, each with what it was.
        slowest: seconds that the slowest answer took.
    """

    right: int = 0
    killed: int = 0
    broken: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0


class Load:
    """Clients that ask until they are stopped, each in a thread.

    Attributes:
        tallies: what became of their requests.
        server: whom they ask; another one after its own process was killed.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.tallies = {kind: Tally() for kind in ("small", "large", "small, gRPC", "large, gRPC", "stream")}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._values = itertools.count(1)
        clients: list[Callable[[], None]] = [
            *[partial(self._repeat, "small", self._over_http)] * 6,
            *[partial(self._repeat, "small", self._over_grpc)] * 4,
            *[partial(self._repeat, "large", self._over_http)] * 2,
            *[partial(self._repeat, "large", self._over_grpc)] * 2,
            *[partial(self._repeat, "stream", self._stream)] * 2,
        ]
        self._threads = [threading.Thread(target=client, daemon=True) for client in clients]
        for thread in self._threads:
            thread.start()

    def stop(self) -> int:
        """Let what is under way be answered, and ask no more: how many clients hang."""
        self._stop.set()
        return hanging(self._threads, 2 * PATIENCE)

    def _repeat(self, model: str, ask: Callable[[str], None]) -> None:
        while not self._stop.is_set():
            ask(model)  # until the connection breaks
            self._stop.wait(0.05)

    def _value(self) -> float:
        return next(self._values) % 1_000_000

    def _over_http(self, model: str) -> None:
        connection = http.client.HTTPConnection(self.server.http, timeout=PATIENCE)
        try:
            while not self._stop.is_set():
                value, began = self._value(), time.monotonic()
                body, headers = http_request(model, value)
                connection.request("POST", f"/v2/models/{model}/infer", body, headers)
                response = connection.getresponse()
                data = response.read()
                if response.status != 200:
                    self._failed(model, data.decode(errors="replace"), began)
                    continue
                head = int(response.headers["Inference-Header-Content-Length"])
                self._took(model, began, json.loads(data[:head])["id"] == f"{value:.0f}")
                self._answered(model, np.frombuffer(data[head:], np.float32), value)
        except (OSError, http.client.HTTPException) as error:
            self._broke(model, error)
        finally:
            connection.close()

    def _over_grpc(self, model: str) -> None:
        kind = f"{model}, gRPC"
        with grpcclient.InferenceServerClient(self.server.grpc) as client:
            while not self._stop.is_set():
                value, began = self._value(), time.monotonic()
                given = np.full(SIZES[model], value, np.float32)
                try:
                    result = client.infer(
                        model, grpc_inputs(IN=given), request_id=f"{value:.0f}", client_timeout=PATIENCE
                    )
                except InferenceServerException as error:
                    self._failed(kind, f"{error.status()} {error.message()}", began)
                    if not _KILLED.search(str(error.message())):
                        return
                    continue
                self._took(kind, began, result.get_response().id == f"{value:.0f}")
                self._answered(kind, result.as_numpy("OUT"), value)

    def _stream(self, model: str) -> None:
        value, began = self._value(), time.monotonic()
        body = json.dumps({"IN": [value, STREAMED]})
        connection = http.client.HTTPConnection(self.server.http, timeout=PATIENCE)
        try:
            connection.request("POST", f"/v2/models/{model}/generate_stream", body)
            response = connection.getresponse()
            data = response.read()
            events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
        except (OSError, http.client.HTTPException) as error:
            self._broke(model, error)
            return
        finally:
            connection.close()
        if response.status != 200 or not events or "error" in events[-1]:
            self._failed(model, f"{response.status} {data[-300:].decode(errors='replace')}", began)
            return
        got = [event["OUT"] for event in events]
        self._took(model, began, got == [[value, i] for i in range(STREAMED)])
        self._count_right(model)

    def _took(self, kind: str, began: float, right: bool) -> None:
        with self._lock:
            tally = self.tallies[kind]
            tally.slowest = max(tally.slowest, time.monotonic() - began)
            if not right:
                tally.wrong["the answer to another request, or not all of it"] += 1

    def _answered(self, kind: str, got: np.ndarray | None, value: float) -> None:
        if got is None or not (got == value + 1).all():
            with self._lock:
                self.tallies[kind].wrong[f"wrong answer {got!r:.80} to {value}"] += 1
        else:
            self._count_right(kind)

    def _count_right(self, kind: str) -> None:
        with self._lock:
            self.tallies[kind].right += 1

    def _broke(self, kind: str, error: Exception) -> None:
        with self._lock:
            if isinstance(error, TimeoutError):
                self.tallies[kind].wrong["no answer"] += 1
            else:
                self.tallies[kind].broken += 1

    def _failed(self, kind: str, message: str, began: float) -> None:
        with self._lock:
            tally = self.tallies[kind]
            tally.slowest = max(tally.slowest, time.monotonic() - began)
            if _KILLED.search(message):
                tally.killed += 1
            elif _LEFT.search(message) and "DEADLINE" not in message:
                tally.broken += 1
            else:
                tally.wrong[message[:300]] += 1


def http_request(model: str, value: float) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request."""
    size = SIZES[model]
    described = (
        f'{{"id":"{value:.0f}","inputs":[{{"name":"IN","datatype":"FP32","shape":[{size}],'
        f'"parameters":{{"binary_data_size":{4 * size}}}}}],'
        f'"outputs":[{{"name":"OUT","parameters":{{"binary_data":true}}}}]}}'
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(described))}
    return described + np.full(size, value, np.float32).tobytes(), headers


def front_ends(server: ServerProcess) -> list[int]:
    """The front ends that run."""
    return [pid for pid, name in processes(server.process.pid).items() if name.startswith("halimede-front")]


def workers(server: ServerProcess) -> list[int]:
    """The processes that run models."""
    named = processes(server.process.pid).items()
    return [pid for pid, name in named if name.startswith("halimede-") and "front" not in name]


def usage(server: ServerProcess) -> Counter[str]:
    """What the server takes: its processes, and what its own one and the front ends have open and mapped."""
    found: Counter[str] = Counter(processes=len(processes(server.process.pid)))
    for pid in (server.process.pid, *front_ends(server)):
        with suppress(OSError):
            found["descriptors"] += len(list(Path(f"/proc/{pid}/fd").iterdir()))
            found["segments"] += Path(f"/proc/{pid}/maps").read_text().count("memfd:halimede")
    return found


def memory(server: ServerProcess) -> int:
    """Bytes that the server's own process and the front ends have to themselves."""
    total = 0
    for pid in (server.process.pid, *front_ends(server)):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    return total << 10


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Wait until the condition holds, but no longer than that: whether it does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def open_connections(server: ServerProcess) -> int:
    """How many connections over HTTP the server has, as its metrics say."""
    text = server.get("/metrics", server.metrics)[1].decode()
    found = re.search(r'halimede_open_connections\{protocol="http"\} (\d+)', text)
    return int(found[1]) if found else -1


def extremes(server: ServerProcess) -> list[str]:
    """What went wrong with idle connections, a long stream, and a slow reader."""
    problems = []
    host, port = server.http.split(":")
    before = memory(server)
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))
        if not until(lambda: open_connections(server) == IDLE):
            problems.append(f"{open_connections(server)} connections are open, and should be {IDLE}")
        if server.get("/v2/health/ready")[0] != 200:
            problems.append("the server does not answer beside idle connections")
        say(f"{IDLE} idle connections: {(memory(server) - before) / IDLE / 1024:.1f} KiB each")
    if not until(lambda: open_connections(server) == 0):
        problems.append("connections that were closed are counted as open")
    began = time.monotonic()
    with _asked_for(server, RESPONSES) as client:
        count = 0
        for line in client.makefile("rb"):
            if line.startswith(b"data: "):
                got = json.loads(line[6:])["OUT"]
                if got != [7.0, float(count)]:
                    problems.append(f"response {count} of the stream is {got}")
                    break
                count += 1
                if count == RESPONSES:
                    break
    say(f"a stream of {count} responses: {count / (time.monotonic() - began):.0f} a second")
    before = memory(server)
    with _asked_for(server, RESPONSES) as client:
        for _ in range(20):
            client.recv(1024)
            time.sleep(0.5)
        grown = memory(server) - before
    say(f"a client that reads slowly: {grown >> 10} KiB more")
    if grown > MORE_MEMORY:
        problems.append(f"a client that reads slowly costs {grown >> 20} MiB")
    return problems


def _asked_for(server: ServerProcess, count: int) -> socket.socket:
    """A connection on which so many responses are asked for."""
    host, port = server.http.split(":")
    client = socket.create_connection((host, int(port)), PATIENCE)
    body = json.dumps({"IN": [7, count]})
    client.sendall(
        f"POST /v2/models/stream/generate_stream HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    return client


class Soak:
    """A server, its load, and what kills it."""

    def __init__(self, repository: Path, seed: int) -> None:
        self.problems: list[str] = []
        self._repository = repository
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._kills: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Kill a process every second for so long."""
        with ExitStack() as stack:
            server = self._start(stack)
            self.problems += extremes(server)
            load = Load(server)
            time.sleep(10)
            before = usage(server)
            say(f"warm: {dict(before)}")
            end = time.monotonic() + seconds
            for turn in itertools.count(1):
                time.sleep(1)
                if time.monotonic() > end:
                    break
                if turn % ENGINE_EVERY == 0:
                    server = load.server = self._kill_engine(server, stack)
                else:
                    self._kill(server)
                if server.process.poll() is not None:
                    self.problems.append(f"the server ended:\n{server.log[-3000:]}")
                    return
                if turn % 20 == 0:
                    right = sum(tally.right for tally in load.tallies.values())
                    left = f"{end - time.monotonic():.0f} s left"
                    say(f"{left}, {dict(self._kills)}, {right} answers, {dict(usage(server))}")
            hanging = load.stop()
            if hanging:
                self.problems.append(f"{hanging} clients hang")
            self._tell(load)
            self._settled(server, before)
            family = processes(server.process.pid)
            if server.stop() != 0:
                self.problems.append("the server did not stop as it should")
            self._are_gone([server.process.pid, *family])

    def _start(self, stack: ExitStack) -> ServerProcess:
        server = stack.enter_context(start_server(self._repository, f"--front-ends={FRONT_ENDS}"))
        if not until(lambda: len(front_ends(server)) == FRONT_ENDS):
            self.problems.append("the front ends do not start")
        return server

    def _kill(self, server: ServerProcess) -> None:
        kind, targets = ("front ends", front_ends(server))
        if self._random.random() < 0.4:
            kind, targets = "workers", workers(server)
        if targets:
            with suppress(ProcessLookupError):
                os.kill(self._random.choice(targets), signal.SIGKILL)
            self._kills[kind] += 1

    def _kill_engine(self, server: ServerProcess, stack: ExitStack) -> ServerProcess:
        family = list(processes(server.process.pid))
        server.process.kill()
        server.process.wait()
        self._kills["engines"] += 1
        self._are_gone(family)
        return self._start(stack)

    def _are_gone(self, pids: list[int]) -> None:
        if not until(lambda: not any(map(is_running, pids)), 30):
            self.problems.append(f"processes are left: {[pid for pid in pids if is_running(pid)]}")

    def _tell(self, load: Load) -> None:
        say(
            f"{'':14}{'right':>9}{'killed':>9}{'broken':>9}{'wrong':>9}{'slowest':>10}   ({dict(self._kills)})"
        )
        for kind, tally in load.tallies.items():
            counts = tally.right, tally.killed, tally.broken, tally.wrong.total()
            say(f"{kind:14}{''.join(f'{count:>9}' for count in counts)}{tally.slowest:>8.2f} s")
            self.problems += [f"{kind}: {count} × {what}" for what, count in tally.wrong.most_common(5)]
            if not tally.right:
                self.problems.append(f"{kind}: nothing was answered")

    def _settled(self, server: ServerProcess, before: Counter[str]) -> None:
        """Once the load is gone, the server has no more than it had under load at first."""

        def more() -> Counter[str]:
            grown = usage(server) - before
            grown["descriptors"] -= MORE_DESCRIPTORS
            return +grown

        if not until(lambda: not more() and len(front_ends(server)) == FRONT_ENDS):
            self.problems.append(f"the server has more than at first: {dict(more())}")
        say(f"idle: {dict(usage(server))}")


def main() -> None:
    """Soak for as many seconds as the first argument says."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    seed = int(time.time())
    say(f"{seconds:g} seconds, seed {seed}")
    with tempfile.TemporaryDirectory() as directory:
        for name, (source, config) in MODELS.items():
            python_model(Path(directory), name, source, config)
        soak = Soak(Path(directory), seed)
        soak.run(seconds)
    for problem in soak.problems:
        say(f"PROBLEM: {problem}")
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
