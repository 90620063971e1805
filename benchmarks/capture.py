"""Data capture of `halimede host`: every invocation captured beside none, and its memory while the bucket is away."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.connections import Call, median_time
from benchmarks.hosting import ROUTERS, create, hosting, pack, request_of
from benchmarks.processes import Server
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.core.process_tree import tree

SHARE_GOAL = 1.1
MEMORY_GOAL_MB = 300
"""What a host may hold that captures 1 MB bodies while nothing can be uploaded: its own 100 MB, what may be in memory
of invocations (128 MiB), and what the allocator keeps."""

_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
_SIZES = {"1KB": 1_000, "1MB": 1_000_000}
_MB = 1_000_000


def workloads() -> list[Workload]:
    """Capture at 100 % beside none, also with routers and with a bucket that is not there."""
    rows = [
        Workload(f"host-capture-{name}-c1{suffix}", "µs, median", Compare.AT_MOST, SHARE_GOAL,
                 partial(captured, size, routers, away))
        for name, size in _SIZES.items()
        for suffix, routers, away in (
            ("", 1, False), (f"-{ROUTERS}-routers", ROUTERS, False), ("-bucket-away", 1, True),
        )
    ]  # fmt: skip
    return [*rows, Workload("host-capture-memory", "MB", Compare.AT_MOST, 1.0, memory)]


@contextmanager
def captured(size: int, routers: int, away: bool, seconds: float) -> Iterator[Sides]:
    """One request at a time with a body of that size both ways; beside it, the same without capture."""
    with two_endpoints(size, routers, away=away) as (host, with_capture, without):
        yield Sides(
            lambda: median_time(host, with_capture, seconds), lambda: median_time(host, without, seconds)
        )


@contextmanager
def memory(seconds: float) -> Iterator[Sides]:
    """What the host holds after bodies of 1 MB were captured for so long and could not be uploaded."""
    with two_endpoints(_SIZES["1MB"], 1, away=True) as (host, with_capture, _):

        def ours() -> Sample:
            median_time(host, with_capture, seconds)
            return Sample(resident(host) / _MB)

        yield Sides(ours, lambda: Sample(MEMORY_GOAL_MB))


def resident(host: Server) -> int:
    """Bytes of memory that the host's own process holds."""
    own = tree(host.child.pid)[0].pid
    (line,) = (line for line in Path(f"/proc/{own}/status").read_text().splitlines() if line[:6] == "VmRSS:")
    return int(line.split()[1]) << 10


@contextmanager
def two_endpoints(size: int, routers: int, *, away: bool) -> Iterator[tuple[Server, Call, Call]]:
    """A host, a call of an endpoint that is captured, and the same of one that is not.

    Args:
        size: of the tensor there and back, in bytes.
        routers: how many router processes.
        away: the bucket of what is captured is not there.
    """
    with tempfile.TemporaryDirectory() as work:
        bucket = Path(work) / "bucket"
        bucket.mkdir()
        pack(models.large_identity(), bucket / "model.tar.gz")
        header, tensor = request_of(size // 4)
        headers = {"Content-Type": f"{_BINARY}{len(header)}"}
        with hosting(Path(work), bucket, routers) as (host, sagemaker):
            url = f"s3://{bucket.name}/model.tar.gz"
            create(
                sagemaker, "captured", url, multi_model=False, config=_config("away" if away else bucket.name)
            )
            create(sagemaker, "plain", url, multi_model=False)
            first, second = (
                Call(host.http_port, f"/endpoints/{name}/invocations", headers, header + tensor)
                for name in ("captured", "plain")
            )
            yield host, first, second


def _config(bucket: str) -> dict[str, Any]:
    return {
        "DataCaptureConfig": {
            "InitialSamplingPercentage": 100,
            "DestinationS3Uri": f"s3://{bucket}/captured",
            "CaptureOptions": [{"CaptureMode": "InputAndOutput"}],
        }
    }
