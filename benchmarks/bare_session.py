"""`python -m benchmarks.bare_session MODEL THREADS BATCH SECONDS`: run a session in a loop, say how fast it was."""

import json
import sys
import time

import onnxruntime

from benchmarks.models import images

WARM_UP_RUNS = 3


def main() -> None:
    model, threads, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    image = images(batch)
    for _ in range(WARM_UP_RUNS):
        session.run(None, {"image": image})
    started, cpu = time.monotonic(), time.process_time()
    done = 0
    while time.monotonic() - started < seconds:
        session.run(None, {"image": image})
        done += batch
    rate = done / (time.monotonic() - started)
    print(json.dumps({"rate": rate, "cpu_us": (time.process_time() - cpu) / done * 1e6}))


if __name__ == "__main__":
    main()
