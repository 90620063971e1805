"""The calls `generate` and `generate_stream`: plain JSON in, and out as one object or as server-sent events."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

import orjson

from halimede.codec.json_sizes import is_large
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Buffer
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.decoders import Decoders
from halimede.frontends.http.answers import AnswerInSteps, answer_later, respond_error
from halimede.frontends.http.codec.generate_reply import ReplyEncoder, Steps
from halimede.frontends.http.codec.generate_request import GenerateRequest, read_generate_request
from halimede.frontends.http.codec.response import MAX_JSON_BYTES, size_in_steps
from halimede.frontends.http.dialect import KSERVE, Dialect
from halimede.frontends.http.routes import Route
from halimede.frontends.http.traced import trace_if_sampled
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.streaming import ResponseStream
from halimede.frontends.restrictions import HeaderPattern, forwarded_headers

EVENT_STREAM: Final = "text/event-stream; charset=utf-8"

_NOTHING: Final = memoryview(b"")
_EVENT: Final = b"data: "
_EVENT_END: Final = b"\n\n"
_NOT_ONE: Final = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)
_NO_ROOM: Final = "there is too little memory for a response of this size at present; try again later"


class Generate:
    """Serves both calls.

    Args:
        engine: what runs requests.
        max_input_size: the largest body, and the largest input in it, in bytes.
        forward_pattern: finds the headers that become parameters, None for none.
        dialect: what is special to the front end.
        decoders: decode large requests; None to read it here.
        max_output_size: most JSON of a response, in bytes.
    """

    def __init__(
        self,
        engine: Engine,
        max_input_size: int,
        forward_pattern: HeaderPattern | None,
        dialect: Dialect = KSERVE,
        decoders: Decoders | None = None,
        max_output_size: int = MAX_JSON_BYTES,
    ) -> None:
        self._max_output_size = max_output_size
        self._engine = engine
        self._now = engine.clock.now
        self._tracing = engine.tracing
        self._inflight = engine.inflight
        self._max_input_size = max_input_size
        self._forward_pattern = forward_pattern
        self._compression = dialect.compression
        self._decoders = decoders

    def generate(self, exchange: Exchange, route: Route) -> None:
        """Answer with the only response, now or later.

        Raises:
            HalimedeError: the request is answered with this.
        """
        self._serve(exchange, route, _OneReply)

    def generate_stream(self, exchange: Exchange, route: Route) -> None:
        """Answer with an event for each response, as they come.

        Raises:
            HalimedeError: the request is answered with this.
        """
        self._serve(exchange, route, _Events)

    def _serve(self, exchange: Exchange, route: Route, kind: "type[_OneReply] | type[_Events]") -> None:
        received = self._now()
        model = self._engine.find(route.model, route.version)
        encoding = exchange.headers.get("content-encoding", "identity")
        if self._compression and encoding.lower() != "identity":
            raise InvalidArgumentError("Unsupported content-encoding, only 'identity' is supported.")
        arguments = exchange.body, model.signature, self._max_input_size

        def run(read: GenerateRequest) -> None:
            self._run(exchange, model, kind, received, read)

        fits = len(exchange.body) <= self._max_input_size
        if fits and self._decoders is not None and is_large(exchange.body):
            release = self._engine.lifecycle.hold(model.identifier)
            reading = self._decoders.decode(read_generate_request, *arguments)

            def decoded(read: GenerateRequest) -> None:
                exchange.body = _NOTHING  # it is not needed any more
                run(read)

            answer_later(exchange, reading, decoded, release=release)
        else:
            run(read_generate_request(*arguments))

    def _run(
        self,
        exchange: Exchange,
        model: ServedModel,
        kind: "type[_OneReply] | type[_Events]",
        received: int,
        read: GenerateRequest,
    ) -> None:
        parameters = read.parameters
        if self._forward_pattern is not None:
            parameters = {**parameters, **forwarded_headers(exchange.sent_headers, self._forward_pattern)}
        answer = kind(exchange, model, read.id, self._max_output_size)
        request = InferRequest(
            model.name,
            read.inputs,
            answer.respond,
            model_version=model.version,
            id=read.id,
            parameters=parameters or None,
            received_ns=received,
        )
        if self._inflight is not None:
            self._inflight.admit(request)
        answer.request = request
        exchange.begin(request)
        if self._tracing.active:
            trace_if_sampled(self._tracing, exchange, request, self._now)
        model.infer(request)
        answer.accepted = True


class _Answer(ABC):
    """Where the responses to one request go.

    Attributes:
        exchange: what is answered.
        request: the request, until it has its last response.
        accepted: the engine has taken the request, rather than refused it.
    """

    __slots__ = ("accepted", "exchange", "max_output_size", "request")

    def __init__(self, exchange: Exchange, max_output_size: int) -> None:
        self.exchange = exchange
        self.max_output_size = max_output_size
        self.request: InferRequest | None = None
        self.accepted = False

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the engine."""
        exchange, request = self.exchange, self.request
        if final:
            self.request = None  # which holds this
        if exchange.closed:
            return
        if response is not None and response.error is not None and not self.accepted:
            respond_error(exchange, response.error)
            return
        try:
            self.take(response, final)
        except HalimedeError as error:
            respond_error(exchange, error)
        except Exception as error:  # whoever responds has other requests to answer
            exchange.fail(error)
        if self.exchange.closed and not final and request is not None:
            request.cancel()  # nobody waits for the rest

    @abstractmethod
    def take(self, response: InferResponse | None, final: bool) -> None:
        """Pass a response on; None and `final` say no more than that the one before was the last.

        Raises:
            HalimedeError: the exchange is answered with this.
        """


