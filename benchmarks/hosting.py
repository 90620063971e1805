"""Invocations through `halimede host` beside the same requests straight to a server, and what is cold at first."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from botocore.config import Config

from benchmarks import models
from benchmarks.connections import LONGEST_S, Call, connected, exchange, median_time
from benchmarks.errors import BenchmarkError
from benchmarks.processes import READY_WITHIN_S, TICKS_PER_SECOND, Server, free_ports, process
from benchmarks.sagemaker import ask, large_model, small_request
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.core.process_tree import tree
from halimede.repository.model_archives import extract_model

ADDED_GOAL_US = 250
SHARE_GOAL = 0.7
COLD_GOAL = 1.2
CONTROL_GOAL_MS = 20
BODY_BYTES = 6_000_000
MANY = 1000
CONCURRENCY = 32
ROUTERS = 2

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
_RATE = re.compile(r"finished in [^,]+, ([\d.]+) req/s")
_SUCCEEDED = re.compile(r"(\d+) total, .* (\d+) succeeded")
TOOL = "h2load"


def workloads() -> list[Workload]:
    """What the host adds to an invocation, what it takes of the rate, and cold models."""
    missing = "" if shutil.which(TOOL) else TOOL
    return [
        *(row for routers in (1, ROUTERS) for row in passed_on(routers, missing)),
        Workload("host-cold-100MB", "ms", Compare.AT_MOST, COLD_GOAL, cold),
        Workload("host-control-1000-models", "ms, slowest", Compare.AT_MOST, 1.0, control),
    ]


def passed_on(routers: int, missing: str) -> list[Workload]:
    """What passing requests on costs with so many router processes; beside it, the same straight to a server."""
    suffix = "" if routers == 1 else f"-{routers}-routers"
    goal = SHARE_GOAL if routers == 1 else None
    return [
        Workload(
            f"host-added-c1{suffix}",
            "µs, median",
            Compare.AT_MOST_MORE,
            ADDED_GOAL_US,
            partial(added, 64, routers),
        ),
        Workload(
            f"host-added-6MB-c1{suffix}",
            "µs, median",
            Compare.AT_MOST_MORE,
            None,
            partial(added, BODY_BYTES, routers),
        ),
        Workload(
            f"host-c32{suffix}",
            "requests/s",
            Compare.AT_LEAST,
            goal,
            partial(rates, CONCURRENCY, 64, routers),
            missing=missing,
        ),
        Workload(
            f"host-6MB-c4{suffix}",
            "requests/s",
            Compare.AT_LEAST,
            goal,
            partial(rates, 4, BODY_BYTES, routers),
            missing=missing,
        ),
    ]


class HostServer(Server):
    """A host, whose CPU time is that of its own processes, without its instances."""

    def cpu_seconds(self) -> float:
        """CPU time of the host's own process and of its routers, in user and kernel mode."""
        own = [one for one in tree(self.child.pid) if one.pid == self.child.pid or is_router(one.pid)]
        return sum(one.cpu_ticks for one in own) / TICKS_PER_SECOND


def is_router(pid: int) -> bool:
    """Whether a process is a router of a host."""
    with suppress(OSError):
        return b"halimede.hosting.routers.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@contextmanager
def added(size: int, routers: int, seconds: float) -> Iterator[Sides]:
    """One request at a time with a body of that size."""
    with both_ways(size, routers) as (host, through, instance, direct):
        yield Sides(
            lambda: median_time(host, through, seconds), lambda: median_time(instance, direct, seconds)
        )


@contextmanager
def rates(concurrency: int, size: int, routers: int, seconds: float) -> Iterator[Sides]:
    """As many requests as go, so many at a time, with bodies of that size there and back."""
    with both_ways(size, routers) as (host, through, instance, direct):
        yield Sides(
            lambda: load(host, through, concurrency, seconds),
            lambda: load(instance, direct, concurrency, seconds),
        )


