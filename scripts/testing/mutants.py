"""Make the mutants of one directory that `scripts.testing.mutation` has prepared, and run a sample of them.

It runs in that directory, where mutmut keeps the changed code, `mutants`, and this its results: `results.json` and
`survivors.diff`.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mutmut.__main__ import collect_or_load_stats, collect_source_file_mutation_data, create_mutants
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, setup_source_paths
from mutmut.utils.format_utils import mangled_name_from_mutant_name
from mutmut.workers.isolation import MutantRunner, get_mutant_runner

from scripts.testing.mutation import AT_IMPORT, RESULTS
from scripts.testing.run import say

NOTICED = ("killed", "timeout")
SURVIVED = ("survived", "no tests")

UNSEEN = re.compile(r"__(?:repr|str)__")
"""Mutants of functions of this name are not run: they write texts for people who develop."""
STARTING_S = 20
"""How long a mutant's tests may take beyond what they should: fixtures are not in the times of tests."""
LONGER = 3
"""How often as long as usual they may take."""
SHOWN = 100
"""Lines of what failing tests print."""


def main() -> int:
    """The exit status: 0 if the mutants ran."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    begin = time.monotonic()
    with output_in(Path("mutmut.log")):
        runner = make(given.jobs)
    say(f"made the mutants and ran the tests without one in {time.monotonic() - begin:.0f} s")
    data, _ = collect_source_file_mutation_data(mutant_names=[])
    paths = {name: Path(source.path) for source, name, _ in data if can_be_noticed(name)}
    chosen = sorted(paths)
    last: dict[str, str] = {}
    if given.again:
        statuses = json.loads(Path(RESULTS).read_text())["statuses"]
        last = {name: status for name, status in statuses.items() if name in paths}
        chosen = [name for name in chosen if last.get(name) in SURVIVED]
    elif given.mutants:
        chosen = sorted(random.Random(given.seed).sample(chosen, min(given.mutants, len(chosen))))  # noqa: S311
    ran = run(runner, chosen, begin + 60 * given.minutes)
    statuses = {**last, **ran}
    counts = Counter(statuses.values())
    survivors = [name for name, status in sorted(statuses.items()) if status in SURVIVED]
    Path("survivors.diff").write_text(
        "".join(
            f"# {name}: {statuses[name]}\n{get_diff_for_mutant(name, path=paths[name])}\n\n"
            for name in survivors
        )
    )
    Path(RESULTS).write_text(
        json.dumps(
            {
                "mutants": len(paths),
                "chosen": len(statuses),
                **{status: counts[status] for status in (*NOTICED, *SURVIVED)},
                "statuses": statuses,
            },
            indent=1,
        )
    )
    say(f"ran {len(ran)} of {len(chosen)} chosen mutants in {time.monotonic() - begin:.0f} s")
    if others := {name: status for name, status in statuses.items() if status not in (*NOTICED, *SURVIVED)}:
        say("neither noticed nor survived:", *(f"  {name}: {status}" for name, status in others.items()))
    say(f"survivors: {Path('survivors.diff').resolve()}")
    return 0


def can_be_noticed(name: str) -> bool:
    """Whether a test could notice a mutant: not if the function is called by imports only, which come before."""
    function = mangled_name_from_mutant_name(name)
    has_tests = bool(state().tests_by_mangled_function_name.get(function))
    return not UNSEEN.search(name) and (has_tests or function not in at_import())


@functools.cache
def at_import() -> frozenset[str]:
    """The functions that modules call when they are imported."""
    return frozenset(json.loads((Path("mutants") / AT_IMPORT).read_text()))


@contextlib.contextmanager
def output_in(log: Path) -> Iterator[None]:
    """All that is printed in the block goes to this file, what processes print too; if it fails, the end is shown."""
    printed = os.dup(1), os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    except BaseException:
        os.write(printed[1], b"".join(log.read_bytes().splitlines(keepends=True)[-SHOWN:]))
        raise
    finally:
        sys.stdout.flush()
        for number, copy in enumerate(printed, 1):
            os.dup2(copy, number)
            os.close(copy)


def make(jobs: int) -> MutantRunner:
    """Write the mutants, and run the tests without any, to see which functions each calls; what runs mutants."""
    set_mutant_under_test("mutant_generation")
    Path("mutants").mkdir()
    copy_src_dir()
    copy_also_copy_files()
    setup_source_paths()
    create_mutants(jobs)
    runner = get_mutant_runner(jobs)
    collect_or_load_stats(runner)
    return runner


def run(runner: MutantRunner, chosen: list[str], end: float) -> dict[str, str]:
    """Run the mutants until this time, those with the quickest tests first, and say what became of each."""
    tests = {
        name: state().tests_by_mangled_function_name.get(mangled_name_from_mutant_name(name), set())
        for name in chosen
    }
    seconds = {name: sum(state().duration_by_test[test] for test in tests[name]) for name in chosen}
    statuses = {}

    def receive() -> None:
        result = runner.wait_for_result()
        statuses[result.mutant_name] = status_by_exit_code[result.exit_code]

    set_mutant_under_test("")
    runner.startup()
    try:
        for name in sorted(chosen, key=seconds.__getitem__):
            while not runner.has_capacity():
                receive()
            if time.monotonic() > end:
                break
            limit_s = round(LONGER * seconds[name] + STARTING_S)
            runner.submit(name, sorted(tests[name]), 2 * limit_s, seconds[name])  # half of it by the clock
        runner.signal_work_complete()
        while runner.pending_count():
            receive()
    finally:
        runner.stop_all_workers()
        runner.shutdown()
    return statuses


if __name__ == "__main__":
    sys.exit(main())
