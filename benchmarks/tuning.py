"""How much better `halimede tune` makes an example set; `python -m benchmarks.tuning`.

The models have the settings that a configuration without tuning gives them. Exit status 1: one is less than the wanted
number of times as good afterwards.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models import REPOSITORIES, checked, repository
from benchmarks.tools import ROOT

OUTPUT = ROOT / "build" / "tuning"
WIDTH, LAYERS = 512, 4
GOAL = "most throughput at p99 <= 100ms"
WAITING = """import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.005)  # such as a call of a database, which takes as long for many rows as for one
        inputs = [pb_utils.get_input_tensor_by_name(each, "IN") for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.as_numpy())]) for each in inputs]
"""


@dataclass(frozen=True, slots=True)
class Example:
    """One search: its repository, the measured model and what is varied."""

    repository: Path
    model: str
    vary: str


def network() -> onnx.ModelProto:
    """Some fully connected layers: OUT (FP32 [batch, 512]) of IN."""
    random = np.random.default_rng(0)
    nodes, weights, data = [], [], "IN"
    for layer in range(LAYERS):
        values = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) * np.float32(0.05)
        weights.append(numpy_helper.from_array(values, f"weights{layer}"))
        output = "OUT" if layer == LAYERS - 1 else f"layer{layer}"
        nodes.append(helper.make_node("MatMul", [data, f"weights{layer}"], [f"product{layer}"]))
        nodes.append(helper.make_node("Relu", [f"product{layer}"], [output]))
        data = output
    shape: list[str | int | None] = ["batch", WIDTH]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("IN", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("OUT", TensorProto.FLOAT, shape)],
        weights,
    )
    return checked(graph)


def examples() -> list[Example]:
    """A network, a Python model that waits, and an ensemble of both."""
    tensors = "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: [ {WIDTH} ] }}\n'
        for kind, name in (("input", "IN"), ("output", "OUT"))
    )
    mlp = repository("tuned_network", f'backend: "onnxruntime"\nmax_batch_size: 32\n{tensors}', network())
    waiting = repository("tuned_waiting", f'backend: "python"\nmax_batch_size: 32\n{tensors}')
    (waiting / "tuned_waiting" / "1" / "model.py").write_text(WAITING)
    steps = "".join(
        f'step {{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{before}" }} '
        f'output_map {{ key: "OUT" value: "{after}" }} }}\n'
        for model, before, after in (("tuned_waiting", "IN", "between"), ("tuned_network", "between", "OUT"))
    )
    both = repository(
        "tuned_both",
        f'platform: "ensemble"\nmax_batch_size: 32\n{tensors}ensemble_scheduling {{\n{steps}}}\n',
    )
    for name in ("tuned_network", "tuned_waiting"):
        (both / name).symlink_to(REPOSITORIES / name / name)
    return [
        Example(mlp, "tuned_network", "instances,batching,delay,threads,front-ends"),
        Example(waiting, "tuned_waiting", "instances,batching,delay,isolation"),
        Example(both, "tuned_both", "instances,batching,delay"),
    ]


def main() -> None:
    """Search for each example, and print how much better it became and why."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=25, help="settings of each search (default %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=1, help="length of a window (default %(default)s)")
    parser.add_argument("--times", type=float, default=1.5, help="how much better (default %(default)s)")
    parser.add_argument("--only", default="", help="models whose name contains it")
    arguments = parser.parse_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    missed = []
    for example in examples():
        if arguments.only not in example.model:
            continue
        ratio = search(example, arguments.trials, arguments.seconds)
        if ratio < arguments.times:
            missed.append(f"{example.model}: {ratio:.2f} times, and not {arguments.times:g}")
    print("\n".join(missed) or f"All are at least {arguments.times:g} times as good.")
    sys.exit(bool(missed))


def search(example: Example, trials: int, seconds: float) -> float:
    """How many times as good the best setting is; the search begins anew."""
    study, found = (OUTPUT / f"{example.model}.{kind}" for kind in ("journal", "json"))
    study.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "halimede", "tune", "-m", example.model, "--model-repository", str(example.repository),
        "--goal", GOAL, "--vary", example.vary, "--trials", str(trials), "-p", str(round(seconds * 1000)),
        "--study", str(study), "--json", str(found), "--html", str(OUTPUT / f"{example.model}.html"),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    document = json.loads(found.read_text())
    before, after = (document[side]["best"]["throughput"] for side in ("before", "after"))
    print(f"{example.model}: {before:,.0f} → {after:,.0f} requests/s, {after / before:.2f} times", flush=True)
    return float(after / before)


if __name__ == "__main__":
    main()
