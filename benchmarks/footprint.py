"""Start-up time and memory, beside an interpreter that only imports the same libraries."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, halimede, process, resident_mb
from benchmarks.workload import Compare, Sample, Sides, Workload

BARE = "import sys, onnxruntime, numpy; sys.stdout.write('!'); sys.stdout.flush(); sys.stdin.read()"
MODEL = "onnx_identity"
CYCLES = 200
SETTLE_S = 1.0


def workloads() -> list[Workload]:
    """Start to ready, memory at rest, and memory over many loads and unloads."""
    return [
        Workload("start-up", "s", Compare.AT_MOST_MORE, 0.5, start_up),
        Workload("idle memory", "MB", Compare.AT_MOST_MORE, 40, idle_memory),
        Workload(f"memory over {CYCLES} loads", "MB", Compare.AT_MOST_MORE, 1, memory_over_loads),
    ]


@contextmanager
def start_up(_seconds: float) -> Iterator[Sides]:
    """From the start of the process until it answers that it is ready; the limit: until the imports are done."""
    repository = models.onnx_identity()

    def ours() -> Sample:
        started = time.monotonic()
        with halimede(repository):
            return Sample(time.monotonic() - started)

    def limit() -> Sample:
        started = time.monotonic()
        with bare_interpreter():
            return Sample(time.monotonic() - started)

    yield Sides(ours, limit)


@contextmanager
def idle_memory(_seconds: float) -> Iterator[Sides]:
    """Resident memory a moment after the start, without any request but those for readiness."""
    repository = models.onnx_identity()

    def ours() -> Sample:
        with halimede(repository) as server:
            time.sleep(SETTLE_S)
            return Sample(server.resident_mb())

    def limit() -> Sample:
        with bare_interpreter() as child:
            time.sleep(SETTLE_S)
            return Sample(resident_mb(child.pid))

    yield Sides(ours, limit)


@contextmanager
def memory_over_loads(_seconds: float) -> Iterator[Sides]:
    """Resident memory after so many loads and unloads; the limit is what it was before them."""
    before = 0.0
    with halimede(models.onnx_identity(), arguments=["--model-control-mode=explicit"]) as server:

        def ours() -> Sample:
            nonlocal before
            before = server.resident_mb()
            for _ in range(CYCLES):
                control(server, "load")
                control(server, "unload")
            return Sample(server.resident_mb())

        yield Sides(ours, lambda: Sample(before))


def control(server: Server, verb: str) -> None:
    """Load or unload the model, and wait until that is done."""
    status, body, _ = server.request("POST", f"/v2/repository/models/{MODEL}/{verb}")
    if status != 200:
        raise BenchmarkError(f"{verb} failed with {status}: {body.decode(errors='replace')}")


@contextmanager
def bare_interpreter() -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that has imported ONNX Runtime and numpy, and waits."""
    command = [sys.executable, "-c", BARE]
    with process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        yield child