class _OneReply(_Answer):
    """The answer to `generate`: the only response, once it is known to be that."""

    __slots__ = ("_encoder", "_response")

    def __init__(self, exchange: Exchange, model: ServedModel, identifier: str, max_output_size: int) -> None:
        super().__init__(exchange, max_output_size)
        self._encoder = ReplyEncoder(model, identifier, max_json=max_output_size)
        self._response: InferResponse | None = None

    def take(self, response: InferResponse | None, final: bool) -> None:
        """Keep a response; answer with it when the last has come."""
        if response is not None:
            if self._response is not None:
                raise response.error or self._response.error or InternalError(_NOT_ONE)
            self._response = response
        if not final:
            return
        if self._response is None:
            raise InternalError(_NOT_ONE)
        if self._response.error is not None:
            respond_error(self.exchange, self._response.error)
            return
        encoded = self._encoder.encode(self._response)
        if isinstance(encoded, bytes):
            self.exchange.respond(200, (encoded,))
        elif self.exchange.reserve(size_in_steps(self._response, self.max_output_size)):
            AnswerInSteps(self.exchange, encoded, partial(self.exchange.respond, 200)).take()


class _Events(_Answer):
    """The answer to `generate_stream`: each response as an event. The first decides upon the status."""

    __slots__ = ("_encoder", "_pending", "_stream")

    def __init__(self, exchange: Exchange, model: ServedModel, identifier: str, max_output_size: int) -> None:
        super().__init__(exchange, max_output_size)
        self._encoder = ReplyEncoder(model, identifier, _EVENT, _EVENT_END, max_output_size)
        self._stream: ResponseStream | None = None
        self._pending: deque[tuple[InferResponse | None, bool]] | None = None  # while one before is encoded

    def take(self, response: InferResponse | None, final: bool) -> None:
        """Send a response; while the client is slow, hold the model back."""
        if self._pending is not None:
            self._pending.append((response, final))
            return
        status = 200
        event: bytes | Steps = b""
        if response is not None:
            if response.error is not None:
                status, event = _failure(response.error)
            else:
                try:
                    event = self._encoder.encode(response)
                except HalimedeError as error:
                    status, event = _failure(error)
        if isinstance(event, bytes):
            self._write(status, (event,) if event else (), final)
            return
        assert response is not None, "nothing else is encoded"
        if self.exchange.reserve(size_in_steps(response, self.max_output_size)):
            self._encode(event, final)
        elif self._stream is not None:
            self._write(200, _failure(UnavailableError(_NO_ROOM))[1:], final=True)
            if self.request is not None:
                self.request.cancel()

    def _encode(self, steps: Steps, final: bool) -> None:
        """Send a large response once it is encoded; those that come meanwhile wait, and the model with them."""
        self._pending = deque()
        if self.request is not None:
            self.request.congest()

        def fail(_: Exchange, error: HalimedeError) -> None:
            status, event = _failure(error)
            self._encoded(final, (event,), status)

        AnswerInSteps(self.exchange, steps, partial(self._encoded, final), fail).take()

    def _encoded(self, final: bool, parts: Sequence[Buffer], status: int = 200) -> None:
        pending, self._pending = self._pending, None
        self._write(status, parts, final)
        self.exchange.release()
        for response, last in pending or ():
            self.take(response, last)
        if self._pending is None and self.request is not None and self._stream and not self._stream.full:
            self.request.drain()

    def _write(self, status: int, parts: Sequence[Buffer], final: bool) -> None:
        stream = self._stream
        if stream is None:
            stream = self._stream = self.exchange.stream(status, EVENT_STREAM)
            if self.request is not None:
                stream.on_room = self.request.drain
        for part in parts:
            stream.write(part)
        if final:
            self.exchange.on_disconnect = None
            stream.end()
        elif stream.full and self.request is not None:
            self.request.congest()


def _failure(error: HalimedeError) -> tuple[int, bytes]:
    """The status of a stream that begins with an error, and its event."""
    return error.code.http_status, b"".join((_EVENT, orjson.dumps({"error": error.message}), _EVENT_END))
