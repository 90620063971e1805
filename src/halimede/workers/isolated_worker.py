"""In a worker's process: a model of an in-process backend, with the one instance that the process is for.

It is opened, completed, checked and run as the engine does with those in the server's process, and what goes wrong
is told in the same words and with the same code.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch, Send
from halimede.backends.execution import execute, niceness_of
from halimede.backends.registry import backend_class
from halimede.backends.text_counts import TextCounts
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.datatypes import BY_NUMBER
from halimede.core.errors import HalimedeError, InternalError, OutOfMemoryError
from halimede.core.out_of_memory import lacks_memory
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.workers.encoding import END_FLAG, START_FLAG
from halimede.workers.error_numbers import error_number
from halimede_worker.errors import PlainError
from halimede_worker.hosted import response_of, send_response, sending_together
from halimede_worker.messages import wire
from halimede_worker.messages.memory import Memory, Outgoing, Reference
from halimede_worker.messages.wire import ClosedError
from halimede_worker.requests import EncodedRequest, InferenceRequest, encoded_form
from halimede_worker.responses import EncodedResponse
from halimede_worker.runtime import runtime

logger = logging.getLogger("halimede")


class IsolatedWorkerModel:
    """What the worker runs; see `halimede_worker.hosted.HostedModel`.

    Attributes:
        decoupled: any number of responses may answer a request.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """A model that is not opened yet.

        Args:
            settings: of the worker; `version` is the model's, and `backend` what `BackendOptions` says.
        """
        self.decoupled = False
        self._settings = settings
        self._config = ModelConfig()
        self._backend: BackendModel | None = None
        self._instance: Instance | None = None
        self._signature: Signature | None = None
        if settings["backend"]["verbose"]:
            logger.setLevel(logging.DEBUG)

    def complete_config(self, config: bytes) -> bytes:
        """The configuration as the backend completes it.

        Raises:
            PlainError: the backend refuses the model.
        """
        with _telling():
            self._open(config).complete_config()
        return self._config.SerializeToString()

    def initialize(self, arguments: dict[str, Any]) -> None:
        """Check the configuration, and make the instance.

        Args:
            arguments: the final configuration `config`, and `name`, `index`, `kind` and `device` of the instance.

        Raises:
            PlainError: the backend refuses the model.
        """
        with _telling():
            backend = self._open(arguments["config"])
            backend.check_config()
            if niceness := niceness_of(self._config):  # also of the threads that are started from now on
                os.setpriority(os.PRIO_PROCESS, 0, niceness)
            spec = InstanceSpec(arguments["name"], arguments["index"], arguments["kind"], arguments["device"])
            self._instance = backend.create_instance(spec)
            self._instance.on_counts = _send_counts
            self._signature = Signature.from_config(self._config)
            self.decoupled = self._signature.decoupled

    def execute(self, requests: list[InferenceRequest]) -> None:
        """Run the requests of a decoupled model in one execution.

        Raises:
            PlainError: the whole batch failed.
        """
        self.run([self.received(*encoded_form(request), request) for request in requests], _send)

    def received(
        self, encoded: EncodedRequest, memory: Memory, origin: InferenceRequest | None = None
    ) -> "_Request":
        """The request of a message; of a decoupled model, beside the one that has its sender.

        Raises:
            PlainError: the shared memory that its tensors lie in cannot be mapped.
        """
        signature = self._signature
        assert signature is not None
        try:
            if origin is None:
                return _Request(encoded, memory, signature)
            return _Streamed(encoded, memory, signature, origin)
        except MemoryError as error:
            raise PlainError(str(error), error_number(OutOfMemoryError(""))) from None

    def run(self, requests: list["_Request"], send: Send | None = None) -> Sequence[InferResponse]:
        """The responses to the requests, from one execution; none that go by way of `send`.

        Raises:
            PlainError: the whole batch failed.
        """
        signature, instance = self._signature, self._instance
        assert signature is not None
        assert instance is not None
        size = sum([request.batch_size for request in requests])
        batch = Batch(signature, [*requests], size, sum([request.byte_size for request in requests]))
        batch.send = send
        if isinstance(requests[0], _Streamed):
            batch.together = sending_together(requests[0].origin)
        execute(instance, batch)
        if batch.failed:
            failure = batch.responses[0].error
            assert failure is not None
            raise PlainError(failure.message, error_number(failure))
        return batch.responses

    def encoded(self, response: InferResponse, request: "_Request", outgoing: Outgoing) -> EncodedResponse:
        """The response to the request, for a message.

        Raises:
            MemoryError: there is no shared memory for it.
        """
        if response.error is not None:
            return (), "", (error_number(response.error), response.error.message)
        targets = request.region_outputs
        outputs = []
        for name, tensor in response.outputs.items():
            sink = outgoing.into(targets[name]) if name in targets else outgoing
            outputs.append((name, tensor.datatype.number, tensor.shape, sink.put_buffer(tensor.data), False))
        return tuple(outputs), _json(response), None

    @property
    def keeps_states(self) -> bool:
        """Whether it is to be told of sequences that have ended."""
        return self._instance is not None and self._instance.states is not None

    @property
    def reserved_bytes(self) -> int:
        """Memory that the instance has reserved and not used yet."""
        return 0 if self._instance is None else self._instance.reserved_bytes

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """Forget what is kept of a sequence."""
        assert self._instance is not None
        self._instance.end_sequence(key, correlation_id, reason)

    def finalize(self) -> None:
        """Close the instance and the model."""
        if self._instance is not None:
            self._instance.close()
        if self._backend is not None:
            self._backend.close()

    def _open(self, config: bytes) -> BackendModel:
        """The model, opened; its configuration is this one from now on."""
        self._config.CopyFrom(ModelConfig.FromString(config))
        if self._backend is None:
            settings = self._settings
            directory = Path(settings["model_directory"])
            source = ModelSource(settings["model_name"], settings["version"], directory, self._config)
            options = BackendOptions(**{**settings["backend"], "gpus": tuple(settings["backend"]["gpus"])})
            self._backend = backend_class(self._config)(source, options)
        return self._backend


