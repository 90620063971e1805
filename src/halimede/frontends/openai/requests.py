"""Requests of the engine that one exchange waits for."""

from collections.abc import Callable

from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest, InferResponse, ParameterValue
from halimede.core.tensors import Tensor
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.http.traced import trace_if_sampled
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.restrictions import HeaderPattern, forwarded_headers

Take = Callable[[int, InferResponse | None, bool], None]
"""``take(number, response, final)``: a response to the request of that number, as of `Respond`."""


class Requests:
    """Those of one exchange. They are cancelled when its client goes.

    Args:
        engine: what runs them.
        exchange: what they are for.
        model: runs them.
        take: gets the responses.
    """

    __slots__ = ("_engine", "_exchange", "_model", "_open", "_received", "_take")

    def __init__(
        self, engine: Engine, exchange: Exchange, model: ServedModel, received_ns: int, take: Take
    ) -> None:
        self._engine = engine
        self._exchange = exchange
        self._model = model
        self._take = take
        self._received = received_ns
        self._open: dict[int, InferRequest] = {}

    def run(self, identifier: str, inputs: list[dict[str, Tensor]], pattern: HeaderPattern | None) -> None:
        """Have the engine run them all.

        Args:
            identifier: of each.
            inputs: of each.
            pattern: finds the headers that become parameters.

        Raises:
            HalimedeError: one cannot be run; those before it are cancelled.
        """
        parameters: dict[str, ParameterValue] = {}
        exchange, model, engine = self._exchange, self._model, self._engine
        if pattern is not None:
            parameters |= forwarded_headers(exchange.sent_headers, pattern)
        for number, tensors in enumerate(inputs):
            request = InferRequest(
                model.name,
                tensors,
                self._respond(number),
                model_version=model.version,
                id=identifier,
                parameters=dict(parameters) or None,
                received_ns=self._received,
            )
            try:
                if engine.inflight is not None:
                    engine.inflight.admit(request)
            except HalimedeError:
                self.cancel()
                raise
            self._open[number] = request
            if number == 0:
                exchange.begin(request)
            exchange.on_disconnect = self.cancel
            if engine.tracing.active:
                trace_if_sampled(engine.tracing, exchange, request, engine.clock.now)
            model.infer(request)
            if exchange.closed:  # a failure has answered it
                self.cancel()
                return

    def _respond(self, number: int) -> Callable[[InferResponse | None, bool], None]:
        def respond(response: InferResponse | None, final: bool) -> None:
            if final:
                self._open.pop(number, None)
            self._take(number, response, final)

        return respond

    def cancel(self, number: int = -1) -> None:
        """Cancel one of them, or all."""
        chosen = (
            list(self._open.values()) if number < 0 else [self._open[number]] if number in self._open else []
        )
        for request in chosen:
            request.cancel()

    def congest(self) -> None:
        """The client is behind with what was sent: models should wait."""
        for request in list(self._open.values()):
            request.congest()

    def drain(self) -> None:
        """It takes more."""
        for request in list(self._open.values()):
            request.drain()
