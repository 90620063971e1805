"""Warm-up: the sample requests of the configuration, run on an instance before it serves.

They go to the backend directly, past every queue. Files with data are in the model's directory `warmup`: the
bytes of the tensor as a client would send them, so strings each with a 4-byte length.
"""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from queue import SimpleQueue
from time import monotonic_ns

import numpy as np

from halimede.backends.base import Instance, ModelSource
from halimede.backends.batch import Batch
from halimede.config.model_config_pb2 import ModelWarmup
from halimede.config.signature import Signature
from halimede.core.datatypes import BF16, BOOL, BY_NUMBER, BYTES, Datatype
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Buffer, Tensor
from halimede.engine.statistics import ModelStatistics
from halimede.engine.validation import validate


def warm_up(
    source: ModelSource, signature: Signature, instance: Instance, statistics: ModelStatistics
) -> None:
    """Run every warm-up sample of the model on the instance, and count that. Blocks.

    Raises:
        HalimedeError: a sample is wrong, or failed; the text begins ``failed to run warmup sample``.
    """
    for sample in source.config.model_warmup:
        try:
            _run_sample(source, signature, instance, sample, statistics)
        except HalimedeError as error:
            raise type(error)(f"failed to run warmup sample '{sample.name}': {error.message}") from error


def _run_sample(
    source: ModelSource,
    signature: Signature,
    instance: Instance,
    sample: ModelWarmup,
    statistics: ModelStatistics,
) -> None:
    """Run `batch_size` copies of the sample as one batch, `count` times."""
    if sample.batch_size == 0:
        return
    if 0 < signature.max_batch_size < sample.batch_size:
        msg = f"batch_size must be <= max_batch_size {signature.max_batch_size}, got {sample.batch_size}"
        raise InvalidArgumentError(msg)
    inputs = {name: _tensor(source, signature, name, sample.inputs[name]) for name in sorted(sample.inputs)}
    for _ in range(max(1, sample.count)):
        requests = [_request(source, signature, inputs) for _ in range(sample.batch_size)]
        # a model that does not batch takes one request at a time
        together = [requests] if signature.max_batch_size > 0 else [[request] for request in requests]
        for batched in together:
            _run_batch(signature, instance, batched, statistics)


def _request(source: ModelSource, signature: Signature, inputs: dict[str, Tensor]) -> InferRequest:
    request = InferRequest(
        source.name,
        dict(inputs),
        _no_answer,
        model_version=source.version,
        id="warmup",
        received_ns=monotonic_ns(),
    )
    validate(request, signature)
    return request


def _no_answer(response: InferResponse | None, final: bool) -> None:
    """Responses of a warm-up are taken from the batch, or from its `send`."""


def _run_batch(
    signature: Signature, instance: Instance, requests: list[InferRequest], statistics: ModelStatistics
) -> None:
    """Run one batch to its last response.

    Raises:
        HalimedeError: the batch or one of its responses failed.
    """
    batch = Batch(signature, requests, sum(request.batch_size for request in requests))
    batch.started_ns = monotonic_ns()
    sent: SimpleQueue[tuple[InferResponse | None, bool]] = SimpleQueue()
    if signature.decoupled:
        batch.send = lambda _, response, final: sent.put((response, final))
    instance.execute(batch)
    responses: Sequence[InferResponse] = batch.responses
    if signature.decoupled:
        responses = _until_final(sent, len(requests))
    elif len(responses) != len(requests):
        raise InternalError(f"the backend gave {len(responses)} responses to {len(requests)} requests")
    for response in responses:
        if response.error is not None:
            raise response.error
    batch.ended_ns = monotonic_ns()
    statistics.count_execution(batch)
    statistics.count_answered(requests, batch.started_ns, batch.ended_ns)


def _until_final(
    sent: "SimpleQueue[tuple[InferResponse | None, bool]]", requests: int
) -> list[InferResponse]:
    """The responses of a decoupled batch, once each of its requests has had the last."""
    responses: list[InferResponse] = []
    while requests > 0:
        response, final = sent.get()
        if response is not None:
            responses.append(response)
        requests -= final
    return responses


def _tensor(source: ModelSource, signature: Signature, name: str, data: ModelWarmup.Input) -> Tensor:
    """One input of a sample, with a batch dimension of 1 if the model batches."""
    if data.data_type not in BY_NUMBER:
        raise InvalidArgumentError(f"warmup setting must specify 'data_type' for input '{name}'")
    datatype = BY_NUMBER[data.data_type]
    if any(dim < 0 for dim in data.dims):
        msg = f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
        raise InvalidArgumentError(msg)
    shape = (1, *data.dims) if signature.max_batch_size > 0 else tuple(data.dims)
    match data.WhichOneof("input_data_type"):
        case "zero_data":
            content: Buffer = _zeros(datatype, shape)
        case "random_data":
            content = _random(datatype, shape)
        case "input_data_file":
            content = _file(source.directory / "warmup", data.input_data_file)
        case _:
            msg = f"warmup setting must specify zero_data, random_data or input_data_file for input '{name}'"
            raise InvalidArgumentError(msg)
    return Tensor(datatype, shape, content)


def _zeros(datatype: Datatype, shape: tuple[int, ...]) -> bytes:
    """Zeros; empty strings, of which only the lengths are there."""
    return bytes(prod(shape) * (datatype.itemsize or 4))


def _random(datatype: Datatype, shape: tuple[int, ...]) -> Buffer:
    """Random elements, from 0 to 1 for floats and to 99 for integers; for strings, empty ones."""
    if datatype is BYTES:
        return _zeros(datatype, shape)
    random = np.random.default_rng(0)
    if datatype is BF16:
        # the upper half of an FP32 is the BF16 next to it, towards zero
        return (random.random(shape, np.float32).view("<u4") >> 16).astype("<u2").tobytes()
    if datatype.numpy.kind == "f":
        return random.random(shape).astype(datatype.numpy).tobytes()
    return random.integers(0, 2 if datatype is BOOL else 100, shape).astype(datatype.numpy).tobytes()


def _file(directory: Path, name: str) -> bytes:
    """The bytes of a file in the directory."""
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        msg = f"warmup file '{name}' must stay inside the model's directory 'warmup'"
        raise InvalidArgumentError(msg)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"cannot read warmup file {path}: {error.strerror}") from error
