"""Answers every call of the SageMaker front end."""

from halimede.core.errors import HalimedeError
from halimede.engine.engine import Engine
from halimede.frontends.http.answers import BackgroundAnswers, error_body, refuse_restricted, respond_error
from halimede.frontends.http.transport.exchange import Exchange, Handler
from halimede.frontends.sagemaker.invocations import Invocations
from halimede.frontends.sagemaker.models import Models, respond_bad_request
from halimede.frontends.sagemaker.routes import Call, find_route
from halimede.frontends.sagemaker.settings import PingMode, SagemakerSettings


def create_handler(engine: Engine, settings: SagemakerSettings | None = None) -> Handler:
    """What answers each request of an `HttpProtocol`."""
    return _Frontend(engine, settings or SagemakerSettings()).handle


class _Frontend:
    def __init__(self, engine: Engine, settings: SagemakerSettings) -> None:
        background = BackgroundAnswers()
        self._lifecycle = engine.lifecycle
        self._restrictions = settings.restrictions
        self._live_is_enough = settings.ping_mode is PingMode.LIVE
        self._invocations = Invocations(engine, settings, background)
        self._models = Models(engine, settings, background)

    def handle(self, exchange: Exchange) -> None:
        """Answer, now or later."""
        route = find_route(exchange.path)
        call = route.calls.get(exchange.method)
        if call is None:
            exchange.respond(route.other, (error_body("Method Not Allowed"),) if route.other == 405 else ())
            return
        exchange.route = call.label
        if self._restrictions and refuse_restricted(exchange, self._restrictions, call.category):
            return
        try:
            self._serve(call, exchange, route.name)
        except HalimedeError as error:
            (respond_error if call is Call.INVOCATIONS else respond_bad_request)(exchange, error)

    def _serve(self, call: Call, exchange: Exchange, name: str) -> None:
        if call is Call.INVOCATIONS:
            self._invocations.invoke(exchange)
        elif call is Call.INVOKE:
            self._models.invoke(exchange, name)
        elif call is Call.PING:
            self._ping(exchange)
        elif call is Call.LOAD:
            self._models.load(exchange)
        elif call is Call.UNLOAD:
            self._models.unload(exchange, name)
        elif call is Call.GET:
            self._models.get(exchange, name)
        else:
            self._models.list(exchange)

    def _ping(self, exchange: Exchange) -> None:
        lifecycle = self._lifecycle
        live = lifecycle.live and not (lifecycle.leaving or lifecycle.stopping)
        exchange.respond(200 if (live if self._live_is_enough else lifecycle.ready) else 400)
