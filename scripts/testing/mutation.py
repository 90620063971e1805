"""Change the code in small ways, one at a time, and say which changes no test notices.

    python -m scripts.testing.mutation [--mutants N | --all | --again] [--seed N] [--minutes N] [--jobs N] [PACKAGE ...]

mutmut makes the changes: the mutants. Each runs in a process of its own, with the tests that call the changed function,
in a copy of the tree in `build/mutation/PACKAGE`. A mutant that the tests do not notice has survived. Its difference is
written to `build/mutation/PACKAGE/survivors.diff`: it lacks a test, unless it changes nothing that anyone can see. The
same seed chooses the same mutants as long as the code is the same, and `--again` runs the survivors of the last time.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.testing.run import default_jobs, say
from scripts.testing.units import ROOT

BUILD = ROOT / "build" / "mutation"
MUTANTS = 200
SEED = 1
MINUTES = 30.0

PACKAGES: dict[str, tuple[str, ...]] = {
    "engine/scheduling": ("tests/engine/scheduling", "tests/engine", "tests/engine/calls/test_loans.py"),
    "engine/lifecycle": ("tests/engine/lifecycle",),
    "hosting/control": ("tests/hosting/control", "tests/hosting/experiments"),
    "config/validate": ("tests/config", "tests/repository/test_resolve.py"),
    "codec": ("tests/codec", "tests/frontends/http/codec", "tests/frontends/http"),
    "frontends/http/codec": ("tests/frontends/http/codec", "tests/frontends/http"),
}
"""The packages, and the files and directories of tests that show what they do. Subdirectories of the latter count only
where they are named, or are those of the package itself."""

ELSEWHERE = re.compile(r"^(?:import subprocess|from tests\.support\.(?:server|host|program)\b)", re.MULTILINE)
"""What a module of tests imports that starts other processes: the mutants are in this one only."""

LONG = (
    "tests/engine/scheduling/test_overload.py::test_overloaded_model_answers_at_least_90_percent_of_its_capacity_in_time[10-",
)
"""What the names of tests begin with that take too long: with calls counted, they take ten times as long."""

BESIDE = ("benchmarks", "examples", "scripts")
"""What tests import or read beside the package and the tests."""

SETTINGS = {
    "process_isolation": "forkserver",  # the process that forks has no threads of tests
    "also_copy": BESIDE,
    "do_not_mutate_patterns": [r"\blogger\.[a-z]+\(", r"^ *assert "],
    "debug": True,  # what pytest prints without a mutant is in mutmut.log
    "track_dependencies": False,
    "use_git_change_detection": False,
    "on_dependency_change": "ignore",
}

AT_IMPORT = "at_import.json"
"""Where a run keeps which functions are called when modules are imported."""

RESULTS = "results.json"
"""What became of each mutant."""

HEADINGS = ("", "mutants", "run", "killed", "timeouts", "survived", "no tests", "score")


def main() -> int:
    """The exit status: 0 if the mutants ran, whatever came of it."""
    parser = argparse.ArgumentParser(description="Change the code, and say which changes no test notices.")
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help=f"{', '.join(PACKAGES)}; all by default"
    )
    count = parser.add_mutually_exclusive_group()
    count.add_argument(
        "--mutants", type=int, default=MUTANTS, help="how many of each package (default: %(default)s)"
    )
    count.add_argument("--all", action="store_true", help="all mutants, which takes hours")
    count.add_argument("--again", action="store_true", help="only those that survived the last time")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="which mutants are chosen (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="at most this long a package (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=default_jobs(), help="mutants at a time (default: %(default)s)"
    )
    given = parser.parse_args()
    if unknown := set(given.packages) - set(PACKAGES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PACKAGES)}")
    packages = given.packages or list(PACKAGES)
    if given.again and (missing := [each for each in packages if not (place(each) / RESULTS).exists()]):
        parser.error(f"there are no survivors yet of {', '.join(missing)}")
    rows = []
    for package in packages:
        directory = place(package)
        prepare(directory, package)
        command = [
            sys.executable, "-m", "scripts.testing.mutants",
            f"--mutants={0 if given.all else given.mutants}", f"--seed={given.seed}",
            f"--minutes={given.minutes}", f"--jobs={given.jobs}", *(["--again"] if given.again else ()),
        ]  # fmt: skip
        say(f"== {package}")
        status = subprocess.run(  # noqa: S603 - the interpreter that runs this
            command, cwd=directory, stdin=subprocess.DEVNULL, check=False
        ).returncode
        if status != 0:
            return status
        rows.append(row(package, json.loads((directory / RESULTS).read_text())))
        say(*table(rows))
    return 0


def place(package: str) -> Path:
    """The directory in which the mutants of a package run."""
    return BUILD / package.replace("/", "-")


def prepare(directory: Path, package: str) -> None:
    """Make the directory in which the mutants of a package run: links to the tree, and mutmut's settings.

    Only the last results stay there.
    """
    results = directory / RESULTS
    last = results.read_text() if results.exists() else None
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if last is not None:
        results.write_text(last)
    for name in ("src", "tests", *BESIDE):
        (directory / name).symlink_to(ROOT / name)
    settings = {
        **SETTINGS,
        "source_paths": ["src"],
        "only_mutate": [f"src/halimede/{package}/*"],
        "pytest_add_cli_args_test_selection": list(files(PACKAGES[package])),
        "pytest_add_cli_args": [
            "-p", "scripts.testing.mutated", "-p", "no:cacheprovider",
            *(f"--deselect={name}" for name in LONG),
        ],
    }  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    pyproject = (ROOT / "pyproject.toml").read_text()
    (directory / "pyproject.toml").write_text("\n".join([pyproject, "[tool.mutmut]", *lines, ""]))


def files(paths: Iterable[str]) -> Iterator[str]:
    """The modules of tests there that run what they test in their own process.

    The first path counts with the directories below it, the others without.
    """
    found: dict[Path, None] = {}
    for number, path in enumerate(paths):
        top = ROOT / path
        modules = top.rglob("test_*.py") if number == 0 else top.glob("test_*.py")
        found |= dict.fromkeys([top] if top.is_file() else sorted(modules))
    for file in found:
        if not ELSEWHERE.search(file.read_text()):
            yield str(file.relative_to(ROOT))


def row(package: str, results: dict[str, int]) -> tuple[str, ...]:
    """A line of the table: a mutant that makes tests run for ever is one that they notice."""
    noticed = results["killed"] + results["timeout"]
    tried = noticed + results["survived"] + results["no tests"]
    counts = [results[name] for name in ("mutants", "chosen", "killed", "timeout", "survived", "no tests")]
    return package, *map(str, counts), f"{noticed / tried:.1%}" if tried else "-"


def table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table of these rows, under headings."""
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    for name, *numbers in (HEADINGS, *rows):
        cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *cells])


if __name__ == "__main__":
    sys.exit(main())
