"""The infer call: from an exchange to a request, and from its response back."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from halimede.codec.json_sizes import LARGE
from halimede.core.buffers import POOL
from halimede.core.errors import HalimedeError, InternalError, UnsupportedError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.admission import admit
from halimede.frontends.decoders import Decoders
from halimede.frontends.http.answers import AnswerInSteps, Made, answer_later
from halimede.frontends.http.codec.request import RequestDecoder
from halimede.frontends.http.codec.request_plan import RequestPlan, read_plan
from halimede.frontends.http.codec.response import Encoded, encode_response, size_in_steps
from halimede.frontends.http.compression import (
    deflate,
    inflate,
    inflate_failure,
    inflater,
    is_compressed,
    response_encoding,
)
from halimede.frontends.http.dialect import KSERVE, Dialect
from halimede.frontends.http.traced import trace_if_sampled
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.inflation import InflateError, Inflation
from halimede.frontends.restrictions import HeaderPattern, forwarded_headers
from halimede.frontends.shared_memory.registry import Regions
from halimede.net.receiving import ReceiveError, as_answer

_NOTHING = memoryview(b"")
_INLINE_INFLATE_BYTES = 4_096
_INLINE_DEFLATE_BYTES = 16_384
"""Up to these sizes zlib runs on the loop, beyond in a thread."""


class InferenceSettings(Protocol):
    """What the settings of a front end say of inference."""

    @property
    def max_input_size(self) -> int:
        """Largest JSON, raw or decompressed input, in bytes."""

    @property
    def max_output_size(self) -> int:
        """Most JSON of a response, in bytes."""

    @property
    def forward_pattern(self) -> HeaderPattern | None:
        """Finds the headers that become parameters, None for none."""

    @property
    def regions(self) -> Regions:
        """Clients' shared memory."""

    @property
    def decoders(self) -> Decoders:
        """Decode large requests."""


class Inference:
    """Serves the infer call.

    Args:
        engine: what runs requests.
        max_input_size: largest JSON, raw or decompressed input, in bytes.
        max_output_size: most JSON of a response, in bytes.
        forward_pattern: finds the headers that become parameters, None for none.
        regions: clients' shared memory.
        decoders: decode large requests, and have the budget for their memory.
        dialect: what is special to the front end.
    """

    def __init__(
        self,
        engine: Engine,
        max_input_size: int,
        max_output_size: int,
        forward_pattern: HeaderPattern | None,
        regions: Regions,
        decoders: Decoders,
        dialect: Dialect = KSERVE,
    ) -> None:
        self._engine = engine
        self._now = engine.clock.now
        self._tracing = engine.tracing
        self._inflight = engine.inflight
        self._decoder = RequestDecoder(max_input_size)
        self._max_input_size = max_input_size
        self._max_output_size = max_output_size
        self._decoders = decoders
        self._forward_pattern = forward_pattern
        self._regions = regions
        self._dialect = dialect
        self._json_length = dialect.json_length

    @classmethod
    def of(cls, engine: Engine, settings: InferenceSettings, dialect: Dialect) -> "Inference":
        """What serves the infer call of a front end with those settings."""
        return cls(
            engine,
            settings.max_input_size,
            settings.max_output_size,
            settings.forward_pattern,
            settings.regions,
            settings.decoders,
            dialect,
        )

    def infer(self, exchange: Exchange, name: str, version: int) -> None:
        """Answer, now or later.

        Raises:
            HalimedeError: the request is answered with this.
        """
        received = self._now()
        model = self._engine.find(name, version)
        if model.signature.decoupled:
            raise UnsupportedError("HTTP end point doesn't support models with decoupled transaction policy")
        encoding = exchange.headers.get("content-encoding")
        if encoding is None or not self._dialect.compression or not is_compressed(encoding):
            self._run(exchange, exchange.body, model, received)
        else:
            small = len(exchange.body) <= _INLINE_INFLATE_BYTES
            content = inflate(exchange.body, self._max_input_size) if small else None
            if content is None:
                self._inflate(exchange, model, received)
            else:
                self._run(exchange, memoryview(content), model, received)

    def _inflate(self, exchange: Exchange, model: ServedModel, received: int) -> None:
        """Go on with what the body holds once that is inflated. The model stays loaded until then."""
        budget = self._decoders.budget
        work: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def failed(error: Exception) -> None:
            if isinstance(error, InflateError):
                error = inflate_failure(error, self._max_input_size)
            elif isinstance(error, ReceiveError):
                error = as_answer(error)
            if not work.done():
                work.set_exception(error)

        def done(content: memoryview) -> None:
            POOL.trim_later()  # a few bytes may have become many
            if not work.done():
                work.set_result(content)

        inflation = Inflation(budget, inflater(exchange.body, self._max_input_size), exchange, done, failed)
        work.add_done_callback(lambda _: inflation.cancel())
        self._run_later(exchange, model, work, lambda body: self._run(exchange, body, model, received))

    def _run_later(
        self,
        exchange: Exchange,
        model: ServedModel,
        work: "asyncio.Future[Made]",
        then: "Callable[[Made], None]",
    ) -> None:
        """Go on with what the work gives. The model stays loaded until then."""
        release = self._engine.lifecycle.hold(model.identifier)
        answer_later(exchange, work, then, self._dialect.respond_error, release)

    def _decoded(
        self,
        exchange: Exchange,
        body: memoryview,
        model: ServedModel,
        received: int,
        plan: RequestPlan,
    ) -> None:
        """Go on with a request whose JSON is decoded; the text is not needed any more."""
        exchange.body = _NOTHING
        self._run(exchange, body, model, received, plan)

    def _run(
        self,
        exchange: Exchange,
        body: memoryview,
        model: ServedModel,
        received: int,
        plan: RequestPlan | None = None,
    ) -> None:
        json_length = self._json_length(exchange.headers)
        if len(body) > LARGE and plan is None:
            text = self._decoder.large_json(body, json_length)
            if text is not None:
                self._run_later(
                    exchange,
                    model,
                    self._decoders.decode(read_plan, text, self._max_input_size),
                    lambda plan: self._decoded(exchange, body, model, received, plan),
                )
                return
        plan, identifier, inputs = self._decoder.decode(body, json_length, model.name, model.signature, plan)
        parameters = plan.parameters
        if self._forward_pattern is not None:
            forwarded = forwarded_headers(exchange.sent_headers, self._forward_pattern)
            if forwarded:
                parameters = {**(parameters or {}), **forwarded}
        answer = _Answer(exchange, model, plan, identifier, self._dialect, self._max_output_size)
        request = InferRequest(
            model.name,
            inputs,
            answer.respond,
            model_version=model.version,
            id=identifier,
            outputs=plan.outputs,
            parameters=parameters,
            received_ns=received,
        )
        scheduling = plan.scheduling
        if scheduling is not None:
            request.priority, request.timeout_us = scheduling.priority, scheduling.timeout_us
            request.sequence_id = scheduling.sequence_id
            request.sequence_start, request.sequence_end = scheduling.sequence_start, scheduling.sequence_end
        if plan.places is not None or self._inflight is not None:
            admit(request, self._inflight, plan.places, self._regions)
        exchange.begin(request)
        if self._tracing.active:
            trace_if_sampled(self._tracing, exchange, request, self._now)
        model.infer(request)


