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
        engine.tracing.on_change.append(self._look_soon)

    def rows(self) -> list[ModelRow]:
        """All that they know."""
        return list(self._rows.values())

    def model(self, handle: int) -> ServedModel | None:
        """The model that they mean; None if it is not the one that serves such requests any more."""
        model = self._models.get(handle)
        if model is None or self.engine.tracing.active:
            return None
        try:
            current = self._find(model.name, model.version)
        except HalimedeError:
            return None
        return model if current is model else None

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
        latest = dict(sorted(served))  # the last of a name stays
        rows = []
        for key, model in served.items():
            is_latest = latest[key[0]] == key[1]
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
        if self.engine.tracing.active or self.engine.settings.model_namespacing:
            return {}
        return {
            (model.name, model.version): model
            for model in self.engine.lifecycle.loaded_models()
            if not model.signature.decoupled
        }


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

    def failed(self, error: HalimedeError) -> tuple[str, int]:
        """What a response with an error is counted as."""
        code = error.code
        return self.route, code.grpc_status if self.traffic.protocol == _GRPC else code.http_status

    def gone(self, status: int) -> tuple[str, int]:
        """What a request is counted as whose client has gone; `status` if it came over gRPC."""
        return self.route, status if self.traffic.protocol == _GRPC else CLIENT_GONE


class RelayedInferences:
    """Those of one front end that are under way. Lives on the event loop."""

    def __init__(self, link: Link, told: Told, traffic: Mapping[str, RelayedTraffic]) -> None:
        """None yet.

        Args:
            link: the front end.
            told: what it knows of the models.
            traffic: protocol → what passes through its endpoint.
        """
        self._link = link
        self._told = told
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
        model.infer(request)

    def _respond(self, number: int, response: InferResponse | None, _final: bool) -> None:
        """Have the front end write a response, the only one."""
        _, form = self._open.pop(number, _UNKNOWN)
        if form is None:
            return
        form.traffic.in_flight -= 1
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
                form.traffic.counts[form.succeeded] += 1
                return
        described = error_number(error), error.message, getattr(error, "retry_after_s", 0)
        self._link.post(wire.RESULT, number, (), b"", described)
        form.traffic.counts[form.failed(error)] += 1

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
        form.traffic.in_flight -= 1
        form.traffic.counts[form.gone(status)] += 1
        request.cancel()
        return True

    def close(self) -> None:
        """The front end is gone, and with it all of its clients."""
        for number in list(self._open):
            self.gone(number, _CANCELLED)


_UNKNOWN: Final = (None, None)
"""In place of a request that is not under way."""
