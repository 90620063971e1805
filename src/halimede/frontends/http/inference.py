"""The infer call: from an exchange to a request, and from its response back."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import orjson

from halimede.core.errors import HalimedeError, InternalError, UnsupportedError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.engine import Engine
from halimede.engine.ensembles.served import ServedModel
from halimede.frontends.http.compression import (
    UnsupportedEncodingError,
    deflate,
    inflate,
    is_compressed,
    response_encoding,
)
from halimede.frontends.http.protocol import Exchange
from halimede.frontends.http.request_codec import RequestDecoder
from halimede.frontends.http.request_plan import RequestPlan
from halimede.frontends.http.response_codec import Encoded, encode_response
from halimede.frontends.restrictions import forwarded_headers

_INLINE_INFLATE_BYTES = 4_096
_INLINE_DEFLATE_BYTES = 16_384
"""Up to these sizes zlib runs on the loop, beyond in a thread."""


def respond_error(exchange: Exchange, error: HalimedeError) -> None:
    """Answer with the error's status and text."""
    headers = (("Accept-Encoding", "gzip, deflate"),) if isinstance(error, UnsupportedEncodingError) else ()
    body = orjson.dumps({"error": error.message})
    exchange.respond(error.code.http_status, (body,), headers=headers)


class Inference:
    """Serves the infer call.

    Args:
        engine: what runs requests.
        max_input_size: largest JSON, raw or decompressed input, in bytes.
        forward_pattern: finds the headers that become parameters, None for none.
    """

    def __init__(self, engine: Engine, max_input_size: int, forward_pattern: re.Pattern[str] | None) -> None:
        self._engine = engine
        self._now = engine.clock.now
        self._decoder = RequestDecoder(max_input_size)
        self._max_input_size = max_input_size
        self._forward_pattern = forward_pattern

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
        if encoding is None or not is_compressed(encoding):
            self._run(exchange, exchange.body, model, received)
        elif len(exchange.body) <= _INLINE_INFLATE_BYTES:
            self._run_inflated(exchange, inflate(exchange.body, self._max_input_size), model, received)
        else:
            _in_thread(
                exchange,
                lambda body: self._run_inflated(exchange, body, model, received),
                inflate,
                exchange.body,
                self._max_input_size,
            )

    def _run_inflated(self, exchange: Exchange, body: bytes, model: ServedModel, received: int) -> None:
        self._run(exchange, memoryview(body), model, received)

    def _run(self, exchange: Exchange, body: memoryview, model: ServedModel, received: int) -> None:
        headers = exchange.headers
        plan, identifier, inputs = self._decoder.decode(
            body, headers.get("inference-header-content-length"), model.name, model.signature
        )
        parameters = plan.parameters
        if self._forward_pattern is not None:
            forwarded = forwarded_headers(headers, self._forward_pattern)
            if forwarded:
                parameters = {**forwarded, **(parameters or {})}
        answer = _Answer(exchange, model, plan, identifier)
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
        exchange.on_disconnect = request.cancel
        model.infer(request)


class _Answer:
    """Where the response to one request goes."""

    __slots__ = ("exchange", "identifier", "model", "plan")

    def __init__(self, exchange: Exchange, model: ServedModel, plan: RequestPlan, identifier: str) -> None:
        self.exchange = exchange
        self.model = model
        self.plan = plan
        self.identifier = identifier

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Send the only response."""
        exchange = self.exchange
        if exchange.closed:
            return
        try:
            if response is None:
                raise InternalError(f"model '{self.model.name}' ended the request without a response")
            if response.error is not None:
                raise response.error
            encoded = encode_response(response, self.model, self.plan, self.identifier)
        except HalimedeError as error:
            respond_error(exchange, error)
            return
        except Exception as error:  # whoever responds has other requests to answer
            exchange.fail(error)
            return
        accept = exchange.headers.get("accept-encoding")
        encoding = response_encoding(accept) if accept else ""
        if encoding:
            _respond_compressed(exchange, encoded, encoding)
        else:
            exchange.respond(200, *encoded)


def _respond_compressed(exchange: Exchange, encoded: Encoded, encoding: str) -> None:
    def respond(body: bytes) -> None:
        exchange.respond(200, (body,), content_type, (*headers, ("Content-Encoding", encoding)))

    parts, content_type, headers = encoded
    if sum(map(len, parts)) <= _INLINE_DEFLATE_BYTES:
        respond(deflate(parts, encoding))
    else:
        _in_thread(exchange, respond, deflate, parts, encoding)


def _in_thread(
    exchange: Exchange, then: Callable[[bytes], None], work: Callable[..., bytes], *args: Any
) -> None:
    """Do the work in a thread, then go on with its result on the loop, if the client is still there."""

    def done(future: "asyncio.Future[bytes]") -> None:
        if exchange.closed or future.cancelled():
            return
        try:
            then(future.result())
        except HalimedeError as error:
            respond_error(exchange, error)
        except Exception as error:  # in a callback of the loop, nobody else would answer
            exchange.fail(error)

    asyncio.get_running_loop().run_in_executor(None, work, *args).add_done_callback(done)
