"""ModelInfer: one request, one response."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from halimede.core.errors import HalimedeError, NotLoadedError, UnsupportedError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Buffer
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.admission import admit
from halimede.frontends.grpc.codec_plan import RequestPlan
from halimede.frontends.grpc.codec_request import Decoded, Decoding
from halimede.frontends.grpc.codec_response import encode_extras, with_classes
from halimede.frontends.grpc.on_demand import Loads
from halimede.frontends.grpc.traced import trace_if_sampled
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.responses import Status
from halimede.frontends.restrictions import HeaderPattern, forwarded_headers
from halimede.frontends.shared_memory.registry import Regions

logger = logging.getLogger("halimede")

_DECOUPLED: Final = "ModelInfer RPC doesn't support models with decoupled transaction policy"


class ModelInfer:
    """The handler of ModelInfer.

    Args:
        engine: what runs requests.
        decode: reads messages.
        forward_pattern: finds the metadata that become parameters; None for none.
        regions: clients' shared memory.
    """

    def __init__(
        self,
        engine: Engine,
        decode: Callable[[memoryview], Decoded | Decoding],
        forward_pattern: HeaderPattern | None,
        regions: Regions,
    ) -> None:
        self._loads = Loads(engine)
        self._find = engine.find
        self._now = engine.clock.now
        self._tracing = engine.tracing
        self._inflight = engine.inflight
        self._decode = decode
        self._forward_pattern = forward_pattern
        self._regions = regions

    def __call__(self, call: Call, message: memoryview) -> None:
        """Answer the call, now or later."""
        try:
            decoded = self._decode(message)
        except HalimedeError as error:
            _fail(call, error)
            return
        if isinstance(decoded, Decoding):
            self._answer_later(call, message, decoded)
        else:
            self.answer(call, message, decoded)

    def _answer_later(self, call: Call, message: memoryview, decoding: Decoding) -> None:
        """Answer when the message is decoded, unless the client gives up before."""

        def done(work: "asyncio.Future[Decoded]") -> None:
            if call.cancelled or work.cancelled():
                return
            call.on_cancel = None
            try:
                decoded = decoding.result()
            except HalimedeError as error:
                _fail(call, error)
            else:
                go_on(call, self.answer, call, message, decoded)

        def leave() -> None:
            decoding.work.cancel()

        call.on_cancel = leave
        decoding.work.add_done_callback(done)

    def answer(self, call: Call, message: memoryview, decoded: Decoded) -> None:
        """Answer a call whose message is decoded, now or later."""
        plan, identifier, tensors = decoded
        try:
            model = self._find(plan.model_name, plan.model_version)
            if model.signature.decoupled:
                raise UnsupportedError(_DECOUPLED)
            pattern = self._forward_pattern
            forwarded = None if pattern is None else forwarded_metadata(call, pattern)
            answer = _Answer(call, plan, model, identifier)
            request = plan.request(identifier, tensors, answer.respond, self._now(), forwarded)
            if plan.places is not None or self._inflight is not None:
                admit(request, self._inflight, plan.places, self._regions)
        except NotLoadedError as error:
            call.on_cancel = self._loads.then(error, partial(self, call, message), partial(_fail, call))
            return
        except HalimedeError as error:
            _fail(call, error)
            return
        call.begin(request, model.version)
        if self._tracing.active:
            trace_if_sampled(self._tracing, call, request, model.version, self._now)
        model.infer(request)


def _fail(call: Call, error: HalimedeError) -> None:
    call.on_cancel = None
    call.finish(error.code.grpc_status, error.message)


class _Answer:
    """Where the response to one call goes."""

    __slots__ = ("call", "identifier", "model", "plan")

    def __init__(self, call: Call, plan: RequestPlan, model: ServedModel, identifier: str) -> None:
        self.call = call
        self.plan = plan
        self.model = model
        self.identifier = identifier

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Send the only response."""
        assert response is not None, "only decoupled models end a request without a response"
        call = self.call
        call.on_cancel = None  # the call, the request and this hold each other, and with them the tensors
        if call.cancelled:
            return
        if response.error is not None:
            call.finish(response.error.code.grpc_status, response.error.message)
            return
        try:
            parts = response_parts(self.plan, self.model, response)
        except HalimedeError as error:
            call.finish(error.code.grpc_status, error.message)
            return
        if self.identifier or response.parameters:
            parts.insert(0, encode_extras(self.identifier, response.parameters))
        call.reply(parts)


def go_on(call: Call, work: Callable[..., None], *args: Any) -> None:
    """Go on with a call in a callback of the loop; what it fails with is logged and ends the call."""
    try:
        work(*args)
    except Exception:  # nobody else would answer
        logger.exception("The handler of gRPC call %s failed", call.path)
        call.finish(Status.INTERNAL, "The server failed to handle the call; its log says why")


def forwarded_metadata(call: Call, pattern: HeaderPattern) -> dict[str, str]:
    """The call's metadata that become parameters of its requests.

    Raises:
        InvalidArgumentError: one has the name of a parameter that is reserved.
    """
    texts = ((name, value) for name, value in call.metadata.items() if isinstance(value, str))
    return forwarded_headers(texts, pattern)


def response_parts(plan: RequestPlan, model: ServedModel, response: InferResponse) -> list[Buffer]:
    """The response as a ModelInferResponse without id and parameters, as buffers to be sent one after the other.

    Raises:
        InvalidArgumentError: it cannot be sent as the client wants it.
    """
    outputs = response.tensors()
    if plan.classes:
        batched = model.signature.max_batch_size > 0
        outputs = with_classes(outputs, plan.classes, model.labels, batched=batched)
    return plan.layout.parts(model.name, model.version, outputs)
