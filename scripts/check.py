"""Run what `make check` consists of, as many at a time as there are cores, and say in the end how it went.

`python -m scripts.check [NAME ...]` runs some of them.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from scripts.testing.run import say
from scripts.testing.units import ROOT

PROGRAMS = Path(sys.executable).parent

CHECKS = {
    "types": ["mypy", "--num-workers=2"],
    "imports": ["lint-imports"],
    "generated pages": ["python", "scripts/generate_docs.py", "--check"],
    "lint": ["ruff", "check"],
    "format": ["ruff", "format", "--check"],
    "tests that sleep or assert nothing, raw tasks": ["python", "scripts/check_code.py"],
    "generated protobuf modules": ["python", "scripts/generate_protos.py", "--check"],
}
"""Name → program of the virtual environment and its arguments, slowest first."""


def main(names: Sequence[str]) -> int:
    """The exit status: 0 if all of these checks passed; all there are if none is named."""
    if unknown := set(names) - set(CHECKS):
        say(f"there are no checks called {', '.join(sorted(unknown))}; there are: {', '.join(CHECKS)}")
        return 2
    seconds: dict[str, float] = {}
    failed = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for future in as_completed(pool.submit(run, name) for name in names or CHECKS):
            name, status, output, seconds[name] = future.result()
            say(f"{'FAILED' if status else 'ok':6}  {seconds[name]:6.1f} s  {name}")
            if status:
                failed.append(name)
                say(output)
    slowest = max(seconds, key=lambda name: seconds[name])
    say(*(f"FAILED {name}: {' '.join(CHECKS[name])}" for name in failed))
    say(f"Slowest check: {slowest}, {seconds[slowest]:.0f} s")
    say(f"checks: {len(seconds) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def run(name: str) -> tuple[str, int, str, float]:
    """The name of a check, its exit status, what it wrote, and how many seconds it took."""
    program, *arguments = CHECKS[name]
    begin = time.monotonic()
    done = subprocess.run(  # noqa: S603 - programs of our own environment
        [str(PROGRAMS / program), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return name, done.returncode, done.stdout + done.stderr, time.monotonic() - begin


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
