"""A server that answers a worker's calls, and a worker's end of it: in this process, or for one that is started."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from google.protobuf import text_format

from halimede.backends.base import BackendOptions, InstanceSpec, ModelSource
from halimede.backends.registry import backend_class
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.signature import Signature
from halimede.core.clock import LoopClock
from halimede.core.datatypes import FP32
from halimede.core.errors import HalimedeError, NotFoundError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.calls.bls import ModelCalls
from halimede.engine.lifecycle.loading import first_response_bounds
from halimede.engine.loaded_version import LoadedInstance, LoadedVersion
from halimede.engine.model import Model
from halimede.engine.statistics import ModelStatistics
from halimede.workers.call_server import Handler, ModelCall
from halimede.workers.channel import Channel, Message
from halimede.workers.host import WorkerName
from halimede.workers.memory import PeerMemory
from halimede.workers.worker_calls import WorkerCalls
from halimede_worker.calls.answers import answers
from halimede_worker.calls.calls import channels
from halimede_worker.messages import wire
from halimede_worker.messages.memory import Memory
from halimede_worker.requests import InferenceRequest
from halimede_worker.responses import InferenceResponse
from halimede_worker.runtime import Stage, runtime
from halimede_worker.tensors.tensors import Tensor as WorkerTensor
from tests.support.loops import LoopThread

IDENTITY = """
    name: "identity" backend: "identity"
    input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
    output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""
SQUARE = """
    name: "square" backend: "square" model_transaction_policy { decoupled: true }
    input { name: "IN" data_type: TYPE_INT32 dims: 1 }
    output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
"""

CALLER = WorkerName("caller", 1, "caller_0_0")


class ScriptedModel(Model):
    """A model that answers when the test says so.

    Attributes:
        requests: those that came, in order.
    """

    def __init__(self, name: str, *, decoupled: bool = False, gather: int = 0) -> None:
        """With `gather`, it echoes its requests once so many are there."""
        self.name = self.identifier = name
        self.version = 1
        self.signature = Signature(0, {}, {}, decoupled=decoupled)
        self.requests: list[InferRequest] = []
        self.loaded: Any = SimpleNamespace(instances=())
        self._gather = gather
        self._came = threading.Semaphore(0)

    def with_instances(self, *busy_with: tuple[InferRequest, ...]) -> None:
        """Have instances, each of which has those requests."""
        self.loaded.instances = [
            SimpleNamespace(
                spec=InstanceSpec(f"{self.name}_0_{index}"),
                passive=False,
                instance=SimpleNamespace(requests=requests),
            )
            for index, requests in enumerate(busy_with)
        ]

    def infer(self, request: InferRequest) -> None:
        """Take the request."""
        self.requests.append(request)
        self._came.release()
        if self._gather and len(self.requests) == self._gather:
            for each in self.requests:
                each.respond(InferResponse({"OUTPUT0": each.inputs["INPUT0"]}), True)

    def came(self) -> InferRequest:
        """The request that came last, once one more has come."""
        assert self._came.acquire(timeout=60)
        return self.requests[-1]


