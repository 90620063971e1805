"""Print the resident memory of a server with each RoBERTa, and how long a request takes.

Each configuration gets a server of its own. The long request has 4 texts of 256 tokens, the short one 1 of 16.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tritonclient.http as triton

from examples.answers import tensor
from examples.roberta_onnx.tokens import tokens

LONG, SHORT = (4, 256), (1, 16)
REPEATS = 3
_STARTED = re.compile(r"Started HTTPService at (\S+:\d+)")
HEADER = (
    "| | loaded, MB | most in a long request, MB | after it, MB | after a short one, MB | long, ms | short, ms |\n"
    "|---|---|---|---|---|---|---|"
)


@contextmanager
def server(repository: Path, model: str) -> Iterator[tuple[int, triton.InferenceServerClient]]:
    """A server with that model: its process id, and a client of it."""
    command = [sys.executable, "-m", "halimede", "serve", f"--model-repository={repository}"]
    command += ["--model-control-mode=explicit", f"--load-model={model}", "--http-address=127.0.0.1"]
    command += ["--http-port=0", "--allow-grpc=false", "--allow-metrics=false"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with process.stdout as log:  # which tells the port, and then need not be read
            started = next((found for line in log if (found := _STARTED.search(line))), None)
        if started is None:
            raise SystemExit(f"the server of {model} ended with {process.wait()}")
        with triton.InferenceServerClient(started[1], network_timeout=600) as client:
            wait_until_ready(process, client, model)
            yield process.pid, client
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(
    process: "subprocess.Popen[str]", client: triton.InferenceServerClient, model: str
) -> None:
    """Return once the model is ready.

    Raises:
        SystemExit: the server has ended before.
    """
    while process.poll() is None:
        try:
            if client.is_model_ready(model):
                return
        except OSError:
            pass  # it is ending
        time.sleep(0.1)
    raise SystemExit(f"the server of {model} ended with {process.returncode}")


def megabytes(pid: int, field: str) -> float:
    """A figure of the process: VmRSS, its resident memory, or VmHWM, the most of it so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024 / 1e6


def milliseconds(client: triton.InferenceServerClient, model: str, shape: tuple[int, int]) -> float:
    """How long a request of that many texts and tokens takes, the median of several."""
    texts, length = shape
    ids, mask = tokens([bytes(range(length - 2))] * texts)  # two tokens are the marks of beginning and end
    inputs = [tensor("input_ids", ids), tensor("attention_mask", mask)]
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        client.infer(model, inputs)
        taken.append(1000 * (time.perf_counter() - start))
    return float(np.median(taken))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, default=Path("build/roberta-onnx"), help="what was built")
    parser.add_argument("models", nargs="*", help="which of the models; all of them by default")
    arguments = parser.parse_args()
    repository = arguments.directory / "models"
    print(HEADER)
    for model in arguments.models or sorted(path.name for path in repository.iterdir()):
        with server(repository, model) as (pid, client):
            loaded = megabytes(pid, "VmRSS")
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # from here on, VmHWM is the most of a request
            long = milliseconds(client, model, LONG)
            most, after = megabytes(pid, "VmHWM"), megabytes(pid, "VmRSS")
            short = milliseconds(client, model, SHORT)
            settled = megabytes(pid, "VmRSS")
        figures = [loaded, most, after, settled, long, short]
        print(f"| {' | '.join([model, *(f'{figure:.0f}' for figure in figures)])} |", flush=True)


if __name__ == "__main__":
    main()
