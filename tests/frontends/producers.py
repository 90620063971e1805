"""A decoupled model whose responses come from a thread that makes them as fast as it may."""

import threading
from base64 import b64encode
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from halimede.config.signature import Signature, TensorSpec
from halimede.core.clock import LoopClock
from halimede.core.datatypes import BYTES, INT32
from halimede.core.errors import NotFoundError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.scheduling.flow import Flow
from halimede.engine.tracing.settings import TraceConfig
from halimede.engine.tracing.tracing import Tracing
from tests.support.loops import LoopThread


class Producer:
    """COUNT (INT32[1]) and SIZE (INT32[1], 0 if left out) → COUNT responses OUT, each a string of SIZE bytes.

    Attributes:
        made: request id → responses handed to the event loop.
        held: request id → set when its thread has to wait for its client.
        ended: request id → set when its thread has ended.
        requests: request id → the request.
    """

    def __init__(self, loop: LoopThread) -> None:
        self.name = self.identifier = "producer"
        self.version = 1
        self.signature = Signature(
            0,
            {name: TensorSpec(name, INT32, (1,), (1,), optional=True) for name in ("COUNT", "SIZE")},
            {"OUT": TensorSpec("OUT", BYTES, (1,), (1,))},
            decoupled=True,
        )
        self.labels: dict[str, list[str]] = {}
        self.made: dict[str, int] = {}
        self.held: dict[str, threading.Event] = {}
        self.ended: dict[str, threading.Event] = {}
        self.requests: dict[str, InferRequest] = {}
        self._loop = loop.loop
        self._flow = loop.call(Flow)

    def expect(self, identifier: str) -> None:
        """Let a test wait for what becomes of a request before it is sent."""
        self.held[identifier] = threading.Event()
        self.ended[identifier] = threading.Event()

    def infer(self, request: InferRequest) -> None:
        self.requests[request.id] = request
        self._flow.open(request)
        threading.Thread(target=self._produce, args=(request,)).start()

    def _produce(self, request: InferRequest) -> None:
        count = int(request.inputs["COUNT"].array[0])
        size = int(request.inputs["SIZE"].array[0]) if "SIZE" in request.inputs else 0
        value = np.empty(1, np.object_)
        value[0] = b64encode(Random(1).randbytes(size))[:size]  # which no compression makes small
        for index in range(count):
            if request.cancelled:
                break
            self._send(request, InferResponse({"OUT": Tensor(BYTES, (1,), None, value)}), False)
            self.made[request.id] = index + 1
        self._send(request, None, True)
        if request.id in self.ended:
            self.ended[request.id].set()

    def _send(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self._flow.wait(request)
        self._loop.call_soon_threadsafe(self._deliver, request, response, final)

    def _deliver(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self._flow.taken(request, final)
        request.respond(response, final)
        for identifier, event in self.held.items():
            if identifier in self.requests and self.requests[identifier].congested:
                event.set()


class ProducerEngine:
    """Knows one producer."""

    def __init__(self, loop: LoopThread) -> None:
        self.producer = Producer(loop)
        self.clock = LoopClock(loop.loop)
        self.settings: Any = None
        self.lifecycle = SimpleNamespace(on_readiness=[], live=True, ready=True)
        self.tracing = Tracing(TraceConfig(), None)
        self.inflight = None

    def find(self, name: str, version: int = -1) -> Producer:
        if name != self.producer.name:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return self.producer


def int32(value: int) -> bytes:
    """One element of an INT32 tensor."""
    return value.to_bytes(4, "little", signed=True)