class Server:
    """The server's side: `with Server() as server`.

    Attributes:
        loop: its event loop.
        models: name → model.
        memory: what it shares with the worker.
        handlers: the calls beside inferences.
        calls: the worker's sockets for calls, while one is connected.
        opened: how many sockets for calls there were.
    """

    def __init__(self, gpus: tuple[int, ...] = ()) -> None:
        self.loop = LoopThread()
        self.models: dict[str, Any] = {}
        self.memory = PeerMemory()
        self.handlers: dict[int, Handler] = {}
        self.opened = 0
        self._gpus = gpus
        self._real: list[Model] = []

    def __enter__(self) -> "Server":
        self.loop.__enter__()
        self.clock = self.loop.call(LoopClock, self.loop.loop)
        self.engine = ModelCalls(self._find, self.clock.now, self._gpus)
        self.calls = WorkerCalls(self.loop.loop, self.memory, self._infer, self.handlers)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call(self.calls.close)
        for model in self._real:
            self.loop.run(model.drained())
            self.loop.run(model.close())
        self.loop.call(self.clock.close)
        self.loop.__exit__(None, None, None)

    def add(self, text: str) -> Model:
        """A model of the server's own backends."""
        config = ModelConfig()
        text_format.Parse(text, config)
        normalise(config)
        source = ModelSource(config.name, 1, Path("/nonexistent"), config)
        backend = backend_class(config)(source, BackendOptions())
        backend.check_config()
        spec = InstanceSpec(f"{config.name}_0_0")
        instances = (LoadedInstance(spec, False, backend.create_instance(spec)),)
        statistics = ModelStatistics(first_response_bounds(config))
        loaded = LoadedVersion(source, Signature.from_config(config), backend, instances, {}, statistics)
        model = self.loop.call(Model, loaded, self.clock, self.loop.loop)
        self._real.append(model)
        self.models[config.name] = model
        return model

    def script(self, name: str, *, decoupled: bool = False, gather: int = 0) -> ScriptedModel:
        """A model that does as the test says."""
        model = self.models[name] = ScriptedModel(name, decoupled=decoupled, gather=gather)
        return model

    def respond(self, request: InferRequest, response: InferResponse | None, final: bool = True) -> None:
        """Let a scripted model respond."""
        self.loop.call(request.respond, response, final)

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """The worker's ends of a work and a control socket."""
        work, work_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control, control_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ends = [
            self.loop.call(Channel, self.loop.loop, end, self.memory, self._message, _nothing)
            for end in (work_end, control_end)
        ]
        return work, control

    def disconnect(self) -> None:
        """Close the work and the control socket."""
        for end in self._ends:
            self.loop.call(end.close)

    def _message(self, message: Message) -> None:
        if message[0] == wire.OPEN:
            self.opened += 1
            self.calls.open(*message[1:])
        elif message[0] == wire.RELEASED:
            self.memory.released(message[1])
        else:
            raise AssertionError(message)

    def _find(self, name: str, version: int) -> Any:
        if name not in self.models or version not in (-1, 1):
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return self.models[name]

    def _infer(self, call: ModelCall) -> InferRequest | None:
        return self.engine.infer(call, CALLER)


def _nothing() -> None:
    """The worker has closed the socket."""


@contextmanager
def worker_of(server: Server) -> Iterator[None]:
    """Make this process the worker, ready to execute."""
    work, control = server.connect()
    server.calls.pid = os.getpid()
    become_worker(work, control)
    try:
        yield
    finally:
        leave_worker()
        server.disconnect()


def become_worker(work: socket.socket, control: socket.socket) -> None:
    """Make this process a worker on these sockets."""
    runtime.memory = Memory()
    answers._counts.clear()  # noqa: SLF001 - a fresh start for the next test
    runtime.work = wire.Channel(work, runtime.memory)
    runtime.control = wire.Channel(control, runtime.memory)
    runtime.stage = Stage.READY


def leave_worker() -> None:
    """Be no worker any more."""
    while channels._idle:  # noqa: SLF001 - what is left is seen only inside
        channels._idle.pop().close()  # noqa: SLF001 - what is left is seen only inside
    for channel in (runtime.work, runtime.control):
        assert channel is not None
        channel.close()
    runtime.work = runtime.control = None
    runtime.stage = Stage.LOADING


def echo(values: Any, model: str = "identity", **options: Any) -> InferenceRequest:
    """A request for a model like `identity`: INPUT0 of type FP32."""
    tensor = values if isinstance(values, WorkerTensor) else WorkerTensor("INPUT0", _fp32(values))
    return InferenceRequest(inputs=[tensor], requested_output_names=["OUTPUT0"], model_name=model, **options)


def count(number: int, model: str = "square") -> InferenceRequest:
    """A request for `square`, which answers it so many times."""
    tensor = WorkerTensor("IN", np.array([number], np.int32))
    return InferenceRequest(inputs=[tensor], requested_output_names=["OUT"], model_name=model)


def result(response: Any) -> list[float]:
    """The only output of a good response."""
    assert isinstance(response, InferenceResponse)
    error = response.error()
    assert error is None, error.message()
    (output,) = response.output_tensors()
    values: list[float] = output.as_numpy().tolist()
    return values


def error_of(response: Any) -> str:
    """The error's message of a response."""
    error = response.error()
    assert error is not None
    message: str = error.message()
    return message


def fp32(*values: float) -> InferResponse:
    """A response of the server with the output OUTPUT0."""
    return InferResponse({"OUTPUT0": Tensor.from_array(FP32, np.array(values, np.float32))})


def failure(error: HalimedeError) -> InferResponse:
    """A response of the server that is an error."""
    return InferResponse(error=error)


def _fp32(values: Any) -> Any:
    return np.asarray(values, np.float32).reshape(-1)
