"""Print latency and cold start of every ResNet-50 of the server, beside the bare framework's with the same file.

The server must let models be loaded and unloaded (`--model-control-mode=explicit`). The two sides take turns, so run it
on a machine that does nothing else.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tritonclient.http as triton
from numpy.typing import NDArray

from examples.answers import difference, tensor
from examples.resnet50.bare import LOADERS, Run
from examples.resnet50.client import PREFIX, add_tolerance, served_models

BATCHES = (1, 8)
WARM_UP = 3
HEADER = (
    "| | load, s | first answer, ms | batch 1: p50, ms | p95, ms | batch 8: p50, ms | p95, ms |\n"
    "|---|---|---|---|---|---|---|"
)


class Figures(NamedTuple):
    """What is measured of a network.

    Attributes:
        load_s: until it is loaded, median.
        first_s: the first answer after that, batch 1, median.
        latencies: p50 and p95 for each batch size, in seconds.
    """

    load_s: float
    first_s: float
    latencies: list[tuple[float, float]]

    def row(self, name: str) -> str:
        """A row of the table."""
        latencies = [f"{1000 * value:.1f}" for pair in self.latencies for value in pair]
        cells = [name, f"{self.load_s:.2f}", f"{1000 * self.first_s:.0f}", *latencies]
        return f"| {' | '.join(cells)} |"


def measure(
    load: Callable[[], Run],
    unload: Callable[[], None],
    image: NDArray[np.float32],
    seconds: float,
    starts: int,
) -> Figures:
    """Load and unload several times, then run each batch size for so many seconds."""
    loads, firsts = [], []
    for _ in range(starts):
        unload()
        start = time.perf_counter()
        run = load()
        loads.append(time.perf_counter() - start)
        firsts.append(duration(run, image))
    latencies = []
    for size in BATCHES:
        images = np.repeat(image, size, axis=0)
        for _ in range(WARM_UP):
            run(images)
        end = time.perf_counter() + seconds
        found = [duration(run, images)]
        while time.perf_counter() < end:
            found.append(duration(run, images))
        p50, p95 = np.percentile(found, [50, 95])
        latencies.append((float(p50), float(p95)))
    unload()
    return Figures(float(np.median(loads)), float(np.median(firsts)), latencies)


def duration(run: Run, images: NDArray[np.float32]) -> float:
    """How long one call takes, in seconds."""
    start = time.perf_counter()
    run(images)
    return time.perf_counter() - start


def served(client: triton.InferenceServerClient, name: str) -> tuple[Callable[[], Run], Callable[[], None]]:
    """What loads a network in the server, and what unloads it."""

    def run(images: NDArray[np.float32]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = client.infer(name, [tensor("image", images)]).as_numpy("scores")
        return scores

    def load() -> Run:
        client.load_model(name)
        return run

    return load, lambda: client.unload_model(name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
    parser.add_argument("--directory", type=Path, default=Path("build/resnet50"), help="what was built")
    parser.add_argument("--seconds", type=float, default=10, help="length of one measurement")
    parser.add_argument("--cold-starts", type=int, default=3, help="how often each is loaded")
    add_tolerance(parser)
    arguments = parser.parse_args()

    answer = np.load(arguments.directory / "answer.npz")
    image, scores = answer["image"], answer["scores"]
    with triton.InferenceServerClient(arguments.http, network_timeout=600) as client:
        names = served_models(client)
        rows = []
        for name in names:
            load, unload = served(client, name)
            difference(load()(image), scores, arguments.tolerance)
            rows.append(
                measure(load, unload, image, arguments.seconds, arguments.cold_starts).row(f"{name}, served")
            )
            if name in LOADERS:
                load = partial(LOADERS[name], arguments.directory / "models")
                difference(load()(image), scores)
                bare = measure(load, lambda: None, image, arguments.seconds, arguments.cold_starts)
                rows.append(bare.row(f"{name.removeprefix(PREFIX)} in its framework"))
        for name in names:
            client.load_model(name)
    print("\n".join([HEADER, *rows]))


if __name__ == "__main__":
    main()
