"""What front ends bring on a machine with many cores: `python -m benchmarks.many_cores [seconds a row]`.

It stands apart from `make bench`, whose tables are of two cores. Needs `h2load`; nothing is pinned.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import models, python_models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import TICKS_PER_SECOND, Server, halimede
from benchmarks.tls import MODEL, RATE, SUCCEEDED, request
from halimede.core.process_tree import tree

FRONT_ENDS = (1, 2, 4, 8)
CLIENT_THREADS = 4
CONNECTIONS = 64
ONE_AT_A_TIME = 4000
IN_PROCESS_OF_ITS_OWN = 'parameters { key: "isolation" value { string_value: "process" } }\n'


def main() -> None:
    """Print a row for each protocol, model and number of front ends."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    print(f"{os.cpu_count()} cores, h2load with {CLIENT_THREADS} threads and {CONNECTIONS} connections")
    repositories = {
        MODEL: models.onnx_identity(),
        "identity": python_models.identity(further=IN_PROCESS_OF_ITS_OWN),
    }
    for model, repository in repositories.items():
        for count in FRONT_ENDS:
            with halimede(repository, None, [f"--front-ends={count}"]) as server:
                for protocol in ("http", "grpc"):
                    print(row(server, model, protocol, count, seconds), flush=True)
                print(f"{model} --front-ends={count}: {alone(server, model)}", flush=True)


def row(server: Server, model: str, protocol: str, count: int, seconds: float) -> str:
    """The rate, and the CPU time for a request of the server's own process, and of each other."""
    with tempfile.TemporaryDirectory() as scratch:
        *options, path = request(protocol, Path(scratch), model, shape(model))
        port = server.http_port if protocol == "http" else server.grpc_port
        command = ["h2load", "-t", str(CLIENT_THREADS), "-c", str(CONNECTIONS), "-D", f"{round(seconds * 1000)}ms",
                   "--warm-up-time=500ms", *options, f"http://127.0.0.1:{port}{path}"]  # fmt: skip
        served, before = server.requests_served(model), ticks(server)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + seconds, check=False)
        served, after = server.requests_served(model) - served, ticks(server)
    rate = RATE.search(done.stdout)
    if rate is None or not SUCCEEDED.search(done.stdout):
        raise BenchmarkError(f"h2load: {done.stdout}{done.stderr}")
    used = {pid: (now - before.get(pid, 0)) / TICKS_PER_SECOND / served * 1e6 for pid, now in after.items()}
    own, *others = used.values()
    return (
        f"{model} {protocol} --front-ends={count}: {float(rate[1]):,.0f} requests/s; own process {own:.1f} µs, "
        f"others {' '.join(f'{each:.1f}' for each in others if each >= 0.05)}, all {sum(used.values()):.1f} µs"
    )


def ticks(server: Server) -> dict[int, int]:
    """CPU time by process, in clock ticks, the server's own first."""
    return {one.pid: one.cpu_ticks for one in tree(server.child.pid)}


def alone(server: Server, model: str) -> str:
    """Latency of requests over HTTP that come one after the other."""
    given = {"name": "INPUT0", "datatype": "FP32", "shape": shape(model)}
    header = json.dumps({
        "inputs": [{**given, "parameters": {"binary_data_size": 64}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }).encode()  # fmt: skip
    body, headers = header + bytes(64), {"Inference-Header-Content-Length": str(len(header))}
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    times = []
    for _ in range(ONE_AT_A_TIME):
        began = time.perf_counter()
        connection.request("POST", f"/v2/models/{model}/infer", body, headers)
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter() - began)
        if answer.status != 200:
            raise BenchmarkError(f"{model}: status {answer.status}")
    connection.close()
    return f"one at a time, p50 {statistics.median(times) * 1e6:.0f} µs, p99 {quantile(times, 0.99) * 1e6:.0f} µs"


def shape(model: str) -> list[int]:
    """The shape of the input, which only the ONNX model batches."""
    return [1, 16] if model == MODEL else [16]


def quantile(times: Sequence[float], share: float) -> float:
    """The time that this share of all do not exceed."""
    return sorted(times)[round(share * (len(times) - 1))]


if __name__ == "__main__":
    main()
