"""`python -m benchmarks.frameworks.bare FRAMEWORK SIZE DIRECTORY THREADS`: call a model in a loop, and say how fast.

Each line `[ROWS, SECONDS, PAUSE]` of its input is answered with a line: rows a second, the median of a call in µs, and
the CPU time of a row in µs; there is a pause of so many seconds after each call.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

from benchmarks.frameworks.build import maker
from benchmarks.frameworks.framework import FRAMEWORKS, Call, Size

WARM_UP_CALLS = 5


def main() -> None:
    framework, size, directory = FRAMEWORKS[sys.argv[1]], Size(sys.argv[2]), Path(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # some frameworks print
    model = maker(framework.module).load(framework.kind, size, directory, int(sys.argv[4]))
    calls: dict[int, Call] = {}
    for line in sys.stdin:
        rows, seconds, pause = json.loads(line)
        if rows not in calls:
            calls[rows] = model(rows)
        answers.write(json.dumps(measure(calls[rows], rows, seconds, pause)) + "\n")


def measure(call: Call, rows: int, seconds: float, pause: float) -> tuple[float, float, float]:
    """What a line is answered with."""
    for _ in range(WARM_UP_CALLS):
        call()
    times: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()
    ended = began
    while ended - began < seconds:
        before = time.perf_counter()
        call()
        ended = time.perf_counter()
        times.append(ended - before)
        if pause:
            time.sleep(pause)
    done = len(times) * rows
    cpu = time.process_time() - cpu
    return done / (ended - began), statistics.median(times) * 1e6, cpu / done * 1e6


if __name__ == "__main__":
    main()
