"""What implicit state costs: an ONNX model that keeps 64 KB for each sequence, beside the same that keeps none."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks import models
from benchmarks.load import Load, apply
from benchmarks.processes import cores, halimede
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Compare, Sides, Workload

ELEMENTS = 16_384  # 64 KB of FP32
SEQUENCES = 32
LENGTH = 50

CONFIG = f"""backend: "onnxruntime"
max_batch_size: {SEQUENCES}
input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
"""
BATCHING = "sequence_batching {{ oldest {{ max_candidate_sequences: {} }} {} }}\n"
STATE = f'state {{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ {ELEMENTS} ] }}'
ARGUMENTS = ("--exit-timeout-secs=1",)  # which sequences that were left open would use up
Ports = dict[str, list[int | str]]


def workloads() -> list[Workload]:
    """Over each protocol, 32 sequences at a time."""
    return [workload(protocol) for protocol in ("http", "grpc")]


def workload(protocol: str) -> Workload:
    """Sequences of a model with state against those of one without, of the same computation."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        tool, (server_core, _) = perf_analyzer(), cores()
        options = ("--sequence-length", str(LENGTH))
        load = partial(Load, protocol=protocol, concurrency=SEQUENCES, seconds=seconds, options=options)
        with (
            halimede(accumulator("accumulator", state=True), server_core, ARGUMENTS) as server,
            halimede(accumulator("stateless", state=False), server_core, ARGUMENTS) as other,
        ):
            yield Sides(
                partial(apply, tool, load("accumulator"), server),
                partial(apply, tool, load("stateless"), other),
            )

    return Workload(f"implicit-state-{protocol}", "requests/s", Compare.AT_LEAST, 0.8, both)


def accumulator(name: str, *, state: bool) -> Path:
    """The largest element of the sum of a sequence's inputs, each added to every element; or of no sum, to nothing."""
    inputs: Ports = {"INPUT": ["batch", 1]}
    outputs: Ports = {"OUTPUT": ["batch", 1]}
    before = "SUM_IN"
    constants = []
    if state:
        inputs["SUM_IN"] = outputs["SUM_OUT"] = ["batch", ELEMENTS]
    else:
        before = "nothing"
        constants.append(numpy_helper.from_array(np.zeros((1, ELEMENTS), np.float32), before))
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["INPUT", before], ["SUM_OUT"]),
            helper.make_node("ReduceMax", ["SUM_OUT"], ["OUTPUT"], axes=[1], keepdims=1),
        ],
        "accumulator",
        [helper.make_tensor_value_info(port, TensorProto.FLOAT, dims) for port, dims in inputs.items()],
        [helper.make_tensor_value_info(port, TensorProto.FLOAT, dims) for port, dims in outputs.items()],
        constants,
    )
    config = CONFIG + BATCHING.format(2 * SEQUENCES, STATE if state else "")
    return models.repository(name, config, models.checked(graph))
