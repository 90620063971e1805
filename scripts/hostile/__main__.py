"""Attack a server that has little memory: does an ordinary client next to it notice?

    python -m scripts.hostile [--memory MIB] [--front-ends N] [ATTACK ...]

The server has its default flags, but loads models on request and serves a language model. Its memory is limited by a
cgroup, or if none can be made by `ulimit -d`. The attacks are made one after the other, each for a minute at most,
while a client sends small requests. All its requests must be answered, its 99th percentile must at most double, and the
server must be ready in the end. Otherwise the exit status is 1.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from scripts.hostile.attacks import ATTACKS, Target, send
from scripts.hostile.neighbour import Neighbour, Period
from scripts.soaking import say
from tests.support.server import ServerProcess, running

QUIET_S = 10.0
LIMIT_S = 60.0
"""Seconds for one attack."""
SETTLING_S = 2.0
"""Seconds after an attack that still belong to it."""
AT_MOST = 2.0
"""How many times longer the 99th percentile may be than without attacks."""
NOISE_MS = 5.0
"""Milliseconds that the processor time of the attacker itself may add on two cores."""

BROKEN = "the attacker broke down"

FLOATS = (
    'input { name: "IN" data_type: TYPE_FP32 dims: -1 } output { name: "OUT" data_type: TYPE_FP32 dims: -1 }'
)
ZEROS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        counts = [int(pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()[0]) for r in requests]
        outputs = [pb_utils.Tensor("OUT", np.zeros(count, np.float32)) for count in counts]
        return [pb_utils.InferenceResponse([output]) for output in outputs]
"""


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description="Attack a server that has little memory.")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help="all by default")
    parser.add_argument("--memory", type=int, default=2048, metavar="MIB", help="default: %(default)s")
    parser.add_argument("--front-ends", type=int, default=1, metavar="N", help="default: %(default)s")
    given = parser.parse_args()
    if unknown := set(given.attacks) - set(ATTACKS):
        parser.error(f"there is no attack {', '.join(sorted(unknown))}; there are: {', '.join(ATTACKS)}")
    with tempfile.TemporaryDirectory() as name, limited(given.memory << 20) as (prefix, peak):
        make_repository(Path(name))
        command = [
            *prefix, sys.executable, "-m", "halimede", "serve", f"--model-repository={name}",
            "--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port=0",
            "--metrics-port=0", "--model-control-mode=explicit", "--load-model=*", "--allow-openai=true",
            f"--front-ends={given.front_ends}",
        ]  # fmt: skip
        pending = given.attacks or list(ATTACKS)
        failed: list[str] = []
        say(
            f"{'attack':30} {'s':>5} {'answers':>8} {'failed':>6} {'p50':>8} {'p99':>8} {'most':>8} {'MiB':>6}  outcome"
        )
        while pending:  # a server that an attack ends is followed by another
            with running(command, 3) as server, closing(Neighbour(server.http)) as neighbour:
                failed += attack(server, neighbour, pending, peak)
    say("\n".join(failed) or "nothing failed")
    return int(bool(failed))


def attack(
    server: ServerProcess, neighbour: Neighbour, pending: list[str], peak: Callable[[], int]
) -> Iterator[str]:
    """Make the attacks that are pending until one ends the server, and print what came of each: what failed."""
    time.sleep(QUIET_S)
    quiet = neighbour.period()
    limit_ms = max(AT_MOST * quiet.quantile(0.99), quiet.quantile(0.99) + NOISE_MS)
    say(row("none", QUIET_S, quiet, peak(), ""))
    yield from (f"none: {failure}" for failure in quiet.failures)
    target = Target(server.http, server.grpc)
    while pending:
        name = pending.pop(0)
        began = time.monotonic()
        outcome = made(name, target)
        took = time.monotonic() - began
        time.sleep(SETTLING_S)
        period = neighbour.period()
        say(row(name, took, period, peak(), outcome))
        if outcome == BROKEN:
            yield f"{name}: {BROKEN}"
        yield from (f"{name}: {failure}" for failure in period.failures[:3])
        if (p99 := period.quantile(0.99)) > limit_ms:
            yield f"{name}: the 99th percentile is {p99:.1f} ms, more than {limit_ms:.1f} ms"
        if (status := server.process.poll()) is not None:
            yield f"{name}: the server ended with {status}: {server.log[-2000:]}"
            return
        if (ready := server.get("/v2/health/ready")[0]) != 200:
            yield f"{name}: the server is not ready after it: {ready}"


def row(name: str, took: float, period: Period, peak: int, outcome: str) -> str:
    """A line of the table."""
    p50, p99, most = (period.quantile(share) for share in (0.5, 0.99, 1))
    return (
        f"{name:30} {took:5.1f} {len(period.latencies):8} {len(period.failures):6} "
        f"{p50:5.1f} ms {p99:5.1f} ms {most:5.0f} ms {peak >> 20:6}  {outcome}"
    )


def made(name: str, target: Target) -> str:
    """What came of an attack, made in a process that has little priority, and ended if it takes too long."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=send, args=(name, target, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        return str(ours.recv()) if ours.poll(LIMIT_S) else f"was ended after {LIMIT_S:.0f} s"
    except EOFError:
        return BROKEN
    finally:
        process.kill()
        process.join()


def make_repository(directory: Path) -> None:
    """The models: one for the client, three that are attacked."""
    for name in ("neighbour", "identity", "zeros", "text"):
        (directory / name / "1").mkdir(parents=True)
        backend = {"zeros": "python", "text": "transformers"}.get(name, "identity")
        (directory / name / "config.pbtxt").write_text(
            f'backend: "{backend}"\n{"" if name == "text" else FLOATS}'
        )
    (directory / "zeros" / "1" / "model.py").write_text(ZEROS)
    make = "import sys; from tests.frameworks.transformers import tiny_models; tiny_models.save('llama', sys.argv[1])"
    subprocess.run([sys.executable, "-c", make, str(directory / "text" / "1")], check=True)  # noqa: S603 - our own code


@contextmanager
def limited(memory: int) -> Iterator[tuple[list[str], Callable[[], int]]]:
    """What to put before a command to limit its memory; the most that it has taken since the last call."""
    root = Path("/sys/fs/cgroup")
    first = root / "memory" if (root / "memory").is_dir() else root
    group = first / f"halimede-{os.getpid()}"
    names = ("limit_in_bytes", "max_usage_in_bytes") if first != root else ("max", "peak")
    try:
        group.mkdir()
        (group / f"memory.{names[0]}").write_text(str(memory))
    except OSError as error:
        say(f"no cgroup, so that only the data of each process is limited: {error}")
        yield ["prlimit", f"--data={memory}"], lambda: 0
        return

    def peak() -> int:
        highest = int((group / f"memory.{names[1]}").read_text())
        (group / f"memory.{names[1]}").write_text("0")
        return highest

    try:
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"], peak
    finally:
        group.rmdir()


if __name__ == "__main__":
    sys.exit(main())
