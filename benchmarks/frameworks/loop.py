"""The models on disk, and the bare loop as a process that is asked for figures."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.frameworks.framework import Framework, Size
from benchmarks.models import REPOSITORIES
from benchmarks.processes import process
from benchmarks.tools import ROOT

MODEL = "model"
"""The name of each of them."""

PROBE_S = 0.5


@cache
def built(framework: Framework, size: Size) -> Path:
    """The repository of the model, made anew in a process of its own; it lacks a configuration.

    Raises:
        BenchmarkError: the framework refused; its own words are on stderr.
    """
    repository = REPOSITORIES / f"{framework.name}-{size.value}"
    version = repository / MODEL / "1"
    shutil.rmtree(repository, ignore_errors=True)
    version.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.frameworks.build", framework.name, size.value, version]
    if subprocess.run(command, cwd=ROOT, env=quiet(), stdout=subprocess.DEVNULL).returncode:
        raise BenchmarkError(f"The {size.value} model of {framework.name} could not be built")
    return repository


def configured(framework: Framework, size: Size, batch: int) -> Path:
    """The repository of the model, which takes batches of at most so many rows."""
    repository = built(framework, size)
    (repository / MODEL / "config.pbtxt").write_text(framework.config(batch))
    return repository


@dataclass(frozen=True, slots=True)
class Figures:
    """What a loop of calls came to: rows a second, the median of a call and the CPU time of a row in µs."""

    rate: float
    median_us: float
    cpu_us: float


class BareLoop:
    """A process that has loaded the model, and waits to be asked."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    def measure(self, rows: int, seconds: float, pause: float = 0.0) -> Figures:
        """Call the model on so many rows, again and again for so long, with a pause in seconds after each call.

        Raises:
            BenchmarkError: the process has ended.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps([rows, seconds, pause]).encode() + b"\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise BenchmarkError("The bare loop has ended")
        return Figures(*json.loads(answer))

    def fastest(self, batches: Collection[int]) -> int:
        """The number of rows a call with which it does the most rows a second."""
        return max(batches, key=lambda rows: self.measure(rows, PROBE_S).rate)


@contextmanager
def bare_loop(framework: Framework, size: Size, on_cores: Collection[int]) -> Iterator[BareLoop]:
    """The loop on those cores, with as many threads."""
    version = built(framework, size) / MODEL / "1"
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.frameworks.bare", framework.name]
    command += [size.value, version, str(len(on_cores))]
    pipe = subprocess.PIPE
    with process(command, on_cores, cwd=ROOT, env=quiet(), stdin=pipe, stdout=pipe) as child:
        yield BareLoop(child)


def quiet() -> dict[str, str]:
    """The variables, with that which has TensorFlow say what is wrong only."""
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