class _Request(InferRequest):
    """A request that came to the worker. Its tensors are views of what came.

    Attributes:
        number: what the server calls it.
        region_outputs: name → part of a client's region, of outputs that go into one.

    Raises:
        MemoryError: the shared memory that they lie in cannot be mapped.
    """

    __slots__ = ("number", "region_outputs")

    def __init__(self, encoded: EncodedRequest, memory: Memory, signature: Signature) -> None:
        (
            self.number,
            request_id,
            sequence_id,
            flags,
            timeout_us,
            parameters,
            wanted,
            encoded_inputs,
            key,
            regions,
            *_,
        ) = encoded
        inputs: dict[str, Tensor] = {}
        byte_size = 0
        for name, number, shape, payload, shared in encoded_inputs:
            data = payload if isinstance(payload, bytes) else memory.bytes_of(payload).data
            tensor = inputs[name] = Tensor(BY_NUMBER[number], shape, data)
            tensor.shared = shared
            byte_size += len(data)
        super().__init__(
            "",
            inputs,
            _no_answer,
            id=request_id,
            outputs=wanted,
            parameters=orjson.loads(parameters) if parameters else None,
            sequence_id=sequence_id,
            sequence_start=bool(flags & START_FLAG),
            sequence_end=bool(flags & END_FLAG),
            timeout_us=timeout_us,
        )
        self.sequence_key = key
        self.region_outputs: dict[str, Reference] = regions or {}
        if signature.max_batch_size > 0 and inputs:
            self.batch_size = next(iter(inputs.values())).shape[0]
        self.byte_size = byte_size

    def _cancel(self) -> None:
        """The client gave up."""
        self.cancel()


class _Streamed(_Request):
    """A request of a decoupled model, beside the one that has its sender."""

    __slots__ = ("origin",)

    def __init__(
        self, encoded: EncodedRequest, memory: Memory, signature: Signature, origin: InferenceRequest
    ) -> None:
        self.origin = origin
        super().__init__(encoded, memory, signature)

    @property
    def cancelled(self) -> bool:
        """The client gave up."""
        return self.origin.get_response_sender().is_cancelled()  # which also hears it after the execution

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        """The server says so to the original."""

    @property
    def congested(self) -> bool:
        """Whether a response would have to wait for the client."""
        return self.origin.get_response_sender().full

    @congested.setter
    def congested(self, value: bool) -> None:
        """The server says so to the original."""


def _no_answer(response: InferResponse | None, final: bool) -> None:
    """Responses go by way of the batch."""


def _send(request: InferRequest, response: InferResponse | None, final: bool) -> None:
    """Send one response of a decoupled model."""
    assert isinstance(request, _Streamed), "the requests of a decoupled model's batch are all of this kind"
    if response is None:
        send_response(request.origin, None, final)
        return
    error = response.error
    outputs = [
        (name, tensor.datatype.number, tensor.shape, tensor.data) for name, tensor in response.outputs.items()
    ]
    told = None if error is None else (error_number(error), error.message)
    send_response(request.origin, response_of(outputs, _json(response), told), final)


def _send_counts(counts: TextCounts) -> None:
    """Tell the server what a language model has counted."""
    firsts = [
        (request.number, at_ns) for request, at_ns in counts.first_tokens if isinstance(request, _Request)
    ]
    work = runtime.work
    assert work is not None, "the worker has its sockets"
    rest = (
        counts.running,
        counts.cache_usage,
        counts.prompt_tokens,
        counts.tokens,
        counts.gaps,
        counts.gaps_ns,
    )
    with suppress(ClosedError):  # the server is gone, and this process ends
        work.send((wire.COUNTED, firsts, rest))


def _json(response: InferResponse) -> str:
    """Its parameters, "" for none."""
    return orjson.dumps(response.parameters).decode() if response.parameters else ""


@contextmanager
def _telling() -> Iterator[None]:
    """What goes wrong while the model is loaded is told as the engine tells it."""
    try:
        yield
    except HalimedeError as error:
        raise PlainError(error.message, error_number(error)) from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if lacks_memory(error):
            raise PlainError(text, error_number(OutOfMemoryError(text))) from error
        logger.exception("a model failed to load")
        raise PlainError(text, error_number(InternalError(text))) from error
