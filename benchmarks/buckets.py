"""A server that starts with its models in a bucket, beside a download of them and a start from the directory."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import boto3
import obstore
from obstore.store import S3Store

from benchmarks import models
from benchmarks.hosting import await_ping
from benchmarks.processes import Server, free_ports, process, server_arguments
from benchmarks.workload import Compare, Sample, Sides, Workload

MODELS = 100
MODEL_MB = 10
GOAL = 0.8
DOWNLOADS = 16
BUCKET = "models"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def workloads() -> list[Workload]:
    """The one."""
    return [Workload("bucket-cold-100-models", "models/s", Compare.AT_LEAST, GOAL, cold)]


@contextmanager
def cold(_seconds: float) -> Iterator[Sides]:
    """From the start of a process to the readiness of all models; the limit's time is that of the download, too."""
    with tempfile.TemporaryDirectory() as work, stored(Path(work)) as endpoint:

        def ours() -> Sample:
            with tempfile.TemporaryDirectory(dir=work) as cache:
                url = f"s3://{endpoint}/{BUCKET}"
                return Sample(MODELS / seconds_to_ready(url, f"--cloud-cache-directory={cache}"))

        def limit() -> Sample:
            with tempfile.TemporaryDirectory(dir=work) as directory:
                began = time.perf_counter()
                download(endpoint, Path(directory))
                downloaded = time.perf_counter() - began
                return Sample(MODELS / (downloaded + seconds_to_ready(directory)))

        yield Sides(ours, limit)


def seconds_to_ready(repository: str, *arguments: str) -> float:
    """How long a server takes to load all models of a repository, from the start of its process."""
    ports = free_ports(3)
    command = [sys.executable, "-m", "halimede", "serve", *server_arguments(repository, ports), *arguments]
    began = time.perf_counter()
    with process(command, env={**os.environ, **CREDENTIALS}, stdout=subprocess.DEVNULL) as child:
        Server(child, *ports).await_ready()
        return time.perf_counter() - began


def download(endpoint: str, directory: Path) -> None:
    """Fetch all objects of the bucket into files, as many at a time as the server does."""
    store = bucket(endpoint)

    def fetch(key: str) -> None:
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(obstore.get(store, key).bytes())

    with ThreadPoolExecutor(DOWNLOADS) as threads:
        list(threads.map(fetch, [each["path"] for each in obstore.list(store).collect()]))


def bucket(endpoint: str) -> S3Store:
    """The bucket of the models."""
    return S3Store(
        BUCKET,
        endpoint=endpoint,
        region=CREDENTIALS["AWS_DEFAULT_REGION"],
        access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )


@contextmanager
def stored(work: Path) -> Iterator[str]:
    """The URL of a host whose store has the models in a bucket."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "halimede", "host", f"--port={port}", f"--directory={work / 'host'}"]
    with process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        await_ping(Server(child, port, 0))
        endpoint = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket=BUCKET)
        repository = models.numbered("bucket", MODELS, MODEL_MB)
        for path in sorted(repository.rglob("*.onnx")):
            obstore.put(bucket(endpoint), str(path.relative_to(repository)), path)
        yield endpoint
