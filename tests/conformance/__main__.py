"""Compare both servers case by case; `python -m tests.conformance --help` says what can be chosen."""

import argparse
import signal
import sys
import time

from benchmarks import rival
from tests.conformance.cases import every_case
from tests.conformance.report import failed, summary, told, vanished
from tests.conformance.run import Verdict, run


def main() -> None:
    """Print each difference as it is found, then the summary; exit with 1 if there is one, 2 without tritonserver."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="cases whose `module: name` contains it; may be repeated",
    )
    parser.add_argument(
        "--jobs", type=int, default=3, help="cases taken at the same time (default %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--deliberate", action="store_true", help="print the deliberate differences too")
    arguments = parser.parse_args()
    chosen = [
        (subject, case)
        for subject, case in every_case()
        if not arguments.only or any(text in f"{subject}: {case.name}" for text in arguments.only)
    ]
    if arguments.list or not chosen:
        print("\n".join(f"{subject}: {case.name}" for subject, case in chosen) or "No case has such a name")
        parser.exit(0 if arguments.list else 2)
    try:
        rival.environment()
    except rival.UnavailableError as error:
        parser.exit(2, f"Nothing was compared: there is no tritonserver 2.51 here: {error}\n")
    shown = {Verdict.DIFFERENT, Verdict.VANISHED, *([Verdict.DELIBERATE] if arguments.deliberate else [])}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the servers are ended
    begun = time.monotonic()
    outcomes = []
    for outcome in run(chosen, arguments.jobs):
        outcomes.append(outcome)
        if outcome.verdict in shown:
            print(f"{told(outcome)}\n", flush=True)
    unused = [] if arguments.only else vanished(outcomes)
    for difference in unused:
        print(f"No case differs so any more, remove it from differences.py: {difference.reason}\n")
    print(f"{summary(outcomes)} ({time.monotonic() - begun:.0f} s)")
    parser.exit(1 if failed(outcomes) or unused else 0)


if __name__ == "__main__":
    main()
