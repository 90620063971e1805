"""Measure what the simulation takes for granted of a server: `python -m benchmarks.cluster.measure`.

The model is ResNet-50 with random weights, 102 MB. What is printed stands in `times.py`.
"""

import json
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

from benchmarks import models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, halimede
from benchmarks.repository_control import load, unload
from halimede.repository.model_archives import extract_model

_CYCLES = 10
_REQUESTS = 100


def main() -> None:
    """Print medians and the largest values, in milliseconds."""
    repository = models.resnet50()
    model = repository / "resnet50"
    began = time.perf_counter()
    with halimede(repository, arguments=["--model-control-mode=explicit"]) as server:
        started = time.perf_counter() - began
        before = server.resident_mb()
        with closing(HTTPConnection("127.0.0.1", server.http_port, timeout=60)) as connection:
            loads, unloads = [], []
            for _ in range(_CYCLES):
                loads.append(load(connection, "resnet50"))
                unloads.append(unload(connection, "resnet50"))
            load(connection, "resnet50")
        services = [infer(server) for _ in range(_REQUESTS)]
        memory = server.resident_mb() - before
    print(f"a server is ready after {started * 1e3:.0f} ms")
    print(f"the model takes {memory:.0f} MB of memory")
    for name, times in (("load", loads), ("unload", unloads), ("request", services)):
        tell(name, times)
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "resnet50.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
            packed.add(model, "resnet50")
        print(f"the archive has {archive.stat().st_size / 1e6:.0f} MB")
        places = (Path(directory) / str(number) for number in range(_CYCLES))
        tell("extract", [timed(partial(extract_model, archive, place)) for place in places])


def infer(server: Server) -> float:
    """The seconds of one request, as binary data."""
    image = {"name": "image", "datatype": "FP32", "shape": [1, 3, 224, 224]}
    header = json.dumps({"inputs": [{**image, "parameters": {"binary_data_size": 3 * 224 * 224 * 4}}]})
    body = header.encode() + models.images(1).tobytes()
    began = time.perf_counter()
    status, text, _ = server.request(
        "POST",
        "/v2/models/resnet50/infer",
        body,
        Inference_Header_Content_Length=str(len(header)),
    )
    if status != 200:
        raise BenchmarkError(f"a request was answered {status}: {text.decode(errors='replace')}")
    return time.perf_counter() - began


def timed(work: Callable[[], object]) -> float:
    """The seconds that it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def tell(name: str, times: list[float]) -> None:
    """Print a line."""
    print(f"{name}: median {statistics.median(times) * 1e3:.1f} ms, largest {max(times) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
