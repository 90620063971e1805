"""In a front end: requests for inference are read here, and their responses written, where that can be done.

A request that is like one before it, but for its id and the bytes of its tensors, is sent by the number of its form
(`forms`). Others become the same objects as in a server of one process.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from halimede.core.errors import HalimedeError
from halimede.core.requests import ParameterValue
from halimede.core.trace_context import TRACEPARENT
from halimede.frontends.decoders import Decoders
from halimede.frontends.grpc.codec_plan import RequestPlan as GrpcPlan
from halimede.frontends.grpc.codec_request import RequestDecoder as GrpcDecoder
from halimede.frontends.grpc.infer import ModelInfer
from halimede.frontends.grpc.transport.call import Call, UnaryMethod
from halimede.frontends.http.codec.request import MEMO_BYTES, RequestDecoder, split_id
from halimede.frontends.http.codec.request_plan import RequestPlan as HttpPlan
from halimede.frontends.http.compression import is_compressed, response_encoding
from halimede.frontends.http.inference import Inference
from halimede.frontends.http.routes import Call as HttpCall
from halimede.frontends.http.routes import find_route
from halimede.frontends.http.transport.exchange import Exchange, Handler
from halimede.frontends.relay.forms import GrpcForm, HttpForm
from halimede.frontends.relay.remote_models import NotHereError, RemoteModels
from halimede.frontends.restrictions import HeaderPattern, forwarded_headers
from halimede.frontends.shared_memory.registry import Regions
from halimede.http1.head import Head, json_length

INFER_PATH: Final = "/inference.GRPCInferenceService/ModelInfer"

_ROUTE: Final = HttpCall.INFER.label

_MAX_FORMS: Final = 512
"""Of each protocol; all are forgotten when there are too many."""

_Key = tuple[Head, bytes]
"""A head, and the JSON of a body without its id."""


class HttpReader:
    """What answers exchanges over HTTP."""

    def __init__(
        self,
        models: RemoteModels,
        inference: Inference,
        max_input_size: int,
        forward_pattern: HeaderPattern | None,
        relay: Handler,
        protocol: str,
        *,
        logged: bool,
    ) -> None:
        """Read what is for inference.

        Args:
            models: the models.
            inference: reads requests of any form.
            max_input_size: as of `Inference`.
            forward_pattern: as of `Inference`.
            relay: has the engine's process answer all other exchanges.
            protocol: which protocol it is.
            logged: whether what is read here is logged and counted here, too; else the engine's process counts it.
        """
        self._logged = logged
        self._models = models
        self._infer = inference.infer
        self._decoder = RequestDecoder(max_input_size)
        self._forward_pattern = forward_pattern
        self._relay = relay
        self._protocol = protocol
        self._lengths: dict[Head, int] = {}  # bytes of JSON in the bodies; 0 where there may be no form
        self._seen: set[_Key] = set()
        self._forms: dict[_Key, HttpForm | None] = {}  # None: it can have no form
        models.on_change.append(self._forget)

    def __call__(self, exchange: Exchange) -> None:
        """Answer, now or later."""
        head = exchange.head
        length = self._lengths.get(head, -1)
        if length < 0:
            length = self._look_at(head)
        if length:
            body = exchange.body
            text = bytes(body[:length])
            identifier, rest = split_id(text)
            form = self._forms.get((head, rest))
            whole = form is not None and len(body) == length + form.plan.binary_bytes
            if form is not None and whole and not (self._models.traced and exchange.body_began_ns):
                exchange.route = _ROUTE
                exchange.relayed = True
                tensors = map(body.__getitem__, form.spans)
                try:
                    exchange.on_disconnect = self._models.ask(form, exchange, identifier, tensors)
                except MemoryError:
                    self._relay(exchange)
                return
        self._read(exchange)
        if length and exchange.relayed:
            self._note(exchange, (head, rest))

    def _look_at(self, head: Head) -> int:
        """How many bytes of JSON there are in the bodies of requests with this head; 0 if they may have no form."""
        if len(self._lengths) >= _MAX_FORMS:
            self._lengths.clear()
        length = self._lengths[head] = 0 if self._logged else _json_bytes(head)
        return length

    def _read(self, exchange: Exchange) -> None:
        """Read a request of any form."""
        route = find_route(exchange.path)
        if route is None or route.call is not HttpCall.INFER or exchange.method != "POST":
            self._relay(exchange)
            return
        models = self._models
        if models.traced and (TRACEPARENT in exchange.headers or exchange.body_began_ns):
            self._relay(exchange)
            return
        models.relay = partial(self._relay, exchange)
        models.protocol = self._protocol
        models.route = exchange.route = _ROUTE
        try:
            self._infer(exchange, route.model, route.version)
        except (NotHereError, MemoryError, HalimedeError):  # which the engine's process says in full
            self._relay(exchange)
        else:
            exchange.relayed = not self._logged
        finally:
            models.end_reading()

    def _note(self, exchange: Exchange, key: _Key) -> None:
        """A request was read that may come again; at the second time, make a form of it."""
        if key in self._forms:
            return
        if key not in self._seen:
            if len(self._seen) >= _MAX_FORMS:
                self._forget()
            self._seen.add(key)
            return
        self._forms[key] = self._form(exchange, key[0])

    def _form(self, exchange: Exchange, head: Head) -> HttpForm | None:
        """The form of a request; None if it can have none."""
        route = find_route(head.path)
        assert route is not None, "it was read"
        try:
            model = self._models.find(route.model, route.version)
            plan, *_ = self._decoder.decode(
                exchange.body, json_length(head.headers), model.name, model.signature
            )
            parameters = plan.parameters
            if self._forward_pattern is not None:
                forwarded = forwarded_headers(head.sent, self._forward_pattern)
                parameters = {**(parameters or {}), **forwarded} or None
        except (NotHereError, HalimedeError):
            return None
        if not _is_binary(plan):
            return None
        inputs = [(name, datatype.number, shape) for name, datatype, shape, *_ in plan.inputs]
        number = self._models.declare(
            self._protocol, _ROUTE, model, inputs, plan.outputs, parameters, plan.scheduling
        )
        return HttpForm(number, model, plan, len(exchange.body) - plan.binary_bytes, self._relay)

    def _forget(self) -> None:
        """Forget all forms."""
        forms, self._forms = self._forms, {}
        self._seen.clear()
        self._models.forget([form.number for form in forms.values() if form is not None])


def _json_bytes(head: Head) -> int:
    headers = head.headers
    route = find_route(head.path)
    if route is None or route.call is not HttpCall.INFER or head.method != "POST":
        return 0
    try:
        if TRACEPARENT in headers or is_compressed(headers.get("content-encoding")):
            return 0
    except HalimedeError:
        return 0
    length = json_length(headers) or ""
    accept = headers.get("accept-encoding")
    if (accept and response_encoding(accept)) or not (length.isdecimal() and len(length) < 5):
        return 0
    return int(length) if int(length) <= MEMO_BYTES else 0


def _is_binary(plan: HttpPlan) -> bool:
    """Whether all tensors are bytes that follow the JSON, both ways."""
    if plan.places is not None or any(tensor is not None for *_, tensor in plan.inputs):
        return False
    wanted = plan.output_plans.values() or (plan.unlisted,)
    return not plan.id and all(each.binary and not each.classes for each in wanted)


class GrpcReader:
    """What answers ModelInfer."""

    def __init__(
        self,
        models: RemoteModels,
        forward_pattern: HeaderPattern | None,
        regions: Regions,
        decoders: Decoders,
        relay: UnaryMethod,
        *,
        logged: bool,
    ) -> None:
        """Read requests.

        Args:
            models: the models.
            forward_pattern: as of `ModelInfer`.
            regions: as of `ModelInfer`.
            decoders: decode large requests.
            relay: has the engine's process answer calls.
            logged: as of `HttpReader`.
        """
        self._logged = logged
        self._models = models
        self._decode = GrpcDecoder(decoders).decode
        engine: Any = models
        self._infer = ModelInfer(engine, self._decode, forward_pattern, regions)
        self._forms_allowed = forward_pattern is None and not logged
        self._relay = relay.handler
        self._seen: set[GrpcPlan] = set()
        self._forms: dict[GrpcPlan, GrpcForm | None] = {}  # None: it can have no form
        models.on_change.append(self._forget)

    def __call__(self, call: Call, message: memoryview) -> None:
        """Answer, now or later."""
        if self._models.traced and TRACEPARENT in call.metadata:
            self._relay(call, message)
            return
        try:
            decoded = self._decode(message)
        except (NotHereError, HalimedeError):  # which the engine's process says in full
            self._relay(call, message)
            return
        assert isinstance(decoded, tuple), "large messages are decoded in the engine's process"
        plan, identifier, tensors = decoded
        form = self._forms.get(plan)
        if form is not None and len(tensors) == len(plan.inputs):
            call.relayed = True
            try:
                call.on_cancel = self._models.ask(form, call, identifier.encode(), tensors, message)
            except MemoryError:
                self._relay(call, message)
            return
        models = self._models
        models.relay = partial(self._relay, call, message)
        models.call = call
        models.protocol = "grpc"
        models.route = call.path
        try:
            self._infer.answer(call, message, decoded)
        except (NotHereError, MemoryError):
            self._relay(call, message)
        else:
            call.relayed = call.on_cancel is not None and not self._logged
            if call.relayed and self._forms_allowed:
                self._note(call, plan)
        finally:
            models.end_reading()

    def _note(self, call: Call, plan: GrpcPlan) -> None:
        """A request was read that may come again; at the second time, make a form of it."""
        if plan in self._forms:
            return
        if plan not in self._seen:
            if len(self._seen) >= _MAX_FORMS:
                self._forget()
            self._seen.add(plan)
            return
        self._forms[plan] = self._form(call, plan)

    def _form(self, call: Call, plan: GrpcPlan) -> GrpcForm | None:
        """The form of a request; None if it can have none."""
        if plan.error is not None or plan.contents is not None or plan.places is not None or plan.classes:
            return None
        try:
            model = self._models.find(plan.model_name, plan.model_version)
        except NotHereError:
            return None
        given = plan.parameters
        parameters: Mapping[str, ParameterValue] | None = None
        scheduling = None
        if given is not None:
            parameters = given.custom
            scheduling = (
                given.priority,
                given.timeout_us,
                given.sequence_id,
                given.sequence_start,
                given.sequence_end,
            )
        inputs = [(name, datatype.number, shape) for name, datatype, shape in plan.inputs]
        number = self._models.declare("grpc", call.path, model, inputs, plan.outputs, parameters, scheduling)
        return GrpcForm(number, model, plan, self._relay)

    def _forget(self) -> None:
        """Forget all forms."""
        forms, self._forms = self._forms, {}
        self._seen.clear()
        self._models.forget([form.number for form in forms.values() if form is not None])
