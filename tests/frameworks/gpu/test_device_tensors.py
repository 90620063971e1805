"""Tensors that stay in the memory of a real GPU between models."""

import json
import urllib.request
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halimede.backends.base import BackendOptions, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.placement import placement
from halimede.backends.registry import backend_class
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.device_tensors import CUDA, DeviceTensor
from halimede.core.gpus import visible_gpus
from halimede.core.tensors import Array, Tensor
from halimede.engine.validation import validate
from tests.backends.helpers import floats, request
from tests.frameworks.gpu.building import run_code
from tests.support import onnx_models
from tests.support.onnx_models import write_model
from tests.support.server import start_server

TENSORS = "".join(
    f'{side} {{ name: "{name}" data_type: TYPE_FP32 dims: 2 }} '
    for side, names in (("input", ("INPUT0", "INPUT1")), ("output", ("OUTPUT0", "OUTPUT1")))
    for name in names
)
ON_GPU = 'backend: "{}" max_batch_size: 8 dynamic_batching {{ }} instance_group {{ kind: KIND_GPU gpus: 0 }} '

SCRIPT = """
import sys, torch
class AddSub(torch.nn.Module):
    def forward(self, INPUT0: torch.Tensor, INPUT1: torch.Tensor):
        return INPUT0 + INPUT1, INPUT0 - INPUT1
torch.jit.save(torch.jit.script(AddSub()), sys.argv[1])
"""


def lacking(*backends: str) -> str:
    """What is missing for models of these backends to run on a GPU here; "" for nothing."""
    packages = {"onnxruntime": "onnxruntime", "pytorch": "torch"}
    for backend in backends:
        missing = placement(ModelConfig(backend=backend), visible_gpus()).missing
        if missing or find_spec(packages[backend]) is None:
            return missing or f"{packages[backend]} is not installed"
    return ""


def of(*backends: str) -> Any:
    """These backends as parameters of a test that is skipped where one cannot use a GPU."""
    missing = lacking(*backends)
    return pytest.param(*backends, marks=pytest.mark.skipif(bool(missing), reason=f"needs a GPU: {missing}"))


BACKENDS = ("onnxruntime", "pytorch")
in_pairs = pytest.mark.parametrize(("first", "second"), [of(*pair) for pair in product(BACKENDS, BACKENDS)])
pytestmark = pytest.mark.timeout(300)


def write(repository: Path, backend: str) -> None:
    """Sum and difference, on the GPU."""
    text = ON_GPU.format(backend) + TENSORS
    if backend == "onnxruntime":
        write_model(repository, backend, onnx_models.add_sub(dims=(2,)), text)
        return
    path = write_model(repository, backend, None, text) / "1" / "model.pt"
    run_code(SCRIPT, path)


class OnGpu:
    """A model of the backend, with an instance on the first GPU."""

    def __init__(self, repository: Path, backend: str) -> None:
        write(repository, backend)
        config = parse_text(ON_GPU.format(backend) + TENSORS, "test")
        config.name = backend
        normalise(config, (0,))
        source = ModelSource(backend, 1, repository / backend, config)
        self.model = backend_class(config)(source, BackendOptions(gpus=(0,)))
        self.model.check_config()
        self.signature = Signature.from_config(config)
        self.instance = self.model.create_instance(InstanceSpec("m_0", 0, "KIND_GPU", 0))

    def __call__(self, *inputs: tuple[Array | Tensor, Array | Tensor], stays: bool) -> list[Sequence[Tensor]]:
        """Sum and difference for each request of one batch."""
        requests = [request({"INPUT0": one, "INPUT1": other}) for one, other in inputs]
        for each in requests:
            each.on_device = ("OUTPUT0", "OUTPUT1") if stays else ()
            validate(each, self.signature)
        batch = Batch(self.signature, requests, sum(each.batch_size for each in requests))
        self.instance.execute(batch)
        return [list(response.outputs.values()) for response in batch.responses]


@in_pairs
def test_tensors_pass_from_framework_to_framework_on_the_gpu(
    tmp_path: Path, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, consumer = OnGpu(tmp_path / "a", first), OnGpu(tmp_path / "b", second)
    assert producer.instance.device == consumer.instance.device == (CUDA, 0)
    for round_ in range(20):  # memory is used again
        one, other = floats([round_, 2]), floats([10, 20])
        ((total, difference),) = producer((one, other), stays=True)
        assert isinstance(total, DeviceTensor)
        assert isinstance(difference, DeviceTensor)
        with monkeypatch.context() as patch:
            copies: list[Any] = []
            patch.setattr(DeviceTensor, "array", property(copies.append))
            ((twice, back),) = consumer((total, difference), stays=False)
            assert not copies
        np.testing.assert_array_equal(twice.array, 2 * one)
        np.testing.assert_array_equal(back.array, 2 * other)
        np.testing.assert_array_equal(total.array, one + other)


@in_pairs
def test_requests_that_share_a_batch_keep_their_rows(tmp_path: Path, first: str, second: str) -> None:
    producer, consumer = OnGpu(tmp_path / "a", first), OnGpu(tmp_path / "b", second)
    pairs = [(floats([value, 2]), floats([10, 20 + value])) for value in range(4)]
    kept = [(total, difference) for total, difference in producer(*pairs, stays=True)]
    for order in (kept, kept[::-1], kept[2:]):
        for (total, _), (twice, _) in zip(order, consumer(*order, stays=False), strict=True):
            expected = 2 * pairs[next(index for index, pair in enumerate(kept) if pair[0] is total)][0]
            np.testing.assert_array_equal(twice.array, expected)


@pytest.mark.parametrize(
    ("outer", "inner"), [of("onnxruntime", "pytorch"), of("pytorch", "onnxruntime"), of("pytorch", "pytorch")]
)
def test_an_ensemble_of_models_on_the_gpu_answers_right(tmp_path: Path, outer: str, inner: str) -> None:
    for backend in {outer, inner}:
        write(tmp_path, backend)
    maps = (
        (outer, "A", "B", "t", "u"),
        (inner, "t", "u", "v", "w"),
        (outer, "v", "w", "Y", "Z"),
    )
    steps = " ".join(
        f'step {{ model_name: "{name}" model_version: -1 '
        f'input_map {{ key: "INPUT0" value: "{a}" }} input_map {{ key: "INPUT1" value: "{b}" }} '
        f'output_map {{ key: "OUTPUT0" value: "{c}" }} output_map {{ key: "OUTPUT1" value: "{d}" }} }}'
        for name, a, b, c, d in maps
    )
    ports = "".join(
        f'{side} {{ name: "{name}" data_type: TYPE_FP32 dims: 2 }} '
        for side, names in (("input", "AB"), ("output", "YZ"))
        for name in names
    )
    text = f'platform: "ensemble" max_batch_size: 8 {ports} ensemble_scheduling {{ {steps} }}'
    write_model(tmp_path, "e", None, text)
    body = {
        "inputs": [
            {"name": name, "datatype": "FP32", "shape": [1, 2], "data": data}
            for name, data in (("A", [1, 2]), ("B", [10, 20]))
        ]
    }
    with start_server(tmp_path) as server:
        for _ in range(50):
            data = json.dumps(body).encode()
            url = f"http://{server.http}/v2/models/e/infer"
            with urllib.request.urlopen(url, data, timeout=120) as response:
                answer = json.load(response)
            found = {output["name"]: output["data"] for output in answer["outputs"]}
            assert found == {"Y": [22, 44], "Z": [-18, -36]}
