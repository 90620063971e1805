"""Warm-up: the sample requests of the configuration, run on an instance before it serves.

They go to the backend directly, past every queue. All samples are made into requests before the first one runs. Files
with data are in the model's directory `warmup`: the bytes of the tensor as a client would send them, so strings each
with a 4-byte length.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from queue import SimpleQueue
from time import monotonic_ns, thread_time_ns

import numpy as np

from halimede.backends.base import Instance, ModelSource
from halimede.backends.batch import Batch
from halimede.config.model_config_pb2 import ModelWarmup
from halimede.config.signature import Signature
from halimede.core.clock import MILLISECOND, SECOND
from halimede.core.datatypes import BF16, BOOL, BY_NUMBER, BYTES, Datatype
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, OutOfMemoryError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Buffer, Tensor
from halimede.engine.statistics import ModelStatistics
from halimede.engine.validation import validate

logger = logging.getLogger("halimede")

_PREFIX = "[request id: <id_unknown>] "
"""How errors begin that are about the request that a sample describes."""

_LONG_NS = SECOND
"""A warm-up that takes longer makes way for others."""

_TURN_NS = 2 * MILLISECOND
"""So long a long warm-up computes before it pauses."""


class WarmUpPace:
    """How the warm-up of a version makes way: for other loads, and for the requests of other models.

    A short warm-up runs as fast as it can. One that takes more than a second lets another load begin, and pauses after
    each 2 ms of computing in Python, so that all such warm-ups together take less than half of a processor, which the
    event loop needs. What frameworks compute on other threads, or on a GPU, does not count.
    """

    _long = 0
    _changing = threading.Lock()

    def __init__(
        self, on_long: Callable[[], None] = lambda: None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """The pace of a warm-up that begins now; `on_long` is called once if it takes long."""
        self._on_long = on_long
        self._sleep = sleep
        self._began_ns = monotonic_ns()
        self._is_long = False
        self._computed_ns = 0
        self._since_ns = 0

    def begin(self) -> None:
        """A batch is about to run. Called on the thread that runs it."""
        self._since_ns = thread_time_ns()

    def end(self) -> None:
        """It has run: pause if it is time."""
        self._computed_ns += thread_time_ns() - self._since_ns
        if not self._is_long:
            if monotonic_ns() - self._began_ns < _LONG_NS:
                return
            self._change(1)
            self._on_long()
        if self._computed_ns >= _TURN_NS:
            self._sleep(2 * WarmUpPace._long * self._computed_ns / SECOND)
            self._computed_ns = 0

    def close(self) -> None:
        """The warm-ups are over."""
        if self._is_long:
            self._change(-1)

    def _change(self, by: int) -> None:
        self._is_long = by > 0
        with WarmUpPace._changing:
            WarmUpPace._long += by


@dataclass(frozen=True, slots=True)
class _Sample:
    """A sample that can be run.

    Attributes:
        name: its name.
        size: how many copies of the request run as one batch.
        count: how often they run.
        inputs: name → tensor of the request.
    """

    name: str
    size: int
    count: int
    inputs: dict[str, Tensor]


def warm_up(
    source: ModelSource,
    signature: Signature,
    instance: Instance,
    name: str,
    statistics: ModelStatistics,
    pace: WarmUpPace | None = None,
) -> None:
    """Run every warm-up sample of the model on the instance, and count that. Blocks.

    Args:
        source: the model.
        signature: what it takes and gives.
        instance: where to run them.
        name: of the instance.
        statistics: where to count.
        pace: that of the version's warm-up; None for one of its own.

    Raises:
        HalimedeError: no request can be made of a sample, or it failed; then the text begins ``failed to run warmup
            sample`` and holds the error of each of its requests.
    """
    pace = pace or WarmUpPace()
    samples = [_sample(source, signature, each) for each in source.config.model_warmup if each.batch_size]
    for sample in samples:
        failures = _run_sample(source, signature, instance, name, sample, statistics, pace)
        if failures:
            kind = OutOfMemoryError if isinstance(failures[0], OutOfMemoryError) else InvalidArgumentError
            texts = "".join(f"{failure.message}; " for failure in failures)
            raise kind(f"failed to run warmup sample '{sample.name}': {texts}")


def check_sample(source: ModelSource, signature: Signature, sample: ModelWarmup) -> None:
    """Return if a request can be made of the sample.

    Raises:
        HalimedeError: it is no request that the model can serve.
    """
    _sample(source, signature, sample)


def _sample(source: ModelSource, signature: Signature, sample: ModelWarmup) -> _Sample:
    """The sample with its data.

    Raises:
        HalimedeError: it is no request that the model can serve.
    """
    where = f"model_warmup sample '{sample.name}'"
    inputs = {}
    for name in sorted(sample.inputs):
        if name in signature.states:
            continue  # the instance gives every request what sequences begin with
        if name in signature.inputs or name in signature.controls:
            inputs[name] = _tensor(source, signature, name, sample.inputs[name], where)
        else:
            logger.warning(
                "%s of '%s' sets input '%s', which the model does not have", where, source.name, name
            )
    try:
        _request(source, signature, inputs)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error.message} ({where})") from error
    return _Sample(sample.name, sample.batch_size, max(1, sample.count), inputs)


def _run_sample(
    source: ModelSource,
    signature: Signature,
    instance: Instance,
    name: str,
    sample: _Sample,
    statistics: ModelStatistics,
    pace: WarmUpPace,
) -> list[HalimedeError]:
    """Run the copies of the sample as one batch, again and again: the errors of the first run that fails."""
    largest = signature.max_batch_size
    if sample.size > max(1, largest):
        text = f"batch size {sample.size} for '{name}', max allowed is {largest}"
        return [InvalidArgumentError(text)] * sample.size
    for _ in range(sample.count):
        requests = [_request(source, signature, sample.inputs) for _ in range(sample.size)]
        pace.begin()
        failures = _run_batch(signature, instance, requests, statistics)
        if failures:
            return failures
        pace.end()
    return []


def _request(source: ModelSource, signature: Signature, inputs: dict[str, Tensor]) -> InferRequest:
    """One copy of the request, whose control inputs are false, or 0, unless the sample sets them.

    Raises:
        InvalidArgumentError: the model cannot serve it.
    """
    sent = {name: tensor for name, tensor in inputs.items() if name not in signature.controls}
    request = InferRequest(
        source.name, sent, _no_answer, model_version=source.version, received_ns=monotonic_ns()
    )
    validate(request, signature)
    shape = (1, 1) if signature.max_batch_size > 0 else (1,)
    for name, spec in signature.controls.items():
        zero = Tensor(spec.datatype, shape, _zeros(spec.datatype, shape))
        request.inputs[name] = inputs.get(name, zero)
    return request


def _no_answer(response: InferResponse | None, final: bool) -> None:
    """Responses of a warm-up are taken from the batch, or from its `send`."""


def _run_batch(
    signature: Signature, instance: Instance, requests: list[InferRequest], statistics: ModelStatistics
) -> list[HalimedeError]:
    """Run one batch to its last response: the errors of the requests that failed."""
    batch = Batch(signature, requests, sum(request.batch_size for request in requests))
    batch.started_ns = monotonic_ns()
    batch.states = instance.states
    sent: SimpleQueue[tuple[InferResponse | None, bool]] = SimpleQueue()
    if signature.decoupled:
        batch.send = lambda _, response, final: sent.put((response, final))
    try:
        instance.execute(batch)
    except HalimedeError as error:
        return [error] * len(requests)
    responses: Sequence[InferResponse] = batch.responses
    if signature.decoupled:
        responses = _until_final(sent, len(requests))
    elif len(responses) != len(requests):
        text = f"the backend gave {len(responses)} responses to {len(requests)} requests"
        return [InternalError(text)] * len(requests)
    failures = [response.error for response in responses if response.error is not None]
    if failures:
        return failures
    batch.ended_ns = monotonic_ns()
    statistics.count_execution(batch)
    statistics.count_answered(requests, batch.started_ns, batch.ended_ns)
    return []


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


def _tensor(
    source: ModelSource, signature: Signature, name: str, data: ModelWarmup.Input, where: str
) -> Tensor:
    """One input of a sample, with a batch dimension of 1 if the model batches."""
    if any(dim < 0 for dim in data.dims):
        msg = f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
        raise InvalidArgumentError(f"{msg} ({where})")
    datatype = BY_NUMBER.get(data.data_type)
    if datatype is None:
        expected = signature.backend_inputs[name].datatype
        msg = f"inference input '{name}' data-type is '<invalid>', but model '{source.name}' expects '{expected}'"
        raise InvalidArgumentError(f"{_PREFIX}{msg} ({where})")
    shape = (1, *data.dims) if signature.max_batch_size > 0 else tuple(data.dims)
    match data.WhichOneof("input_data_type"):
        case "zero_data":
            content: Buffer = _zeros(datatype, shape)
        case "random_data":
            content = _random(datatype, shape)
        case "input_data_file":
            content = _file(source.directory / "warmup", data.input_data_file, datatype, shape)
        case _:
            msg = f"warmup setting expects input '{name}' to have input_data_type set"
            help_text = f"zero_data, random_data or input_data_file, in {where}"
            raise InvalidArgumentError(f"{_PREFIX}{msg}: {help_text}")
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


def _file(directory: Path, name: str, datatype: Datatype, shape: tuple[int, ...]) -> bytes:
    """The bytes of a file in the directory, as many as the tensor has; all of a file of strings."""
    path = directory / name
    start = f"failed to open text file for read {directory}/{name}: "
    if not path.resolve().is_relative_to(directory.resolve()):
        raise InternalError(f"{start}it must stay inside the model's directory 'warmup'")
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InternalError(start + str(reason)) from error
    if not datatype.itemsize:
        return content
    size = prod(shape) * datatype.itemsize
    if len(content) < size:
        msg = f"warmup setting expects {size} bytes, but the data provided from {name}only has {len(content)} bytes"
        raise InvalidArgumentError(_PREFIX + msg)
    return content[:size]
