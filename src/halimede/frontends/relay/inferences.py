"""Requests that a front end has read, in the engine's process: they run here, and the responses are written there."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

import orjson

from halimede.core.datatypes import BY_NUMBER, Datatype
from halimede.core.errors import HalimedeError, InternalError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.engine.tracing.recording import ProtocolNames, trace_client_request
from halimede.frontends.grpc.traced import NAMES as GRPC_TRACED
from halimede.frontends.http.traced import NAMES as HTTP_TRACED
from halimede.frontends.relay import wire
from halimede.frontends.relay.link import Link, Payload
from halimede.frontends.relay.remote_models import ModelRow, SentTensor
from halimede.frontends.relay.traffic import RelayedTraffic
from halimede.frontends.traffic import CLIENT_GONE
from halimede.workers.error_numbers import error_number

_GRPC: Final = "grpc"
_CANCELLED: Final = 1

_MAX_LAYOUTS: Final = 512
"""Of one front end; all are forgotten when there are too many."""


class Told:
    """What front ends know of the models. Lives on the event loop."""

    def __init__(self, engine: Engine) -> None:
        """Nothing yet."""
        self.engine = engine
        self.on_change: Callable[[Sequence[tuple[str, int]], Sequence[ModelRow]], None] = _ignore
        self._handles = 0
        self._models: dict[int, ServedModel] = {}
        self._rows: dict[tuple[str, int], ModelRow] = {}
        self._due = False
        self._find = engine.lifecycle.find
        engine.lifecycle.on_readiness.append(self._look_soon)

    def rows(self) -> list[ModelRow]:
        """All that they know."""
        return list(self._rows.values())

    def model(self, handle: int) -> ServedModel | None:
        """The model that they mean; None if it is not the one that serves such requests any more."""
        model = self._models.get(handle)
        if model is None:
            return None
        return model if self._is_found(model, model.version) else None

    def _look_soon(self) -> None:
        if not self._due:
            self._due = True
            self.engine.clock.call_soon(self._look)

    def _look(self) -> None:
        """Tell of models that have come or gone."""
        self._due = False
        served = self._served()
        gone = [key for key, row in self._rows.items() if served.get(key) is not self._models[row[0]]]
        for key in gone:
            del self._models[self._rows.pop(key)[0]]
        rows = []
        for key, model in served.items():
            is_latest = self._is_found(model, -1)
            known = self._rows.get(key)
            if known is not None and known[3] == is_latest:
                continue
            if known is None:
                self._handles += 1
                self._models[self._handles] = model
            handle = self._handles if known is None else known[0]
            labels = {name: list(values) for name, values in model.labels.items()}
            row = handle, *key, is_latest, model.config.SerializeToString(), labels
            self._rows[key] = row
            rows.append(row)
        if gone or rows:
            self.on_change(gone, rows)

    def _served(self) -> dict[tuple[str, int], ServedModel]:
        """The models whose requests front ends may read themselves."""
        return {
            (model.name, model.version): model
            for model in self.engine.lifecycle.loaded_models()
            if not model.signature.decoupled and self._is_found(model, model.version)
        }

    def _is_found(self, model: ServedModel, version: int) -> bool:
        """Whether clients that ask for its name and that version get this model."""
        try:
            return self._find(model.name, version) is model
        except HalimedeError:  # with namespaces, several models may have the name
            return False


def _ignore(*_: object) -> None:
    """Nobody is there to be told."""


class _Form:
    """What requests have in common that a front end asks by their form; or what is known of a single one.

    Attributes:
        traffic: what passes through the endpoint that they come by.
        route: the call, as metrics name it.
        succeeded: what a response without error is counted as.
        handle: the model.
        inputs: name, datatype and shape of each.
        outputs: names of those wanted, () for all.
        parameters: custom parameters, or None.
        scheduling: priority, timeout, and id, start and end of the sequence; None if they say nothing of these.
        is_shared: the front end knows it, so that a response needs no names.
    """

    __slots__ = (
        "handle",
        "inputs",
        "is_shared",
        "outputs",
        "parameters",
        "route",
        "scheduling",
        "succeeded",
        "traffic",
    )

    def __init__(
        self,
        traffic: RelayedTraffic,
        route: str,
        handle: int,
        outputs: tuple[str, ...],
        parameters: bytes,
        scheduling: tuple[Any, ...] | None,
        inputs: Sequence[tuple[str, Datatype, tuple[int, ...]]] | None = None,
    ) -> None:
        self.traffic = traffic
        self.route = route
        self.succeeded = route, 0 if traffic.protocol == _GRPC else 200
        self.handle = handle
        self.inputs = inputs or ()
        self.outputs = outputs
        self.parameters = orjson.loads(parameters) if parameters else None
        self.scheduling = scheduling
        self.is_shared = inputs is not None

    @property
    def traced_as(self) -> ProtocolNames:
        """What the events of a request are called that is traced."""
        return GRPC_TRACED if self.traffic.protocol == _GRPC else HTTP_TRACED

    def failed(self, error: HalimedeError) -> tuple[str, int]:
        """What a response with an error is counted as."""
        code = error.code
        return self.route, code.grpc_status if self.traffic.protocol == _GRPC else code.http_status

    def gone(self, status: int) -> tuple[str, int]:
        """What a request is counted as whose client has gone; `status` if it came over gRPC."""
        return self.route, status if self.traffic.protocol == _GRPC else CLIENT_GONE


class RelayedInferences:
    """Those of one front end that are under way. Lives on the event loop."""

    def __init__(
        self, link: Link, told: Told, traffic: Mapping[str, RelayedTraffic], *, logged: bool
    ) -> None:
        """None yet.

        Args:
            link: the front end.
            told: what it knows of the models.
            traffic: protocol → what passes through its endpoint.
            logged: whether the front end logs and counts these requests, and has to know their times.
        """
        self._link = link
        self._told = told
        self._logged = logged
        self._times: dict[int, tuple[int, int, int]] = {}
        self._tracing = told.engine.tracing
        self._inflight = told.engine.inflight
        self._traffic = traffic
        self._forms: dict[int, _Form] = {}
        self._layouts: dict[tuple[tuple[Any, ...], ...], int] = {}
        self._layout_numbers = count(1)
        self._open: dict[int, tuple[InferRequest, _Form]] = {}

    def handlers(self) -> dict[int, Callable[..., None]]:
        """What takes items of the front end."""
        return {
            wire.FORM: self._learn,
            wire.FORGET: self._forget,
            wire.ASK: self._asked,
            wire.INFER: self._single,
        }

    def _learn(
        self,
        number: int,
        protocol: str,
        route: str,
        handle: int,
        inputs: Sequence[tuple[str, int, tuple[int, ...]]],
        outputs: tuple[str, ...],
        parameters: bytes,
        scheduling: tuple[Any, ...] | None,
    ) -> None:
        known = [(name, BY_NUMBER[datatype], shape) for name, datatype, shape in inputs]
        traffic = self._traffic[protocol]
        self._forms[number] = _Form(traffic, route, handle, outputs, parameters, scheduling, known)

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self._forms[number]

    def _asked(
        self, number: int, form_number: int, identifier: bytes, received_ns: int, *payloads: Payload
    ) -> None:
        form = self._forms[form_number]
        tensors = {}
        for (name, datatype, shape), payload in zip(form.inputs, payloads, strict=True):
            data = payload if type(payload) is bytes else self._link.bytes_of(payload)
            tensors[name] = Tensor(datatype, shape, data)
        self._begin(number, form, identifier.decode(), tensors, received_ns)

    def _single(
        self,
        number: int,
        protocol: str,
        route: str,
        handle: int,
        identifier: str,
        inputs: Sequence[SentTensor],
        outputs: tuple[str, ...],
        parameters: bytes,
        scheduling: tuple[Any, ...] | None,
        received_ns: int,
    ) -> None:
        bytes_of = self._link.bytes_of
        tensors = {
            name: Tensor(BY_NUMBER[datatype], shape, bytes_of(payload))
            for name, datatype, shape, payload in inputs
        }
        form = _Form(self._traffic[protocol], route, handle, outputs, parameters, scheduling)
        self._begin(number, form, identifier, tensors, received_ns)

    def _begin(
        self, number: int, form: _Form, identifier: str, tensors: dict[str, Tensor], received_ns: int
    ) -> None:
        """Run a request."""
        model = self._told.model(form.handle)
        if model is None:
            self._link.post(wire.NOT_HERE, number)
            return
        parameters = form.parameters
        request = InferRequest(
            model.name,
            tensors,
            partial(self._respond, number),
            model_version=model.version,
            id=identifier,
            outputs=form.outputs,
            parameters=parameters and parameters.copy(),
            received_ns=received_ns,
        )
        if form.scheduling is not None:
            (
                request.priority,
                request.timeout_us,
                request.sequence_id,
                request.sequence_start,
                request.sequence_end,
            ) = form.scheduling
        self._open[number] = request, form
        form.traffic.in_flight += 1
        if self._inflight is not None:
            try:
                self._inflight.admit(request)
            except HalimedeError as error:
                self._respond(number, InferResponse(error=error), True)
                return
        if self._logged:
            request.on_compute = partial(self._computed, number)
        if self._tracing.active:
            trace = self._tracing.begin(model.name, model.version, _NO_HEADERS)
            if trace is not None:
                now = self._told.engine.clock.now
                trace_client_request(request, trace, now, form.traced_as)
        model.infer(request)

    def _computed(self, number: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """What the execution of a request took."""
        if number in self._open:
            self._times[number] = input_ns, infer_ns, output_ns

    def _respond(self, number: int, response: InferResponse | None, _final: bool) -> None:
        """Have the front end write a response, the only one."""
        request, form = self._open.pop(number, _UNKNOWN)
        if request is None or form is None:
            return
        traffic = form.traffic
        traffic.in_flight -= 1
        if self._logged:
            took = self._times.pop(number, _NOT_COMPUTED)
            self._link.post(
                wire.TIMES, number, request.batch_size, request.queued_ns, request.started_ns, *took
            )
        if response is None:
            response = InferResponse(error=InternalError("the model ended the request without a response"))
        error = response.error
        if error is None:
            try:
                if form.is_shared and not (response.parameters or response.repeated):
                    self._answer(number, response.outputs)
                else:
                    self._post(number, response)
            except MemoryError as short:
                error = UnavailableError(f"no shared memory for the response: {short}")
            else:
                if not self._logged:
                    traffic.counts[form.succeeded] += 1
                return
        described = error_number(error), error.message, getattr(error, "retry_after_s", 0)
        self._link.post(wire.RESULT, number, (), b"", described)
        if not self._logged:
            traffic.counts[form.failed(error)] += 1

    def _answer(self, number: int, outputs: Mapping[str, Tensor]) -> None:
        """Send what came of a request that was asked by its form.

        Raises:
            MemoryError: there is no shared memory for it.
        """
        link = self._link
        described, payloads = [], []
        for name, tensor in outputs.items():
            data = tensor.data
            described.append((name, tensor.datatype.number, tensor.shape, len(data)))
            payloads.append(link.payload(data))
        key = tuple(described)
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
                link.post(wire.RELAYOUT)
            layout = self._layouts[key] = next(self._layout_numbers)
            link.post(wire.LAYOUT, layout, key)
        link.post(wire.ANSWER, number, layout, *payloads)

    def _post(self, number: int, response: InferResponse) -> None:
        """Send what came of any request.

        Raises:
            MemoryError: there is no shared memory for it.
        """
        link = self._link
        sent = [
            (name, tensor.datatype.number, tensor.shape, link.payload(tensor.data))
            for name, tensor in response.tensors()
        ]
        link.post(
            wire.RESULT, number, sent, orjson.dumps(response.parameters) if response.parameters else b"", None
        )

    def gone(self, number: int, status: int) -> bool:
        """The client of a request has gone; False if there is no such request."""
        request, form = self._open.pop(number, _UNKNOWN)
        if request is None or form is None:
            return False
        self._times.pop(number, None)
        form.traffic.in_flight -= 1
        if not self._logged:
            form.traffic.counts[form.gone(status)] += 1
        request.cancel()
        return True

    def close(self) -> None:
        """The front end is gone, and with it all of its clients."""
        for number in list(self._open):
            self.gone(number, _CANCELLED)


_NO_HEADERS: Final[Mapping[str, object]] = {}
"""Of a request that goes on with no other trace: the front end relays those that may."""

_NOT_COMPUTED: Final = (-1, -1, -1)
"""In place of what an execution took that never was, or of which nothing is told."""

_UNKNOWN: Final = (None, None)
"""In place of a request that is not under way."""
