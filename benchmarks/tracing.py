"""Tracing of one in a thousand requests and of each, into a file and to a collector, beside the same server without."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import models
from benchmarks.load import Load, apply
from benchmarks.processes import cores, halimede
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Compare, Sides, Workload

GOALS = {1000: 0.98, 1: 0.75}
"""One of how many requests is traced → the share of the rate without tracing that is to be reached."""


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
        tool, (server_core, _) = perf_analyzer(), cores()
        load = Load("onnx_identity", protocol, concurrency, seconds)
        with (
            to_file() if target == "file" else to_collector() as flags,
            halimede(models.onnx_identity(), server_core, [*flags, *sampling(rate)]) as traced,
            halimede(models.onnx_identity(), server_core) as plain,
        ):
            yield Sides(partial(apply, tool, load, traced), partial(apply, tool, load, plain))

    name = f"traced-{'each' if rate == 1 else f'1-of-{rate}'}-{target}-{protocol}-c{concurrency}"
    return Workload(name, "requests/s", Compare.AT_LEAST, GOALS[rate], both)


def sampling(rate: int) -> list[str]:
    """The flags that trace one of so many requests."""
    return ["--trace-config=level=TIMESTAMPS", f"--trace-config=rate={rate}"]


@contextmanager
def to_file() -> Iterator[list[str]]:
    """The flags that write traces into a file."""
    with TemporaryDirectory() as directory:
        yield [f"--trace-config=triton,file={Path(directory) / 'trace.json'}"]


@contextmanager
def to_collector() -> Iterator[list[str]]:
    """The flags that send traces to a collector, which takes them and forgets them."""
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

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""
