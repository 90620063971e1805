"""Asynchronous inference: how fast requests are accepted, each on disk, and how fast a queue of them is worked off."""

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

from benchmarks import models
from benchmarks.connections import Call
from benchmarks.errors import BenchmarkError
from benchmarks.hosting import hosting, load, pack
from benchmarks.processes import READY_WITHIN_S, Server
from benchmarks.sagemaker import small_request
from benchmarks.workload import Compare, Sample, Sides, Workload

ACCEPTED_GOAL = 1000
DRAIN_GOAL = 0.9
QUEUED = 100_000
CONCURRENCY = 32
"""Clients at a time, and requests that the instance gets at a time."""

_TOOL = "h2load"
_FILLED_WITHIN_S = 600
_BACKLOG = re.compile(r'halimede_host_async_backlog\{[^}]*endpoint="queued"\} (\d+)')
_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="


def workloads() -> list[Workload]:
    """Acceptance beside the goal; draining beside the same requests, answered at once."""
    missing = "" if shutil.which(_TOOL) else _TOOL
    return [
        Workload("async-accepted-c32", "requests/s", Compare.AT_LEAST, 1.0, accepted, missing=missing),
        Workload(
            "async-drained", "requests/s", Compare.AT_LEAST, DRAIN_GOAL, drained, once=True, missing=missing
        ),
    ]


@contextmanager
def accepted(seconds: float) -> Iterator[Sides]:
    """InvokeEndpointAsync of an endpoint without instances: each request is on disk when it is answered."""
    with endpoints() as (host, queued, _, __):
        yield Sides(lambda: load(host, queued, CONCURRENCY, seconds), lambda: Sample(ACCEPTED_GOAL))


@contextmanager
def drained(seconds: float) -> Iterator[Sides]:
    """A queue of small requests from the first instance on; beside it, the same requests answered at once."""
    with endpoints() as (host, queued, direct, sagemaker):

        def ours() -> Sample:
            fill(host, queued)
            resize(sagemaker, 1)
            while (before := backlog(host)) == QUEUED:  # the instance is being started
                time.sleep(0.01)
            cpu, started = host.cpu_seconds(), time.perf_counter()
            while left := backlog(host):
                time.sleep(min(0.2, left / 10_000))
            took = time.perf_counter() - started
            cpu = host.cpu_seconds() - cpu
            resize(sagemaker, 0)
            return Sample(before / took, cpu / before * 1e6)

        yield Sides(ours, lambda: load(host, direct, CONCURRENCY, seconds))


@contextmanager
def endpoints() -> Iterator[tuple[Server, Call, Call, Any]]:
    """A host with the asynchronous endpoint ``queued`` and the endpoint ``direct``, and the calls."""
    with tempfile.TemporaryDirectory() as work:
        bucket = Path(work) / "bucket"
        bucket.mkdir()
        pack(models.onnx_identity(), bucket / "model.tar.gz")
        header, tensor = small_request()
        body, kind = header + tensor, f"{_BINARY}{len(header)}"
        with hosting(Path(work), bucket) as (host, sagemaker):
            client = boto3.client(
                "s3", endpoint_url=f"http://127.0.0.1:{host.http_port}", region_name="us-east-1",
                aws_access_key_id="benchmark", aws_secret_access_key="benchmark",
            )  # fmt: skip
            client.create_bucket(Bucket="results")
            container = {
                "Image": "sagemaker-tritonserver",
                "ModelDataUrl": f"s3://{bucket.name}/model.tar.gz",
            }
            sagemaker.create_model(
                ModelName="m",
                PrimaryContainer=container,
                ExecutionRoleArn="arn:aws:iam::000000000000:role/none",
            )
            variant = {"VariantName": "one", "ModelName": "m", "InstanceType": "ml.local.cpu"}
            config = {
                "ClientConfig": {"MaxConcurrentInvocationsPerInstance": CONCURRENCY},
                "OutputConfig": {"S3OutputPath": "s3://results/out"},
            }
            for name, further in (("queued", {"AsyncInferenceConfig": config}), ("direct", {})):
                sagemaker.create_endpoint_config(
                    EndpointConfigName=name,
                    ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
                    **further,
                )
                sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
            for name in ("queued", "direct"):
                settle(sagemaker, name)
            resize(sagemaker, 0)
            later = {"X-Amzn-SageMaker-Content-Type": kind}
            yield (
                host,
                Call(host.http_port, "/endpoints/queued/async-invocations", later, body),
                Call(host.http_port, "/endpoints/direct/invocations", {"Content-Type": kind}, body),
                sagemaker,
            )


def settle(sagemaker: Any, name: str) -> None:
    """Return when an endpoint is in service.

    Raises:
        BenchmarkError: it does not come up.
    """
    deadline = time.monotonic() + READY_WITHIN_S
    while (status := sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"]) != "InService":
        if status == "Failed" or time.monotonic() > deadline:
            raise BenchmarkError(f"The endpoint is {status}")
        time.sleep(0.02)


def resize(sagemaker: Any, count: int) -> None:
    """Let the queue have so many instances."""
    settle(sagemaker, "queued")
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="queued",
        DesiredWeightsAndCapacities=[{"VariantName": "one", "DesiredInstanceCount": count}],
    )
    if not count:
        settle(sagemaker, "queued")


def fill(host: Server, call: Call) -> None:
    """Put requests into the queue.

    Raises:
        BenchmarkError: they are not accepted.
    """
    with tempfile.NamedTemporaryFile() as body:
        body.write(call.body)
        body.flush()
        headers = [part for name, value in call.headers.items() for part in ("-H", f"{name}: {value}")]
        command = [_TOOL, "--h1", "-t", "1", "-c", str(CONCURRENCY), "-n", str(QUEUED - backlog(host)),
                   "-d", body.name, *headers, f"http://127.0.0.1:{call.port}{call.path}"]  # fmt: skip
        subprocess.run(command, capture_output=True, timeout=_FILLED_WITHIN_S, check=True)
    if backlog(host) != QUEUED:
        raise BenchmarkError(f"there are {backlog(host)} requests in the queue, not {QUEUED}")


def backlog(host: Server) -> int:
    """How many requests have not been answered."""
    found = _BACKLOG.search(host.get("/metrics").decode())
    return int(found[1]) if found is not None else 0
