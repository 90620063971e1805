"""Calls of a worker, answered: one socket, on the event loop. See `halimede_worker.messages.wire` for the messages."""

import inspect
import logging
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from typing import Any

from halimede.core.errors import HalimedeError, InternalError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse, Respond, already_there, request_prefix
from halimede.core.tasks import Tasks
from halimede.core.tensors import Tensor
from halimede.core.traces import Trace
from halimede.workers.channel import Channel, Message
from halimede.workers.encoding import SENT_TRACES, encode_response
from halimede.workers.memory import PeerMemory
from halimede_worker.messages import wire
from halimede_worker.messages.memory import SharedMemoryError

logger = logging.getLogger("halimede")


class ModelCall:
    """One inference that a model asks for.

    Attributes:
        model_name: the model that is to run it.
        model_version: the version, or -1 for the highest that is ready.
        id: the request's identifier, "" for none.
        sequence_id: correlation id, 0 or "" for none.
        flags: 1 for the start of a sequence, 2 for its end.
        timeout_us: longest time in the queue, in microseconds; 0 for the model's default.
        parameters: as JSON, "" for none.
        outputs: names of the outputs wanted; empty for all.
        inputs: name → tensor.
        preferred_memory: kind (0 GPU, 1 CPU) and device where the outputs should be, or None.
        decoupled: the caller takes any number of responses.
        blocks: the thread that runs `execute` waits, and with it the caller's instance, until the first response.
        trace: of the request that the caller says it comes of, if that is traced and not over; else None.
        respond: where responses go.
        ended: it has its final response, or nobody waits for one.
    """

    __slots__ = (
        "blocks",
        "decoupled",
        "ended",
        "flags",
        "id",
        "inputs",
        "model_name",
        "model_version",
        "outputs",
        "parameters",
        "preferred_memory",
        "respond",
        "sequence_id",
        "timeout_us",
        "trace",
    )

    def __init__(
        self,
        encoded: tuple[Any, ...],
        memory: PeerMemory,
        respond: Respond,
        *,
        decoupled: bool = False,
        blocks: bool = False,
    ) -> None:
        """The call in a message; the tensors view `memory`.

        Raises:
            InternalError: two inputs have the same name.
        """
        (
            self.model_name, self.model_version, self.id, self.sequence_id, self.flags, self.timeout_us,
            self.parameters, self.outputs, inputs, self.preferred_memory, *trace,
        ) = encoded  # fmt: skip
        self.trace: Trace | None = SENT_TRACES.get(trace[0]) if trace else None
        self.inputs: dict[str, Tensor] = {}
        for tensor in inputs:
            name: str = tensor[0]
            if name in self.inputs:
                why = request_prefix(self.id) + already_there("input", name)
                raise InternalError(f"Model {self.model_name} - Error when running inference: {why}")
            self.inputs[name] = decoded = memory.tensor(tensor)
            # what the caller made is for this call alone; what it received and passes on, it may go on reading
            decoded.shared = type(tensor[3]) is tuple and not memory.made(tensor[3])
        self.decoupled: bool = decoupled
        self.blocks: bool = blocks
        self.respond = respond
        self.ended = False


Infer = Callable[[ModelCall], InferRequest | None]
"""Runs a call, which is answered through its `respond`: the request that it became, or None if it is answered."""

Handler = Callable[[Message], Any]
"""Does what a message says: a value, or an awaitable of one. May raise HalimedeError."""


