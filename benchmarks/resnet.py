"""A model that computes: ResNet-50 behind this server, and `InferenceSession.run` in a bare loop."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import models
from benchmarks.errors import BenchmarkError
from benchmarks.load import Load, apply
from benchmarks.processes import cores, halimede, process
from benchmarks.tools import ROOT, perf_analyzer
from benchmarks.workload import Compare, Sample, Sides, Workload

GOAL = 0.95
ALL_CORES_GOAL = 0.97
SPINNING = {
    "": {},
    "-spinning": {"session.intra_op.allow_spinning": "1"},
    "-spinning-in-runs": {"session.intra_op.allow_spinning": "1", "session.force_spinning_stop": "1"},
    "-spinning-100us": {
        "session.intra_op.allow_spinning": "1",
        "session.force_spinning_stop": "1",
        "session.intra_op.spin_duration_us": "100",
    },
}
"""What threads of the model do while there is nothing for them: sleep, or spin until they have spun in vain for long,
until the run ends, or for a moment."""
PROBE_S = 2.0
LONGER = 3  # so few requests are done in a second that counting whole ones would blur the figure


def workloads() -> list[Workload]:
    """One core for the server and one for the client; then all cores for both, with threads that sleep or spin."""
    rows = [("", False, GOAL, SPINNING[""])]
    rows += [(f"-all-cores{name}", True, ALL_CORES_GOAL, keys) for name, keys in SPINNING.items()]
    return [
        Workload(
            f"resnet50-c{concurrency}{suffix}",
            "requests/s",
            Compare.AT_LEAST,
            goal,
            sides(concurrency, shared, parameters),
        )
        for suffix, shared, goal, parameters in rows
        for concurrency in (1, 4)
    ]


def sides(
    concurrency: int, shared: bool, parameters: Mapping[str, str]
) -> Callable[[float], AbstractContextManager[Sides]]:
    """Both sides on the same cores; the loop with the threads and the batch size that serve it best."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        repository = models.resnet50(parameters=parameters)
        everything = os.sched_getaffinity(0)
        server_cores, client_cores = (everything, everything) if shared else cores()
        load = Load(
            "resnet50",
            "http",
            concurrency,
            seconds * LONGER,
            data=models.image_data(),
            client_cores=frozenset(client_cores),
        )
        loop = partial(images_in_loop, repository / "resnet50" / "1" / "model.onnx", server_cores)
        threads, batch = fastest(loop, len(server_cores), concurrency)
        with halimede(repository, server_cores) as server:
            yield Sides(partial(apply, perf_analyzer(), load, server), lambda: loop(threads, batch, seconds))

    return both


def fastest(
    loop: Callable[[int, int, float], Sample], most_threads: int, concurrency: int
) -> tuple[int, int]:
    """The threads and the batch size with which the loop is fastest, of those that the load allows."""
    batches = [batch for batch in (1, 2, 4, 8) if batch <= concurrency]
    settings = [(threads, batch) for threads in range(1, most_threads + 1) for batch in batches]
    if len(settings) == 1:
        return settings[0]
    return max(settings, key=lambda setting: loop(setting[0], setting[1], PROBE_S).value)


def images_in_loop(model: Path, on_cores: set[int], threads: int, batch: int, seconds: float) -> Sample:
    """Images a second, and the time of processors for each, in batches of so many."""
    runs = bare_loop(model, on_cores, threads, "image", (batch, 3, 224, 224), seconds)
    assert runs.cpu_us is not None
    return Sample(runs.value * batch, runs.cpu_us / batch)


def bare_loop(
    model: Path, on_cores: set[int], threads: int, name: str, shape: tuple[int, ...], seconds: float
) -> Sample:
    """Runs a second of a session in a process of its own, with an input of this name and shape."""
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.bare_session", model]
    command += [str(threads), name, ",".join(map(str, shape)), str(seconds)]
    with process(command, on_cores, cwd=ROOT, stdout=subprocess.PIPE) as child:
        output, _ = child.communicate()
    if child.returncode:
        raise BenchmarkError(f"The bare loop ended with code {child.returncode}")
    figures = json.loads(output)
    return Sample(figures["rate"], figures["cpu_us"])
