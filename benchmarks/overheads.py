"""What is done next to requests: counting them for the host's metrics, and the console's snapshots."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson

from benchmarks.processes import cores, pinned
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.frontends.console.snapshot import Snapshots
from halimede.frontends.steps_of_work import whole
from halimede.hosting.metering.store import MetricStore
from halimede.hosting.metering.variant import VariantMeter
from tests.frontends.http.models import ECHO, serve_models

COUNTED_US: Final = 20.0
"""What counting a request may cost."""
SNAPSHOT_MS: Final = 10.0
"""What a snapshot may cost; there is one each second, so that this is a hundredth of a core."""
MODELS: Final = 50
REQUESTS: Final = 20_000


def workloads() -> list[Workload]:
    """A row for each."""
    return [
        Workload("counting-requests", "µs of CPU", Compare.AT_MOST, 1, counting),
        Workload("console-snapshot-50-models", "ms of CPU", Compare.AT_MOST, 1, snapshots),
    ]


@contextmanager
def counting(seconds: float) -> Iterator[Sides]:
    """The two calls of each request of a variant, and its part of what is done each second."""
    meter = VariantMeter(MetricStore(), "endpoint", "variant")

    def ours() -> Sample:
        end, requests, begun = time.monotonic() + seconds, 0, time.thread_time()
        while time.monotonic() < end:
            for number in range(REQUESTS):
                meter.sent(2)
                meter.ended(200, 1_000_000 + number, 100_000 + number, model_error=False)
            meter.flush(time.time())
            requests += REQUESTS
        return Sample((time.thread_time() - begun) / requests * 1e6)

    with pinned(cores()[0]):
        yield Sides(ours, lambda: Sample(COUNTED_US))


@contextmanager
def snapshots(seconds: float) -> Iterator[Sides]:
    """The snapshot of a server with so many models, as JSON."""
    names = [f"echo_{number}" for number in range(MODELS)]
    with tempfile.TemporaryDirectory() as name:
        for each in names:
            model = Path(name, each)
            (model / "1").mkdir(parents=True)
            (model / "config.pbtxt").write_text(ECHO)
            (model / "labels.txt").write_text("cat\ndog\n")
        with serve_models(Path(name), None, *names) as server:
            console = Snapshots(server.engine, "triton", [])

            def take() -> Sample:
                end, taken, begun = time.monotonic() + seconds, 0, time.thread_time()
                while time.monotonic() < end:
                    orjson.dumps(whole(console.take()))
                    taken += 1
                return Sample((time.thread_time() - begun) / taken * 1e3)

            yield Sides(lambda: server.served.loop.call(take), lambda: Sample(SNAPSHOT_MS))
