"""In a front end: what requests have in common that differ in nothing but their ids and the bytes of their tensors.

Clients repeat themselves. The second request of a form makes the form known to the engine's process, under a number;
from then on a request is that number, its id and its bytes, and so is the response (`Layout`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from halimede.core.datatypes import Datatype
from halimede.core.errors import HalimedeError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Buffer, Tensor
from halimede.frontends.grpc.codec_plan import RequestPlan as GrpcPlan
from halimede.frontends.grpc.codec_response import encode_extras
from halimede.frontends.grpc.infer import response_parts
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.http.answers import respond_error
from halimede.frontends.http.codec.request_plan import RequestPlan as HttpPlan
from halimede.frontends.http.codec.response import (
    BINARY,
    Encoded,
    encode_response,
    encode_whole,
    label_binary,
)
from halimede.frontends.http.transport.exchange import Exchange, Handler

_MAX_LAYOUTS: Final = 64


class Layout:
    """What responses have in common that differ in nothing but the bytes of their tensors.

    Attributes:
        outputs: name, datatype, shape and bytes of each.
    """

    __slots__ = ("outputs",)

    def __init__(self, outputs: list[tuple[str, Datatype, tuple[int, ...], int]]) -> None:
        self.outputs = outputs

    def response(self, parts: Sequence[Buffer]) -> InferResponse:
        """The response whose tensors have these bytes."""
        return InferResponse(
            {
                name: Tensor(datatype, shape, data)
                for (name, datatype, shape, _), data in zip(self.outputs, parts, strict=True)
            }
        )


class Form(Protocol):
    """How the requests of a form are answered."""

    number: int

    def answer(self, client: Any, identifier: bytes, layout: Layout, parts: Sequence[Buffer]) -> None:
        """Answer with outputs of that layout."""

    def respond(self, client: Any, identifier: bytes, response: InferResponse) -> None:
        """Answer with whatever it is."""

    def relay(self, client: Any, message: memoryview) -> None:
        """Have the engine's process answer the whole."""


Head = tuple[bytes, str, tuple[tuple[str, str], ...]]
"""What stands before the outputs in a body, its media type and its further headers."""


class HttpForm:
    """The form of requests over HTTP: what an `Exchange` gets.

    Attributes:
        number: its number.
        plan: what the requests say.
        spans: where in a body each tensor is.
    """

    __slots__ = ("_heads", "_model", "_relay", "number", "plan", "spans")

    def __init__(self, number: int, model: Any, plan: HttpPlan, json_bytes: int, relay: Handler) -> None:
        """A form that is known under a number.

        Args:
            number: the number.
            model: the model, as `encode_response` needs it.
            plan: what the requests say.
            json_bytes: where in their bodies the tensors begin.
            relay: has the engine's process answer an exchange.
        """
        self.number = number
        self.plan = plan
        self.spans = [slice(json_bytes + start, json_bytes + end) for *_, start, end, _ in plan.inputs]
        self._model = model
        self._relay = relay
        self._heads: dict[Layout, Head] = {}

    def answer(self, exchange: Exchange, identifier: bytes, layout: Layout, parts: Sequence[Buffer]) -> None:
        """Answer with outputs of that layout."""
        known = self._heads.get(layout)
        if known is None:
            known = self._learn(exchange, identifier, layout, parts)
            if known is None:
                return
        head, media_type, headers = known
        if identifier:
            head = b'{"id":"%b",%b' % (identifier, head[1:])
            if media_type == BINARY:
                headers = label_binary(len(head))[1]
        exchange.respond(200, (head, *parts), media_type, headers)

    def _learn(
        self, exchange: Exchange, identifier: bytes, layout: Layout, parts: Sequence[Buffer]
    ) -> Head | None:
        """What stands before the outputs of a layout; None if that cannot be said, and the exchange is answered."""
        try:
            (head, *_), media_type, headers = self._encoded(b"", layout.response(parts))
        except HalimedeError as error:
            respond_error(exchange, error)
            return None
        except Exception as error:  # whoever responds has other requests to answer
            exchange.fail(error)
            return None
        written = self.plan.layout
        if written is None or written.head is not head:  # some of the outputs are not wanted
            self.respond(exchange, identifier, layout.response(parts))
            return None
        if len(self._heads) >= _MAX_LAYOUTS:
            self._heads.clear()
        known = self._heads[layout] = written.head, media_type, headers
        return known

    def _encoded(self, identifier: bytes, response: InferResponse) -> Encoded:
        return encode_whole(encode_response(response, self._model, self.plan, identifier.decode()))

    def respond(self, exchange: Exchange, identifier: bytes, response: InferResponse) -> None:
        """Answer with whatever it is."""
        error = response.error
        if error is None:
            try:
                exchange.respond(200, *self._encoded(identifier, response))
                return
            except HalimedeError as misfit:
                error = misfit
            except Exception as unforeseen:  # whoever responds has other requests to answer
                exchange.fail(unforeseen)
                return
        respond_error(exchange, error)

    def relay(self, exchange: Exchange, _message: memoryview) -> None:
        """Have the engine's process answer the whole."""
        self._relay(exchange)


class GrpcForm:
    """The form of requests over gRPC: what a `Call` gets.

    Attributes:
        number: its number.
    """

    __slots__ = ("_frames", "_model", "_plan", "_relay", "number")

    def __init__(
        self, number: int, model: Any, plan: GrpcPlan, relay: Callable[[Call, memoryview], None]
    ) -> None:
        """A form that is known under a number.

        Args:
            number: the number.
            model: the model, as `response_parts` needs it.
            plan: what the requests say.
            relay: has the engine's process answer a call.
        """
        self.number = number
        self._model = model
        self._plan = plan
        self._relay = relay
        self._frames: dict[Layout, list[bytes]] = {}

    def answer(self, call: Call, identifier: bytes, layout: Layout, parts: Sequence[Buffer]) -> None:
        """Answer with outputs of that layout."""
        frames = self._frames.get(layout)
        if frames is None:
            self.respond(call, identifier, layout.response(parts))
            written = self._plan.layout
            if parts and written.outputs == layout.outputs:
                if len(self._frames) >= _MAX_LAYOUTS:
                    self._frames.clear()
                self._frames[layout] = written.frames
            return
        call.on_cancel = None
        if call.cancelled:
            return
        message = [each for pair in zip(frames, parts, strict=True) for each in pair]
        if identifier:
            message.insert(0, encode_extras(identifier.decode(), None))
        call.reply(message)

    def respond(self, call: Call, identifier: bytes, response: InferResponse) -> None:
        """Answer with whatever it is."""
        call.on_cancel = None
        if call.cancelled:
            return
        error = response.error
        if error is None:
            try:
                parts = response_parts(self._plan, self._model, response)
            except HalimedeError as misfit:
                error = misfit
            else:
                if identifier or response.parameters:
                    parts.insert(0, encode_extras(identifier.decode(), response.parameters))
                call.reply(parts)
                return
        call.finish(error.code.grpc_status, error.message)

    def relay(self, call: Call, message: memoryview) -> None:
        """Have the engine's process answer the whole."""
        self._relay(call, message)
