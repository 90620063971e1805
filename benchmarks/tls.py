"""What TLS 1.3 takes from the rate of small requests over connections that are kept."""

import json
import re
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, cores, halimede, pinned
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest

MODEL = "onnx_identity"
ELEMENTS = 16
WARM_UP_MS = 500
GOAL = 0.7

_TOOL = "h2load"
RATE = re.compile(r"finished in [\d.]+\w+, ([\d.]+) req/s")
SUCCEEDED = re.compile(r"(\d+) succeeded, 0 failed, 0 errored")


def workloads() -> list[Workload]:
    """Both protocols at three concurrencies, each over TLS and without."""
    return [workload(protocol, concurrency) for protocol in ("http", "grpc") for concurrency in (1, 8, 32)]


def workload(protocol: str, concurrency: int) -> Workload:
    """So many requests at a time, each on a connection of its own."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        core, _ = cores()
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            certificate, key = make_certificate(directory)
            arguments = request(protocol, directory)
            flags = [f"--{name}-{flag}" for name in ("http", "grpc")
                     for flag in ("use-ssl", f"server-cert={certificate}", f"server-key={key}")]  # fmt: skip
            trust = ssl.create_default_context(cafile=certificate)
            repository = models.onnx_identity()
            with (
                halimede(repository, core, flags, trust=trust) as encrypted,
                halimede(repository, core) as plain,
            ):
                measure = partial(load, protocol, concurrency, seconds, arguments)
                yield Sides(partial(measure, encrypted), partial(measure, plain))

    missing = "" if shutil.which(_TOOL) else _TOOL
    name = f"tls-{protocol}-c{concurrency}"
    return Workload(name, "requests/s", Compare.AT_LEAST, GOAL, both, missing=missing)


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    certificate, key = directory / "server.crt", directory / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "60", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-out", certificate, "-keyout", key],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def request(
    protocol: str, directory: Path, model: str = MODEL, shape: Sequence[int] = (1, ELEMENTS)
) -> list[str]:
    """Arguments for h2load that make one inference request with FP32 of this shape: its path comes last."""
    tensor, body = bytes(4 * prod(shape)), directory / "body"
    if protocol == "grpc":
        message = ModelInferRequest(model_name=model, raw_input_contents=[tensor])
        message.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
        content = message.SerializeToString()
        body.write_bytes(b"\0" + len(content).to_bytes(4, "big") + content)
        headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        return ["-m", "1", *headers, "-d", str(body), "/inference.GRPCInferenceService/ModelInfer"]
    given: dict[str, Any] = {"name": "INPUT0", "datatype": "FP32", "shape": list(shape)}
    given["parameters"] = {"binary_data_size": len(tensor)}
    wanted = {"name": "OUTPUT0", "parameters": {"binary_data": True}}
    header = json.dumps({"inputs": [given], "outputs": [wanted]})
    body.write_bytes(header.encode() + tensor)
    headers = ["-H", f"inference-header-content-length: {len(header)}"]
    return ["--h1", *headers, "-d", str(body), f"/v2/models/{model}/infer"]


def load(
    protocol: str,
    concurrency: int,
    seconds: float,
    arguments: Sequence[str],
    server: Server,
    *,
    pin: bool = True,
    model: str = MODEL,
) -> Sample:
    """Requests a second, as h2load counts them, and the server's CPU time for each; `pin` keeps h2load on its core.

    Args:
        protocol: http or grpc.
        concurrency: connections.
        seconds: how long.
        arguments: as `request` makes them.
        server: the server.
        pin: h2load keeps to its core.
        model: the model that is asked.

    Raises:
        BenchmarkError: one failed.
    """
    scheme = "http" if server.trust is None else "https"
    port = server.http_port if protocol == "http" else server.grpc_port
    *options, path = arguments
    command = [_TOOL, "-t", "1", "-c", str(concurrency), "-D", f"{round(seconds * 1000)}ms",
               f"--warm-up-time={WARM_UP_MS}ms",
               *options, f"{scheme}://127.0.0.1:{port}{path}"]  # fmt: skip
    served, cpu = server.requests_served(model), server.cpu_seconds()
    with pinned(cores()[1]) if pin else nullcontext():
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + seconds, check=False)
    served, cpu = server.requests_served(model) - served, server.cpu_seconds() - cpu
    rate = RATE.search(done.stdout)
    if rate is None or not SUCCEEDED.search(done.stdout):
        raise BenchmarkError(f"h2load: {done.stdout}{done.stderr}")
    return Sample(float(rate[1]), cpu / served * 1e6)