class _Inference:
    """A call under way, and where its responses go."""

    __slots__ = ("call", "number", "request", "server", "wanted")

    def __init__(self, server: "CallServer", number: int) -> None:
        self.server = server
        self.number = number
        self.call: ModelCall | None = None
        self.request: InferRequest | None = None
        self.wanted = True

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the engine."""
        if final:
            self.end()
            self.request = self.call = None  # which hold this, and the tensors
        if self.wanted:
            self.server.answer(self, response, final)

    def end(self) -> None:
        """Nothing more comes, or nobody waits for it."""
        if self.call is not None:
            self.call.ended = True

    def leave(self, *, cancel: bool) -> None:
        """Nobody wants the responses any more."""
        self.wanted = False
        self.end()
        request = self.request
        if request is not None:
            if cancel:
                request.cancel()
            request.drain()


class CallServer:
    """Serves one socket on which a worker, or a child that it forked, calls the server."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        memory: PeerMemory,
        infer: Infer,
        handlers: Mapping[int, Handler],
        on_closed: Callable[["CallServer"], None],
        *,
        forked: bool = False,
    ) -> None:
        """Serve the socket until its other end is closed, which `on_closed` is told, or `close` is called.

        Args:
            loop: the event loop, on which all methods are called too.
            sock: the server's end.
            memory: what is shared with the process at the other end.
            infer: runs inferences.
            handlers: kind of message → what does it, for the other calls.
            on_closed: called once if the other end closes it.
            forked: that process is a child of the worker, which `memory` is shared with through calls alone.
        """
        self._loop = loop
        self._memory = memory
        self._infer = infer
        self._handlers = handlers
        self._on_closed = on_closed
        self._forked = forked
        self._running: dict[int, _Inference] = {}
        self._tasks = Tasks()
        self._channel = Channel(loop, sock, memory, self._message, self._closed)
        self._channel.on_writable = self._writable

    def close(self) -> None:
        """Close the socket, and cancel what runs for it."""
        self._channel.close()
        running, self._running = self._running, {}
        for inference in running.values():
            inference.leave(cancel=True)
        self._tasks.cancel()

    def _closed(self) -> None:
        self.close()
        self._on_closed(self)

    def _message(self, message: Message) -> None:
        kind = message[0]
        if kind == wire.INFER:
            self._start(*message[1:])
        elif kind == wire.RELEASED:
            self._memory.released(message[1])
        elif kind == wire.STOP:
            inference = self._running.get(message[1])
            if inference is not None and inference.request is not None:
                inference.request.cancel()
        elif kind == wire.LEAVE:
            inference = self._running.pop(message[1], None)
            if inference is not None:
                inference.leave(cancel=message[2])
        else:
            self._handle(message)

    # Inferences

    def _start(self, number: int, encoded: tuple[Any, ...], decoupled: bool, blocks: bool) -> None:
        self._running[number] = inference = _Inference(self, number)
        try:
            blocks = blocks and not self._forked
            call = ModelCall(encoded, self._memory, inference.respond, decoupled=decoupled, blocks=blocks)
            inference.call = call
            request = self._infer(call)
        except HalimedeError as error:
            inference.respond(InferResponse(error=error), True)
        except SharedMemoryError as error:
            lost = UnavailableError(f"the inputs of the call were lost: {error}")
            inference.respond(InferResponse(error=lost), True)
        except Exception as error:  # a bug, which must not leave the model waiting
            logger.exception("a model's call of another failed")
            failure = InternalError(f"{type(error).__name__}: {error}")
            inference.respond(InferResponse(error=failure), True)
        else:
            if number in self._running:
                inference.request = request

    def answer(self, inference: _Inference, response: InferResponse | None, final: bool) -> None:
        """Send a response of an inference that runs."""
        memory, number = self._memory, inference.number
        if final:
            del self._running[number]
        unused = memory.unused()
        gone = memory.forgettable() if self._forked else ()
        outgoing = memory.outgoing()
        try:
            encoded = None if response is None else encode_response(response, outgoing)
            self._channel.send((wire.ANSWER, number, encoded, final, unused, gone), outgoing)
        except MemoryError as error:
            outgoing = memory.outgoing()
            failure = InternalError(f"no shared memory for the response: {error}")
            encoded = encode_response(InferResponse(error=failure), outgoing)
            self._channel.send((wire.ANSWER, number, encoded, final, unused, gone), outgoing)
        if outgoing.segments:
            memory.answered(outgoing.segments)
        if self._channel.backlog and inference.request is not None:
            inference.request.congest()

    def _writable(self) -> None:
        """What was held back has been sent."""
        for inference in list(self._running.values()):
            if inference.request is not None:
                inference.request.drain()

    # Other calls

    def _handle(self, message: Message) -> None:
        handler = self._handlers.get(message[0])
        try:
            if handler is None:
                raise InternalError(f"the server does not know calls of kind {message[0]}")
            value = handler(message)
        except Exception as error:
            self._fail(error)
            return
        if inspect.isawaitable(value):
            self._tasks.start("a model's call", self._finish(value))
        else:
            self._answer(value)

    async def _finish(self, work: Any) -> None:
        try:
            value = await work
        except Exception as error:
            self._fail(error)
        else:
            self._answer(value)

    def _answer(self, value: Any) -> None:
        try:
            self._channel.send((wire.DONE, value))
        except Exception as error:  # the model waits for an answer
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, HalimedeError):
            text = error.message
        else:
            logger.error("a model's call failed", exc_info=error)
            text = f"{type(error).__name__}: {error}"
        self._channel.send((wire.FAILED, text))
