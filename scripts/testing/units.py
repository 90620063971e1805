"""Which tests share a process.

Each directory of `tests/frameworks` has a process of its own, as some frameworks crash each other in one process. The
other directories of one folder of `tests` share processes, a fortieth of the time of all tests each.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TIMES = ROOT / "tests" / "times.json"
"""Seconds that each directory took in the last `make test-times`. They decide what shares a process, and the order."""

UNKNOWN_S = 5.0
SHARE = 40
"""A process has one part in so many of the time of all tests, whatever machine that was taken on."""

WITH_FRONT_ENDS = ("tests/cli", "tests/frontends/shared_memory")
"""Directories whose tests of whole servers run a second time, with two front ends; see also `make test-front-ends`."""

QUICK: tuple[tuple[str, ...], ...] = (
    (
        "tests/api",
        "tests/backends/onnx",
        "tests/backends/testing",
        "tests/codec",
        "tests/files",
        "tests/frontends/grpc",
        "tests/frontends/grpc/transport",
        "tests/frontends/http",
        "tests/frontends/http/codec",
        "tests/frontends/http/transport",
        "tests/functions",
        "tests/http1",
        "tests/net",
        "tests/repository",
        "tests/worker_site",
    ),
    (
        "tests/hosting/access",
        "tests/hosting/api",
        "tests/hosting/http",
    ),
    (
        "tests/hosting/control",
        "tests/hosting/routing",
        "tests/hosting/scaling",
    ),
    (
        "tests/config",
        "tests/config/validate",
        "tests/core",
        "tests/engine",
        "tests/engine/cache",
        "tests/engine/calls",
        "tests/engine/ensembles",
        "tests/engine/scheduling",
        "tests/engine/scheduling/sequences",
    ),
    (
        "tests/cli/hosting/test_clients.py",
        "tests/cli/test_serve.py",
        "tests/frontends/sagemaker/test_end_to_end.py",
        "tests/python_models/test_sequences.py",
        "tests/python_models/test_tensors.py",
    ),
)
"""What `make test-quick` runs: directories and files of every layer, which need no framework but ONNX Runtime."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Tests that run in one process.

    Attributes:
        paths: their directories, or files, relative to the root.
        front_ends: how many front ends their servers have.
        seconds: how long they are expected to take.
    """

    paths: tuple[str, ...]
    front_ends: int = 1
    seconds: float = UNKNOWN_S

    @property
    def title(self) -> str:
        """Its name for people."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}" + (
            f" with {self.front_ends} front ends" if self.front_ends > 1 else ""
        )


def units(paths: Iterable[str]) -> list[Unit]:
    """The units of these directories and of those below them, longest first; of all tests if there are none."""
    times: dict[str, float] = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    found = list(_directories(paths))
    made = [*_shared(found, times)]
    for directory in WITH_FRONT_ENDS:
        if directory in found:
            made.append(Unit((directory,), 2, times.get(f"{directory} 2", UNKNOWN_S)))
    return sorted(made, key=lambda unit: -unit.seconds)


def quick_units() -> list[Unit]:
    """The units of `make test-quick`."""
    return [Unit(paths) for paths in QUICK]


def _directories(paths: Iterable[str]) -> Iterator[str]:
    """The directories that have tests, by name."""
    tops = [ROOT / path for path in paths] or [ROOT / "tests"]
    found = {file.parent for top in tops for file in top.rglob("test_*.py")}
    yield from sorted(str(path.relative_to(ROOT)) for path in found)


def _shared(directories: Iterable[str], times: dict[str, float]) -> Iterator[Unit]:
    most = sum(times.values()) / SHARE
    folders: dict[str, list[str]] = defaultdict(list)
    for directory in directories:
        alone = directory.startswith("tests/frameworks/")
        folders[directory if alone else "/".join(directory.split("/")[:2])].append(directory)
    for members in folders.values():
        taken: list[str] = []
        seconds = 0.0
        for directory in members:
            more = times.get(directory, UNKNOWN_S)
            if taken and seconds + more > most:
                yield Unit(tuple(taken), seconds=seconds)
                taken, seconds = [], 0.0
            taken.append(directory)
            seconds += more
        yield Unit(tuple(taken), seconds=seconds)