@contextmanager
def cold(_seconds: float) -> Iterator[Sides]:
    """The first request for a model of 100 MB; beside it, the archive's extraction and the same server's load."""
    names = (f"cold{number}.tar.gz" for number in count())
    with tempfile.TemporaryDirectory() as work:
        bucket = Path(work) / "bucket"
        bucket.mkdir()
        archive = pack(large_model(), bucket / "dense.tar.gz")
        request = json.dumps(
            {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1000], "data": [0.0] * 1000}]}
        )
        with (
            hosting(Path(work), bucket) as (host, sagemaker),
            serve(Path(work) / "ml", SAGEMAKER_MULTI_MODEL="true") as instance,
        ):
            create(sagemaker, "cold", f"s3://{bucket.name}/", multi_model=True)

            def ours() -> Sample:
                name = next(names)
                os.link(archive, bucket / name)
                target = {"X-Amzn-SageMaker-Target-Model": name}
                call = Call(host.http_port, "/endpoints/cold/invocations", target, request.encode())
                started = time.perf_counter()
                invoke(call)
                return Sample((time.perf_counter() - started) * 1e3)

            def other() -> Sample:
                key = next(names).partition(".")[0]
                place = Path(work) / "ml" / "models" / key / "model"
                place.parent.mkdir(parents=True)
                copy = Path(work) / f"{key}.tar.gz"
                call = Call(instance.http_port, f"/models/{key}/invoke", {}, request.encode())
                started = time.perf_counter()
                shutil.copyfile(archive, copy)
                extract_model(copy, place)
                document = json.dumps({"model_name": key, "url": str(place)})
                ask(instance.http_port, "POST", "/models", document)
                invoke(call)
                took = time.perf_counter() - started
                copy.unlink()
                ask(instance.http_port, "DELETE", f"/models/{key}")
                return Sample(took * 1e3)

            yield Sides(ours, other)


@contextmanager
def control(_seconds: float) -> Iterator[Sides]:
    """The slowest of 20 calls of the control plane while 1,000 models are invoked; beside it, the goal."""
    with tempfile.TemporaryDirectory() as work:
        bucket = Path(work) / "bucket"
        bucket.mkdir()
        archive = pack(models.large_identity(), bucket / "identity.tar.gz")
        for number in range(MANY):
            os.link(archive, bucket / f"m{number}.tar.gz")
        header, tensor = request_of(16)
        with hosting(Path(work), bucket) as (host, sagemaker):
            create(sagemaker, "many", f"s3://{bucket.name}/", multi_model=True)
            draw = np.random.default_rng(0)

            def ours() -> Sample:
                times = []
                for _ in range(20):
                    for model in draw.integers(MANY, size=5):
                        headers = {
                            "X-Amzn-SageMaker-Target-Model": f"m{model}.tar.gz",
                            "Content-Type": f"{BINARY}{len(header)}",
                        }
                        invoke(Call(host.http_port, "/endpoints/many/invocations", headers, header + tensor))
                    started = time.perf_counter()
                    sagemaker.describe_endpoint(EndpointName="many")
                    times.append(time.perf_counter() - started)
                return Sample(max(times) * 1e3)

            yield Sides(ours, lambda: Sample(CONTROL_GOAL_MS))


