"""Requests over connections that are kept, with the least that a client can do."""

import re
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server
from benchmarks.workload import Sample

WARM_UP_S = 0.7
LONGEST_S = 60
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Call:
    """A request that is sent again and again.

    Attributes:
        port: where.
        path: of the call.
        headers: beside the length.
        body: what is sent.
    """

    port: int
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> bytes:
        """All bytes of it."""
        head = [f"POST {self.path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(self.body)}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*head, "", ""]).encode() + self.body


def median_time(server: Server, call: Call, seconds: float) -> Sample:
    """The median over requests that follow each other for so long, in µs; the first tenth does not count."""
    times, cpu = _times(server, call, seconds)
    return Sample(statistics.median(times) * 1e6, cpu * 1e6)


def percentile(server: Server, call: Call, percent: int, seconds: float) -> Sample:
    """So many of a hundred requests that follow each other take no longer, in ms; the first tenth does not count."""
    times, _ = _times(server, call, seconds)
    return Sample(float(np.percentile(times, percent)) * 1e3)


def _times(server: Server, call: Call, seconds: float) -> tuple[list[float], float]:
    """What each request took but for the first tenth, and the server's CPU time for one, in seconds."""
    times: list[float] = []
    message = call.message
    with connected(call) as connection:
        size = len(exchange(connection, message))
        began, cpu = time.perf_counter(), server.cpu_seconds()
        while time.perf_counter() - began < seconds:
            started = time.perf_counter()
            exchange(connection, message, size)
            times.append(time.perf_counter() - started)
        cpu = server.cpu_seconds() - cpu
    return times[len(times) // 10 :], cpu / len(times)


def rate(server: Server, call: Call, concurrency: int, seconds: float) -> Sample:
    """Requests a second with so many under way at any time, and the server's CPU time for each.

    Raises:
        BenchmarkError: an answer is an error, or there are too few of them.
    """
    message = call.message
    ends = time.perf_counter() + WARM_UP_S + seconds
    answered: list[float] = []

    def ask() -> None:
        with connected(call) as connection:
            size = len(exchange(connection, message))
            while time.perf_counter() < ends:
                exchange(connection, message, size)
                answered.append(time.perf_counter())

    with ThreadPoolExecutor(concurrency) as clients:
        asking = [clients.submit(ask) for _ in range(concurrency)]
        time.sleep(WARM_UP_S)
        warm, cpu = len(answered), server.cpu_seconds()
        time.sleep(max(0.0, ends - time.perf_counter()))
        measured, cpu = sorted(answered[warm:]), server.cpu_seconds() - cpu
        for each in asking:
            each.result()
    if len(measured) < 2:
        raise BenchmarkError(f"The server gave {len(measured)} answers in {seconds} s")
    # from answer to answer: so few may come in a second that counting whole ones would blur the figure
    passed = measured[-1] - measured[0]
    return Sample((len(measured) - 1) / passed, cpu / len(measured) * 1e6)


@contextmanager
def connected(call: Call) -> Iterator[socket.socket]:
    """A connection to where the call goes."""
    with socket.create_connection(("127.0.0.1", call.port), LONGEST_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def exchange(connection: socket.socket, message: bytes, size: int = 0) -> bytes:
    """Send the request; the answer, which is known to be of that size, or says its size if that is 0.

    Raises:
        BenchmarkError: it is an error.
    """
    connection.sendall(message)
    answer = connection.recv(1 << 20)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise BenchmarkError(f"The answer is {answer[:300]!r}")
    if not size and _CHUNKED.search(answer):
        while not answer.endswith(_LAST_CHUNK):
            answer += connection.recv(1 << 20)
        return answer
    if not size:
        length = _LENGTH.search(answer)
        assert length is not None
        size = answer.index(b"\r\n\r\n") + 4 + int(length[1])
    while len(answer) < size:
        answer += connection.recv(1 << 20)
    return answer