class _Answer:
    """Where the response to one request goes."""

    __slots__ = ("dialect", "exchange", "identifier", "max_output_size", "model", "plan")

    def __init__(
        self,
        exchange: Exchange,
        model: ServedModel,
        plan: RequestPlan,
        identifier: str,
        dialect: Dialect,
        max_output_size: int,
    ) -> None:
        self.dialect = dialect
        self.max_output_size = max_output_size
        self.exchange = exchange
        self.model = model
        self.plan = plan
        self.identifier = identifier

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Send the only response."""
        exchange = self.exchange
        if exchange.closed:
            return
        if response is not None and response.error is not None:
            self.dialect.respond_error(exchange, response.error)
            return
        try:
            if response is None:
                raise InternalError(f"model '{self.model.name}' ended the request without a response")
            encoded = encode_response(
                response, self.model, self.plan, self.identifier, self.dialect.label, self.max_output_size
            )
        except HalimedeError as error:
            self.dialect.respond_error(exchange, error)
            return
        except Exception as error:  # whoever responds has other requests to answer
            exchange.fail(error)
            return
        if isinstance(encoded, tuple):
            self._send(encoded)
        elif exchange.reserve(size_in_steps(response, self.max_output_size)):
            AnswerInSteps(exchange, encoded, self._send, self.dialect.respond_error).take()

    def _send(self, encoded: Encoded) -> None:
        exchange = self.exchange
        accept = exchange.headers.get("accept-encoding")
        encoding = response_encoding(accept) if accept and self.dialect.compression else ""
        if encoding:
            _respond_compressed(exchange, self.dialect, encoded, encoding)
        else:
            exchange.respond(200, *encoded)


def _respond_compressed(exchange: Exchange, dialect: Dialect, encoded: Encoded, encoding: str) -> None:
    def respond(body: bytes) -> None:
        exchange.respond(200, (body,), content_type, (*headers, ("Content-Encoding", encoding)))

    parts, content_type, headers = encoded
    if sum(map(len, parts)) <= _INLINE_DEFLATE_BYTES:
        respond(deflate(parts, encoding))
    else:
        answer_later(exchange, _in_thread(deflate, parts, encoding), respond, dialect.respond_error)


def _in_thread(work: Callable[..., bytes], *args: Any) -> "asyncio.Future[bytes]":
    future = asyncio.get_running_loop().run_in_executor(None, work, *args)
    future.add_done_callback(lambda _: POOL.trim_later())
    return future