@contextmanager
def both_ways(size: int, routers: int = 1) -> Iterator[tuple[Server, Call, Server, Call]]:
    """A host with an endpoint, its call, another server with the same model, and the same call to that one."""
    with tempfile.TemporaryDirectory() as work:
        bucket = Path(work) / "bucket"
        bucket.mkdir()
        if size == 64:
            repository, (header, tensor) = models.onnx_identity(), small_request()
        else:
            repository, (header, tensor) = models.large_identity(), request_of(size // 4)
        archive = pack(repository, bucket / "model.tar.gz")
        base = Path(work) / "ml"
        base.mkdir()
        extract_model(archive, base / "model")
        headers = {"Content-Type": f"{BINARY}{len(header)}"}
        body = header + tensor
        with hosting(Path(work), bucket, routers) as (host, sagemaker), serve(base) as instance:
            create(sagemaker, "one", f"s3://{bucket.name}/model.tar.gz", multi_model=False)
            through = Call(host.http_port, "/endpoints/one/invocations", headers, body)
            yield host, through, instance, Call(instance.http_port, "/invocations", headers, body)


def request_of(elements: int) -> tuple[bytes, bytes]:
    """The header and the tensor of a request for `large_identity`, with that many elements there and back."""
    tensor = np.zeros(elements, np.float32).tobytes()
    given = {
        "name": "INPUT0",
        "shape": [elements],
        "datatype": "FP32",
        "parameters": {"binary_data_size": len(tensor)},
    }
    wanted = {"name": "OUTPUT0", "parameters": {"binary_data": True}}
    return json.dumps({"inputs": [given], "outputs": [wanted]}).encode(), tensor


def pack(repository: Path, archive: Path) -> Path:
    """The archive of a repository's models."""
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        for each in repository.iterdir():
            file.add(each, each.name)
    return archive


def load(server: Server, call: Call, concurrency: int, seconds: float) -> Sample:
    """Requests a second, as h2load counts them, and the server's CPU time for each.

    Raises:
        BenchmarkError: one failed.
    """
    with tempfile.NamedTemporaryFile() as body:
        body.write(call.body)
        body.flush()
        headers = [part for name, value in call.headers.items() for part in ("-H", f"{name}: {value}")]
        command = [TOOL, "--h1", "-t", "1", "-c", str(concurrency), "-D", str(max(1, round(seconds))),
                   "-d", body.name, *headers, f"http://127.0.0.1:{call.port}{call.path}"]  # fmt: skip
        cpu = server.cpu_seconds()
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        cpu = server.cpu_seconds() - cpu
    rate, counts = _RATE.search(done.stdout), _SUCCEEDED.search(done.stdout)
    if rate is None or counts is None or " 0 failed, 0 errored" not in done.stdout:
        raise BenchmarkError(f"h2load: {done.stdout}{done.stderr}")
    return Sample(float(rate[1]), cpu / int(counts[2]) * 1e6)


def invoke(call: Call) -> None:
    """Ask once, on a connection of its own.

    Raises:
        BenchmarkError: the answer is an error.
    """
    with connected(call) as connection:
        exchange(connection, call.message)


@contextmanager
def hosting(work: Path, bucket: Path, routers: int = 1) -> Iterator[tuple[Server, Any]]:
    """A host with a bucket and so many router processes, and a client of its control plane."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "halimede", "host", "--port", str(port), "--directory", str(work / "host"),
               "--bucket", f"{bucket.name}={bucket}", "--describe-hold", "0",
               f"--router-processes={routers}"]  # fmt: skip
    with process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        server = HostServer(child, port, 0)
        await_ping(server)
        client = boto3.client(
            "sagemaker", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
            aws_access_key_id="benchmark", aws_secret_access_key="benchmark",
            config=Config(retries={"total_max_attempts": 1}),
        )  # fmt: skip
        yield server, client


@contextmanager
def serve(base: Path, **variables: str) -> Iterator[Server]:
    """The server as an instance of the host runs it."""
    [port] = free_ports(1)
    environment = {
        **os.environ,
        "SAGEMAKER_BASE_DIR": str(base),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        **variables,
    }
    (base / "models").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "halimede", "sagemaker-serve"]
    with process(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        server = Server(child, port, 0)
        await_ping(server)
        yield server


def await_ping(server: Server) -> None:
    """Return when it answers.

    Raises:
        BenchmarkError: it does not.
    """
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            if server.request("GET", "/ping")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise BenchmarkError(f"Nothing answers at port {server.http_port}")


def create(
    sagemaker: Any, name: str, url: str, *, multi_model: bool, config: Mapping[str, Any] | None = None
) -> None:
    """An endpoint with one instance, in service; `config` has further members of its configuration.

    Raises:
        BenchmarkError: it does not come up.
    """
    container = {"Image": "sagemaker-tritonserver", "ModelDataUrl": url}
    if multi_model:
        container["Mode"] = "MultiModel"
    sagemaker.create_model(
        ModelName=name, PrimaryContainer=container, ExecutionRoleArn="arn:aws:iam::000000000000:role/none"
    )
    variant = {
        "VariantName": "one",
        "ModelName": name,
        "InstanceType": "ml.local.cpu",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant], **(config or {}))
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    deadline = time.monotonic() + READY_WITHIN_S
    while (endpoint := sagemaker.describe_endpoint(EndpointName=name))["EndpointStatus"] == "Creating":
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if endpoint["EndpointStatus"] != "InService":
        raise BenchmarkError(f"The endpoint is {endpoint['EndpointStatus']}: {endpoint.get('FailureReason')}")
