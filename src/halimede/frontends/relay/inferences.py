"""Requests that a front end has read, in the engine's process: they run here, and the responses are written there."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from halimede.core.datatypes import BY_NUMBER
from halimede.core.errors import HalimedeError, InternalError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.relay import wire
from halimede.frontends.relay.link import Link
from halimede.frontends.relay.remote_models import ModelRow, SentTensor
from halimede.frontends.relay.traffic import RelayedTraffic
from halimede.frontends.traffic import CLIENT_GONE
from halimede.workers.error_numbers import error_number

_GRPC: Final = "grpc"
_CANCELLED: Final = 1


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
            current = self.engine.find(model.name, model.version)
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
        self._open: dict[int, _Inference] = {}

    def handlers(self) -> dict[int, Callable[..., None]]:
        """What takes items of the front end."""
        return {wire.INFER: self._begin}

    def _begin(
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
        model = self._told.model(handle)
        if model is None:
            self._link.post(wire.NOT_HERE, number)
            return
        inference = _Inference(self, number, self._traffic[protocol], route)
        request = InferRequest(
            model.name,
            tensors,
            inference.respond,
            model_version=model.version,
            id=identifier,
            outputs=outputs,
            parameters=orjson.loads(parameters) if parameters else None,
            received_ns=received_ns,
        )
        if scheduling is not None:
            (
                request.priority,
                request.timeout_us,
                request.sequence_id,
                request.sequence_start,
                request.sequence_end,
            ) = scheduling
        inference.request = request
        self._open[number] = inference
        inference.traffic.in_flight += 1
        if self._inflight is not None:
            try:
                self._inflight.admit(request)
            except HalimedeError as error:
                inference.respond(InferResponse(error=error), True)
                return
        model.infer(request)

    def answer(self, inference: "_Inference", response: InferResponse | None) -> None:
        """Have the front end write a response, the only one."""
        number = inference.number
        if self._open.pop(number, None) is None:
            return
        link = self._link
        traffic = inference.traffic
        traffic.in_flight -= 1
        if response is None:
            response = InferResponse(error=InternalError("the model ended the request without a response"))
        error = response.error
        sent: list[tuple[Any, ...]] = []
        if error is None:
            try:
                sent = [
                    (name, tensor.datatype.number, tensor.shape, link.payload(tensor.data))
                    for name, tensor in response.tensors()
                ]
            except MemoryError as short:
                error = UnavailableError(f"no shared memory for the response: {short}")
        if error is None:
            custom = orjson.dumps(response.parameters) if response.parameters else b""
            link.post(wire.RESULT, number, sent, custom, None)
            status = 0 if traffic.protocol == _GRPC else 200
        else:
            retry_after_s = getattr(error, "retry_after_s", 0)
            link.post(wire.RESULT, number, (), b"", (error_number(error), error.message, retry_after_s))
            status = error.code.grpc_status if traffic.protocol == _GRPC else error.code.http_status
        traffic.counts[inference.route, status] += 1

    def gone(self, number: int, status: int) -> bool:
        """The client of a request has gone; False if there is no such request."""
        inference = self._open.pop(number, None)
        if inference is None:
            return False
        traffic = inference.traffic
        traffic.in_flight -= 1
        traffic.counts[inference.route, status if traffic.protocol == _GRPC else CLIENT_GONE] += 1
        request, inference.request = inference.request, None
        if request is not None:
            request.cancel()
        return True

    def close(self) -> None:
        """The front end is gone, and with it all of its clients."""
        for number in list(self._open):
            self.gone(number, _CANCELLED)


class _Inference:
    """One that is under way."""

    __slots__ = ("number", "owner", "request", "route", "traffic")

    def __init__(self, owner: RelayedInferences, number: int, traffic: RelayedTraffic, route: str) -> None:
        self.owner = owner
        self.number = number
        self.traffic = traffic
        self.route = route
        self.request: InferRequest | None = None

    def respond(self, response: InferResponse | None, _final: bool) -> None:
        """Take the only response."""
        self.request = None  # which holds this
        self.owner.answer(self, response)
