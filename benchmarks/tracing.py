"""Tracing of one in a thousand requests and of each, into a file and to a collector, beside the same server without.

It is one server, which traces or does not while requests keep coming: two processes of the same program differ by more
than the difference that is wanted here. A measurement consists of short pieces, with tracing and without in turn.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import models
from benchmarks.errors import BenchmarkError
from benchmarks.load import Load, sending
from benchmarks.processes import Server, cores, halimede
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.core.process_tree import tree

GOALS = {1000: 0.98, 1: 0.75}
"""One of how many requests is traced → the share of the rate without tracing that is to be reached."""
MODEL = "onnx_identity"
PIECES = 10
"""Of each side in a measurement."""
SETTLING_S = 0.15
"""From a change of settings until the traces that are written were recorded since."""
MOST_DROPPED = 0.01
"""Of the traces: a rate at which more are dropped is none."""

_CPU_CLOCK = 2
"""The CPU time of a process as a clock of Linux, whose number has the complement of the process's in the upper bits."""


def workloads() -> list[Workload]:
    """Small requests over both protocols."""
    return [
        workload(target, protocol, rate, concurrency)
        for target in ("file", "otlp")
        for rate in GOALS
        for protocol in ("http", "grpc")
        for concurrency in (1, 32)
    ]


def workload(target: str, protocol: str, rate: int, concurrency: int) -> Workload:
    """FP32 [16] through an identity of ONNX Runtime."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        load = Load(MODEL, protocol, concurrency, seconds)
        with (
            to_file() if target == "file" else to_collector() as flags,
            halimede(models.onnx_identity(), cores()[0], flags) as server,
            sending(perf_analyzer(), load, server),
        ):
            turns = Turns(server, rate, seconds / PIECES, may_drop=target == "otlp" and rate == 1)
            yield Sides(turns.ours, turns.other)

    name = f"traced-{'each' if rate == 1 else f'1-of-{rate}'}-{target}-{protocol}-c{concurrency}"
    return Workload(name, "requests/s", Compare.AT_LEAST, GOALS[rate], both)


class Turns:
    """A server under load, which traces and does not in turn.

    Args:
        server: the server.
        rate: one of so many requests is traced.
        seconds: the length of a piece.
        may_drop: as a saturated core leaves nothing to the process that sends traces.
    """

    def __init__(self, server: Server, rate: int, seconds: float, *, may_drop: bool) -> None:
        self._may_drop = may_drop
        self._server = server
        self._rate = rate
        self._seconds = seconds
        self._plain = _Sum()

    def ours(self) -> Sample:
        """The pieces of a measurement: those with tracing.

        Raises:
            BenchmarkError: too many traces were dropped.
        """
        traced, self._plain = _Sum(), _Sum()
        dropped = self._server.counter("halimede_traces_dropped_total")
        for piece in range(PIECES):
            for side in (traced, self._plain) if piece % 2 else (self._plain, traced):
                self._switch(on=side is traced)
                self._measure(side)
        dropped = self._server.counter("halimede_traces_dropped_total") - dropped
        if not self._may_drop and dropped > MOST_DROPPED * traced.requests / self._rate:
            raise BenchmarkError(f"{dropped:.0f} traces were dropped of {traced.requests} requests")
        return traced.sample

    def other(self) -> Sample:
        """The pieces without tracing, of the last measurement."""
        return self._plain.sample

    def _switch(self, *, on: bool) -> None:
        settings = {"trace_level": ["TIMESTAMPS" if on else "OFF"], "trace_rate": str(self._rate)}
        status, body, _ = self._server.request("POST", "/v2/trace/setting", json.dumps(settings).encode())
        if status != 200:
            raise BenchmarkError(f"the server does not take {settings}: {body!r}")
        time.sleep(SETTLING_S)

    def _measure(self, side: "_Sum") -> None:
        server = self._server
        began, requests, cpu = time.monotonic(), server.requests_served(MODEL), cpu_ns(server)
        time.sleep(self._seconds)
        side.requests += server.requests_served(MODEL) - requests
        side.cpu_ns += cpu_ns(server) - cpu
        side.seconds += time.monotonic() - began


class _Sum:
    """What was counted in pieces of one side."""

    def __init__(self) -> None:
        self.requests = 0
        self.cpu_ns = 0
        self.seconds = 0.0

    @property
    def sample(self) -> Sample:
        """Requests a second, and CPU time for each."""
        if not self.requests:
            raise BenchmarkError("the server answered no request")
        return Sample(self.requests / self.seconds, self.cpu_ns / self.requests / 1_000)


def cpu_ns(server: Server) -> int:
    """CPU time of a server and the processes below it, to the nanosecond, threads that have ended included."""
    total = 0
    for process in tree(server.child.pid):
        with suppress(OSError):  # it has just ended
            total += time.clock_gettime_ns(_CPU_CLOCK | ~process.pid << 3)
    return total


@contextmanager
def to_file() -> Iterator[list[str]]:
    """The flags for traces in a file."""
    with TemporaryDirectory() as directory:
        yield [f"--trace-config=triton,file={Path(directory) / 'trace.json'}"]


@contextmanager
def to_collector() -> Iterator[list[str]]:
    """The flags for traces at a collector, which takes them and forgets them, on the client's core."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield [
                "--trace-config=mode=opentelemetry",
                f"--trace-config=opentelemetry,url=http://127.0.0.1:{server.server_port}/v1/traces",
            ]
        finally:
            server.shutdown()
            thread.join()


class _Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        os.sched_setaffinity(0, cores()[1])  # of this connection's thread
        super().setup()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""
