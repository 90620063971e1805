"""Fuzz the decoders of what strangers may send: `python -m scripts.fuzz MINUTES [TARGET …]`, by default all.

Each target has its share of the minutes, one after the other. An input that fails stays in `build/fuzz/TARGET`.
When the fault is mended, it belongs in `tests/fuzz/corpus/TARGET`, from where `make test` replays it.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

PLACE = Path("build/fuzz")
PACKAGES = PLACE / "packages"
"""Where `make fuzz` installs atheris."""

_COUNT = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_FOUND = ("crash-", "timeout-", "oom-", "leak-")


def fuzz(name: str, seconds: int) -> tuple[int, list[Path], str]:
    """Search for so long: how many inputs were tried, those that failed, and the end of what was printed."""
    place = PLACE / name
    place.mkdir(parents=True, exist_ok=True)
    before = set(_found(place))
    path = os.pathsep.join([str(PACKAGES.resolve()), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(  # noqa: S603 - a program of ours
        [sys.executable, "-m", "tests.fuzz.search", name, str(seconds), str(place)],
        env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    (place / "log").write_text(done.stdout)
    counted = _COUNT.search(done.stdout)
    found = sorted(set(_found(place)) - before)
    failed = done.returncode != 0 or bool(found)
    return int(counted[1]) if counted else 0, found, done.stdout[-3000:] if failed else ""


def _found(place: Path) -> list[Path]:
    return [path for path in place.iterdir() if path.name.startswith(_FOUND)]


def main() -> None:
    """Fuzz, and say what was found."""
    from tests.fuzz.targets import TARGETS

    minutes, names = float(sys.argv[1]), sys.argv[2:] or list(TARGETS)
    unknown = sorted(set(names) - TARGETS.keys())
    if unknown:
        raise SystemExit(f"there is no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    seconds = max(1, int(minutes * 60 / len(names)))
    failed = []
    for name in names:
        began = time.monotonic()
        count, found, output = fuzz(name, seconds)
        told = ", ".join(map(str, found)) or ("failed" if output else "nothing found")
        sys.stdout.write(f"{name:14} {count:>10,} inputs in {time.monotonic() - began:5.0f} s: {told}\n")
        sys.stdout.flush()
        if output:
            sys.stdout.write(f"{output}\n")
            failed.append(name)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
