"""Run a session in a loop, and say how fast it was.

    python -m benchmarks.bare_session MODEL THREADS INPUT DIM,DIM,… SECONDS

Its input is random numbers from 0 to 1; others, such as denormals, take another time.
"""

import json
import sys
import time

import numpy as np
import onnxruntime

WARM_UP_RUNS = 3


def main() -> None:
    model, threads, name, dims, duration = sys.argv[1:]
    seconds = float(duration)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    data = np.random.default_rng(0).random(tuple(map(int, dims.split(","))), np.float32)
    for _ in range(WARM_UP_RUNS):
        session.run(None, {name: data})
    started, cpu = time.monotonic(), time.process_time()
    done = 0
    while time.monotonic() - started < seconds:
        session.run(None, {name: data})
        done += 1
    rate = done / (time.monotonic() - started)
    print(json.dumps({"rate": rate, "cpu_us": (time.process_time() - cpu) / done * 1e6}))


if __name__ == "__main__":
    main()
