"""What a client of an endpoint notices of a shadow variant that gets a copy of each request; beside it, none."""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.connections import LONGEST_S, Call, median_time
from benchmarks.errors import BenchmarkError
from benchmarks.hosting import BINARY, TOOL, hosting, pack
from benchmarks.processes import READY_WITHIN_S, Server
from benchmarks.sagemaker import small_request
from benchmarks.workload import Compare, Sample, Sides, Workload

GOAL = 1.1
CONCURRENCY = 32

_ROLE = "arn:aws:iam::000000000000:role/none"
_HANGS = """#!{python}
import os, socket, threading

def serve(connection):
    data = connection.recv(65536)
    if data.startswith(b"GET "):
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
        connection.close()
    else:
        while connection.recv(65536):
            pass

listener = socket.create_server(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])))
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""


def workloads() -> list[Workload]:
    """A shadow that answers as the production variant does, and one that answers nothing."""
    missing = "" if shutil.which(TOOL) else TOOL
    return [
        Workload(
            f"host-shadow{kind}-c{concurrency}",
            "µs, median",
            Compare.AT_MOST,
            GOAL,
            partial(beside, concurrency, hangs=bool(kind)),
            missing=missing if concurrency > 1 else "",
        )
        for kind in ("", "-that-hangs")
        for concurrency in (1, CONCURRENCY)
    ]


@contextmanager
def beside(concurrency: int, seconds: float, *, hangs: bool) -> Iterator[Sides]:
    """Requests to an endpoint with a shadow at 100%, so many at a time; beside it, to one without."""
    with ExitStack() as stack:
        ours, other = (stack.enter_context(endpoint(shadow)) for shadow in ("hangs" if hangs else "same", ""))
        yield Sides(
            lambda: median_at(*ours, concurrency, seconds), lambda: median_at(*other, concurrency, seconds)
        )


@contextmanager
def endpoint(shadow: str) -> Iterator[tuple[Server, Call]]:
    """A host with an endpoint, and a call to it.

    Args:
        shadow: ``same`` for one with a shadow of the same model, ``hangs`` for one that answers nothing, "" for none.
    """
    with tempfile.TemporaryDirectory() as work:
        bucket = Path(work) / "bucket"
        bucket.mkdir()
        pack(models.onnx_identity(), bucket / "model.tar.gz")
        program = Path(work) / "hangs"
        program.write_text(_HANGS.format(python=sys.executable))
        program.chmod(0o755)
        with hosting(Path(work), bucket) as (host, sagemaker):
            url = f"s3://{bucket.name}/model.tar.gz"
            create_model(sagemaker, "same", {"Image": "sagemaker-tritonserver", "ModelDataUrl": url})
            create_model(sagemaker, "hangs", {"Image": str(program)})
            create(sagemaker, shadow)
            header, tensor = small_request()
            headers = {"Content-Type": f"{BINARY}{len(header)}"}
            yield host, Call(host.http_port, "/endpoints/one/invocations", headers, header + tensor)


def create_model(sagemaker: Any, name: str, container: dict[str, str]) -> None:
    """A model of a container."""
    sagemaker.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=_ROLE)


def create(sagemaker: Any, shadow: str) -> None:
    """The endpoint ``one`` in service, with a shadow of a model, or none.

    Raises:
        BenchmarkError: it does not come up.
    """
    variant = {"InstanceType": "ml.local.cpu", "InitialInstanceCount": 1, "InitialVariantWeight": 1}
    shadows = [{**variant, "VariantName": "shadow", "ModelName": shadow}] if shadow else []
    sagemaker.create_endpoint_config(
        EndpointConfigName="one",
        ProductionVariants=[{**variant, "VariantName": "one", "ModelName": "same"}],
        **({"ShadowProductionVariants": shadows} if shadows else {}),
    )
    sagemaker.create_endpoint(EndpointName="one", EndpointConfigName="one")
    deadline = time.monotonic() + READY_WITHIN_S
    while (found := sagemaker.describe_endpoint(EndpointName="one"))["EndpointStatus"] == "Creating":
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if found["EndpointStatus"] != "InService":
        raise BenchmarkError(f"The endpoint is {found['EndpointStatus']}: {found.get('FailureReason')}")


def median_at(server: Server, call: Call, concurrency: int, seconds: float) -> Sample:
    """The median over requests of which so many are under way at any time, in µs; the first tenth does not count.

    Raises:
        BenchmarkError: one failed.
    """
    if concurrency == 1:
        return median_time(server, call, seconds)
    with tempfile.NamedTemporaryFile() as body, tempfile.TemporaryDirectory() as directory:
        body.write(call.body)
        body.flush()
        log = Path(directory) / "log"
        headers = [part for name, value in call.headers.items() for part in ("-H", f"{name}: {value}")]
        command = [TOOL, "--h1", "-t", "1", "-c", str(concurrency), "-D", str(max(1, round(seconds))),
                   "-d", body.name, f"--log-file={log}", *headers,
                   f"http://127.0.0.1:{call.port}{call.path}"]  # fmt: skip
        cpu = server.cpu_seconds()
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        cpu = server.cpu_seconds() - cpu
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    if not rows or any(status != "200" for _, status, _ in rows):
        raise BenchmarkError(f"{TOOL}: {done.stdout}{done.stderr}")
    times = [float(each) for _, _, each in rows[len(rows) // 10 :]]
    return Sample(statistics.median(times), cpu / len(rows) * 1e6)
