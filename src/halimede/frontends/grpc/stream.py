"""ModelStreamInfer: any number of requests to any models, and their responses, over one call.

Responses of ordinary models go out in the order of their requests, those of decoupled models as they come. While the
client does not read them, decoupled models are held back, and no more requests are read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from halimede.core.errors import HalimedeError, NotLoadedError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Buffer
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.admission import admit
from halimede.frontends.grpc.codec_plan import RequestPlan
from halimede.frontends.grpc.codec_request import Decoded, Decoding, RequestDecoder, read_id
from halimede.frontends.grpc.codec_response import (
    encode_extras,
    refusal,
    stream_empty_final,
    stream_error,
    stream_parts,
)
from halimede.frontends.grpc.infer import forwarded_metadata, go_on, response_parts
from halimede.frontends.grpc.logged import LoggedCall
from halimede.frontends.grpc.on_demand import Loads
from halimede.frontends.grpc.traced import trace_if_sampled
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.responses import MAX_MESSAGE, Status, status_name
from halimede.frontends.request_log.entry import Entry
from halimede.frontends.request_log.log import RequestLog
from halimede.frontends.restrictions import HeaderPattern
from halimede.frontends.shared_memory.registry import Regions

logger = logging.getLogger("halimede")

_REAL_STATUS_KEY: Final = "triton_grpc_error"

# Requests in flight may hold this many bytes before no more are read, each counted with what it costs besides
_LARGEST_INFLIGHT: Final = 256 << 20
_REQUEST_COST: Final = 4096


class ModelStreamInfer:
    """The handler of ModelStreamInfer.

    Args:
        engine: what runs requests.
        decoder: how messages are read.
        forward_pattern: finds the metadata that become parameters; None for none.
        regions: clients' shared memory.
        log: hears of each request; None for no log.
    """

    def __init__(
        self,
        engine: Engine,
        decoder: RequestDecoder,
        forward_pattern: HeaderPattern | None,
        regions: Regions,
        log: RequestLog | None = None,
    ) -> None:
        self.make_answer: Callable[[_Stream, Call, int], _Answer] = (
            _Answer if log is None else partial(_LoggedAnswer, log)
        )
        self.loads = Loads(engine)
        self.find = engine.find
        self.now = engine.clock.now
        self.tracing = engine.tracing
        self.inflight = engine.inflight
        self.call_soon = engine.clock.call_soon
        self.decode = decoder.decode
        self.forward_pattern = forward_pattern
        self.regions = regions

    def __call__(self, call: Call) -> None:
        """Serve the stream."""
        _Stream(self, call)


class _Stream:
    """One stream: what came over it and is not answered yet."""

    def __init__(self, handler: ModelStreamInfer, call: Call) -> None:
        self._handler = handler
        self._call = call
        self._real_status = call.metadata.get(_REAL_STATUS_KEY) == "true"
        self._running: set[_Answer] = set()  # the engine works on these
        self._turns: deque[_Answer] = deque()  # these are sent in the order of their requests
        self._inflight = 0
        self._paused = False
        self._congested = False
        self._half_closed = False
        self._decoding = False  # a message is decoded elsewhere, and those after it wait
        self._held: deque[memoryview] = deque()  # those that came before the client was made to wait
        self.ended = False
        call.on_message = self._on_message
        call.on_half_close = self._on_half_close
        call.on_cancel = self._stop
        call.on_writable = self._on_writable

    def _on_message(self, message: memoryview) -> None:
        if self.ended:
            return
        if self._decoding:
            self._held.append(message)
            return
        handler = self._handler
        answer = handler.make_answer(self, self._call, len(message))
        self._inflight += answer.cost
        try:
            decoded = handler.decode(message)
        except HalimedeError as error:
            answer.identifier = read_id(message)
            self._turns.append(answer)
            answer.fail(error)
        else:
            if isinstance(decoded, Decoding):
                self._take_later(answer, decoded)
            else:
                self._take(answer, decoded)
        self._pause_if_full()

    def _take_later(self, answer: "_Answer", decoding: Decoding) -> None:
        """Take a request when it is decoded; messages after it wait, as the order of requests may matter."""

        def done(work: "asyncio.Future[Decoded]") -> None:
            if self.ended or work.cancelled():
                return
            self._decoding = False
            self._running.discard(answer)
            self._turns.remove(answer)
            answer.leave = None
            try:
                decoded = decoding.result()
            except HalimedeError as error:
                answer.identifier = decoding.identifier
                self._turns.append(answer)
                answer.fail(error)
            else:
                go_on(self._call, self._take, answer, decoded)
            while self._held and not self._decoding:
                self._on_message(self._held.popleft())
            self._resume_if_free()

        def leave() -> None:
            decoding.work.cancel()

        answer.leave = leave
        self._decoding = True
        self._running.add(answer)
        self._turns.append(answer)
        decoding.work.add_done_callback(done)

    def _take(self, answer: "_Answer", decoded: Decoded) -> None:
        """Take a request."""
        handler = self._handler
        answer.plan, answer.identifier, tensors = decoded
        try:
            self._begin(answer, answer.plan, tensors)
        except NotLoadedError as error:
            self._running.add(answer)
            self._turns.append(answer)  # until it is known that it needs none
            work = partial(self._begin, answer, answer.plan, tensors)
            answer.leave = handler.loads.then(error, work, answer.fail)
        except HalimedeError as error:
            self._turns.append(answer)
            answer.fail(error)

    def _begin(self, answer: "_Answer", plan: RequestPlan, tensors: list[memoryview]) -> None:
        """Let the model run a request.

        Raises:
            HalimedeError: it cannot.
        """
        handler = self._handler
        answer.model = model = handler.find(plan.model_name, plan.model_version)
        pattern = handler.forward_pattern
        forwarded = None if pattern is None else forwarded_metadata(self._call, pattern)
        request = plan.request(answer.identifier, tensors, answer.respond, handler.now(), forwarded)
        if plan.places is not None or handler.inflight is not None:
            admit(request, handler.inflight, plan.places, handler.regions)
        answer.begin(request, model.version)
        answer.decoupled = model.signature.decoupled
        self._running.add(answer)
        if answer.leave is None:
            if not answer.decoupled:
                self._turns.append(answer)
        else:
            answer.leave = None
            if answer.decoupled:
                self._turns.remove(answer)
                self._take_turns()
        if answer.decoupled and self._congested:
            request.congest()
        if handler.tracing.active:
            trace_if_sampled(handler.tracing, self._call, request, model.version, handler.now)
        model.infer(request)
        answer.accepted = True

    def _on_half_close(self) -> None:
        self._half_closed = True
        self._finish_if_done()

    def send(self, parts: list[Buffer]) -> None:
        """Send one message."""
        self._call.send(parts)
        if not self._call.writable:
            self._congest()
            self._pause_if_full()

    def fail(self, error: HalimedeError, message: bytes) -> None:
        """Tell by the message that a model failed; or, if the client wishes it so, by ending the stream."""
        if not self._real_status:
            self.send([message])
            return
        self._stop()
        self._call.finish(error.code.grpc_status, error.message)

    def answered(self, answer: "_Answer") -> None:
        """The engine is done with a request."""
        self._running.discard(answer)
        if answer.decoupled:
            self._release(answer)
        self._take_turns()
        self._finish_if_done()

    def _take_turns(self) -> None:
        """Send the responses that come first in the order of their requests, as far as they are there."""
        while self._turns and self._turns[0].response is not None:
            answer = self._turns.popleft()
            answer.deliver(answer.response, final=True)
            self._release(answer)

    def _release(self, answer: "_Answer") -> None:
        self._inflight -= answer.cost
        if self._paused:
            # not at once: messages that waited would be handled inside the handling of this one
            self._handler.call_soon(self._resume_if_free)

    def _congest(self) -> None:
        """The client does not read: hold back all that go on without being asked."""
        if self._congested or self.ended:
            return
        self._congested = True
        for answer in self._running:
            if answer.decoupled and answer.request is not None:
                answer.request.congest()

    def _on_writable(self) -> None:
        self._congested = False
        for answer in list(self._running):  # whoever is let go may answer at once
            if answer.decoupled and answer.request is not None and not self._congested:
                answer.request.drain()
        self._resume_if_free()

    def _is_full(self) -> bool:
        """Whether a message is decoded elsewhere, the client does not read, or what is in flight is too large."""
        return self._decoding or not self._call.writable or self._inflight > _LARGEST_INFLIGHT

    def _pause_if_full(self) -> None:
        if not self._paused and not self.ended and self._is_full():
            self._paused = True
            self._call.pause()

    def _resume_if_free(self) -> None:
        if self._paused and not self.ended and not self._is_full():
            self._paused = False
            self._call.resume()

    def _stop(self) -> None:
        """Send nothing more, and let the engine know that nobody waits."""
        self.ended = True
        self._turns.clear()
        self._held.clear()
        running, self._running = self._running, set()
        for answer in running:
            if answer.leave is not None:
                answer.leave()
            if answer.request is not None:
                answer.request.cancel()

    def _finish_if_done(self) -> None:
        if self._half_closed and not self.ended and not (self._running or self._turns or self._held):
            self.ended = True
            self._call.finish()


class _Answer:
    """Where the responses to one request of a stream go.

    Attributes:
        cost: how much of what a stream may have in flight it takes.
        identifier: the request's id.
        plan: what the request said; None if it could not be read.
        model: the model; None if there is none.
        request: the request while the engine works on it.
        leave: ends the wait for its model, while that is being loaded.
        decoupled: its responses go out as they come.
        accepted: the engine has looked at it.
        refused: the engine has not taken it.
        response: its only response, which waits for its turn.
    """

    __slots__ = (
        "accepted",
        "call",
        "cost",
        "decoupled",
        "identifier",
        "leave",
        "model",
        "plan",
        "refused",
        "request",
        "response",
        "stream",
    )

    def __init__(self, stream: _Stream, call: Call, size: int) -> None:
        """The answer to a message of `size` bytes on the call."""
        self.stream = stream
        self.call = call
        self.cost = size + _REQUEST_COST
        self.identifier = ""
        self.plan: RequestPlan | None = None
        self.model: ServedModel | None = None
        self.request: InferRequest | None = None
        self.leave: Callable[[], None] | None = None
        self.decoupled = False
        self.accepted = False
        self.refused = False
        self.response: InferResponse | None = None

    def begin(self, request: InferRequest, version: int) -> None:
        """This version of the request's model is about to run it."""
        self.request = request

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the engine."""
        if final:
            self.request = None  # which holds this
        if self.stream.ended:
            return
        if not self.accepted and response is not None and response.error is not None:
            self.refused = True
        if self.decoupled:
            self.deliver(response, final=final)
        else:
            assert response is not None, "only decoupled models end a request without a response"
            self.response = response
        if final:
            self.stream.answered(self)

    def fail(self, error: HalimedeError) -> None:
        """The engine will not take the request."""
        self.leave = None
        self.respond(InferResponse(error=error), True)

    def deliver(self, response: InferResponse | None, *, final: bool) -> None:
        """Send a response."""
        stream, plan, model = self.stream, self.plan, self.model
        if response is not None and response.error is not None:
            self._fail(response.error, final)
            return
        assert plan is not None
        assert model is not None, "without a model, a request has no response but an error"
        if response is None:
            if plan.parameters is not None and plan.parameters.empty_final:
                stream.send(stream_empty_final(plan.model_name, plan.version_text, self.identifier))
            return
        try:
            parts = response_parts(plan, model, response)
        except HalimedeError as error:
            self._fail(error, final)
            return
        if self.identifier or response.parameters:
            parts.insert(0, encode_extras(self.identifier, response.parameters))
        stream.send(stream_parts(parts, final=final))

    def _fail(self, error: HalimedeError, final: bool) -> None:
        """Send an error. If the request was not taken, that tells no more than its id, and never ends the stream."""
        plan = self.plan
        if logger.isEnabledFor(logging.DEBUG):
            name, client = status_name(error.code.grpc_status), self.call.connection.client
            logger.debug(
                "gRPC request of a stream failed with %s: %s from %s: %s",
                name,
                self.call.path,
                client,
                error.message[:MAX_MESSAGE],
            )
        if self.refused or plan is None:
            self.stream.send([refusal(error.message, self.identifier)])
            return
        message = stream_error(
            error.message, self.identifier, plan.model_name, plan.version_text, final=final
        )
        self.stream.fail(error, message)


class _LoggedAnswer(_Answer):
    """An answer that is logged when its last response is sent, or the stream has ended before."""

    __slots__ = ("_entry", "_log", "_status")

    def __init__(self, log: RequestLog, stream: _Stream, call: Call, size: int) -> None:
        super().__init__(stream, call, size)
        name = call.path.rpartition("/")[2]
        traceparent = call.metadata.get("traceparent")
        self._log = log
        self._entry = Entry("gRPC", call.connection.client, name, call.path, traceparent, size)
        self._status = 0
        if isinstance(call, LoggedCall):
            call.logged_requests += 1

    def begin(self, request: InferRequest, version: int) -> None:
        super().begin(request, version)
        self._entry.begin(request, version)

    def respond(self, response: InferResponse | None, final: bool) -> None:
        if final and self.stream.ended:
            self._end(Status.CANCELLED)
        super().respond(response, final)

    def deliver(self, response: InferResponse | None, *, final: bool) -> None:
        if response is not None and response.error is not None:
            self._status = response.error.code.grpc_status
        sent = self._sent
        super().deliver(response, final=final)
        self._entry.bytes_out += self._sent - sent
        if final:
            self._end(self._status)

    @property
    def _sent(self) -> int:
        return self.call.entry.bytes_out if isinstance(self.call, LoggedCall) else 0

    def _end(self, status: int) -> None:
        self._entry.end(status_name(status))
        self._log.add(self._entry)
