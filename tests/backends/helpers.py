"""Open a model version the way that the engine does, and run requests as one batch."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.execution import execute
from halimede.backends.registry import backend_class
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.datatypes import ALL, BF16, Datatype
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Array, Tensor
from halimede.engine.validation import validate
from tests.support.onnx_models import write_model

Inputs = dict[str, Array | Tensor]


_BY_NUMPY = {datatype.numpy: datatype for datatype in ALL if datatype is not BF16}


def source_of(directory: Path, config_text: str, onnx_model: onnx.ModelProto | None = None) -> ModelSource:
    """The source of model `m`, written into `directory`; the backend is onnxruntime unless the text says."""
    if "backend:" not in config_text and "platform:" not in config_text:
        config_text = 'backend: "onnxruntime"\n' + config_text
    config = parse_text(config_text, "test")
    config.name = "m"
    return ModelSource("m", 1, write_model(directory, "m", onnx_model), config)


class Loaded:
    """A model version with one instance."""

    def __init__(self, source: ModelSource, options: BackendOptions | None = None, index: int = 0) -> None:
        self.backend: BackendModel = backend_class(source.config)(source, options or BackendOptions())
        self.backend.complete_config()
        normalise(source.config)
        self.backend.check_config()
        self.config = source.config
        self.signature = Signature.from_config(source.config)
        self.instance: Instance = self.backend.create_instance(InstanceSpec("m_0", index))

    def batch(self, *requests: InferRequest) -> Batch:
        """The requests as one batch that has not run."""
        for request in requests:
            validate(request, self.signature)
        return Batch(self.signature, list(requests), sum(request.batch_size for request in requests))

    def run(self, *requests: InferRequest) -> list[InferResponse]:
        """Their responses, from one execution."""
        batch = self.batch(*requests)
        self.instance.execute(batch)
        return list(batch.responses)

    def __call__(self, outputs: tuple[str, ...] = (), **inputs: Array | Tensor) -> dict[str, Any]:
        """The outputs of one request, as arrays."""
        (response,) = self.run(request(inputs, outputs))
        assert response.error is None
        return {name: tensor.array for name, tensor in response.outputs.items()}

    def close(self) -> None:
        """Close instance and model."""
        self.instance.close()
        self.backend.close()


def add_at_once(
    model: Loaded, instances: Sequence[Instance], first: str, second: str, total: str, runs: int = 50
) -> None:
    """Have instances of a model that adds two inputs of shape [2] run at once, each in a thread; every answer is right.

    Args:
        model: of the instances.
        instances: one a thread.
        first: the name of an input.
        second: the name of the other.
        total: the name of the output.
        runs: of each instance.
    """
    wrong: list[object] = []

    def work(number: int) -> None:
        for step in range(runs):
            batch = model.batch(request({first: floats([number, step]), second: floats([1, 1])}))
            instances[number].execute(batch)
            output = batch.responses[0].outputs[total].array.tolist()
            if output != [[number + 1, step + 1]]:
                wrong.append(output)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(instances))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def gather_one_bad_row(model: Loaded, x: str, index: str, y: str) -> tuple[list[Any], str]:
    """What a model that gathers answers to three requests of one batch, of which the second's index is out of range.

    Args:
        model: `y` = the element of each row of `x` (FP32 [4]) that `index` (INT64 [1]) names.
        x: the name of that input.
        index: that of the other.
        y: that of the output.

    Returns:
        The values of the first and of the last, and the error of the second, "" if it has none.
    """
    row = floats([10, 11, 12, 13])
    batch = model.batch(*(request({x: row, index: np.array([[number]], np.int64)}) for number in (1, 9, 3)))
    execute(model.instance, batch)
    first, bad, last = batch.responses
    values = [
        each.outputs[y].array.tolist() if each.error is None else str(each.error) for each in (first, last)
    ]
    return values, "" if bad.error is None else str(bad.error)


def load(
    directory: Path,
    config_text: str = "",
    onnx_model: onnx.ModelProto | None = None,
    options: BackendOptions | None = None,
) -> Loaded:
    """The model, loaded."""
    return Loaded(source_of(directory, config_text, onnx_model), options)


def request(inputs: Inputs, outputs: tuple[str, ...] = ()) -> InferRequest:
    """A request for model `m`; arrays become tensors as a client would send them, as bytes."""
    return InferRequest(
        "m",
        {name: value if isinstance(value, Tensor) else wire(value) for name, value in inputs.items()},
        lambda response, final: None,
        outputs=outputs,
    )


def wire(array: Array, datatype: Datatype | None = None) -> Tensor:
    """The array as it comes from a socket: bytes, which are read-only."""
    datatype = datatype or _BY_NUMPY[array.dtype]
    return Tensor(datatype, array.shape, bytes(Tensor.from_array(datatype, array).data))


def floats(*rows: list[float]) -> Array:
    """The rows as FP32."""
    return np.array(rows, np.float32)


def strings(*rows: list[bytes]) -> Array:
    """The rows as BYTES."""
    return np.array(rows, np.object_)
