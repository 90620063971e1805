"""Answers every call of the Vertex AI front end: each is a call of KServe's under another name."""

from typing import Final
from urllib.parse import quote

from halimede.core.errors import InvalidArgumentError
from halimede.engine.engine import Engine
from halimede.frontends.http.answers import error_body, respond_error
from halimede.frontends.http.default_model import DefaultModel
from halimede.frontends.http.routes import Call, find_route
from halimede.frontends.http.routes import group_of as kserve_group_of
from halimede.frontends.http.transport.exchange import Exchange, Handler
from halimede.frontends.tokens import METRICS
from halimede.frontends.vertex.settings import DEFAULT_MODEL_FLAG, VertexSettings
from halimede.http1.head import Head

REDIRECT: Final = "x-vertex-ai-triton-redirect"
"""The header of a prediction that names the call which is meant, without the slash in front."""

_HEALTH: Final = "/v2/health/ready"
_METRICS: Final = "metrics"
_NOT_REDIRECTED: Final = frozenset((Call.GENERATE, Call.GENERATE_STREAM, Call.TRACE, Call.LOGGING))


def group_of(settings: VertexSettings, head: Head) -> str:
    """The category of the call that a request means, "" for none."""
    if head.path == settings.health_route:
        return "health"
    redirect = head.headers.get(REDIRECT)
    if redirect == _METRICS:
        return METRICS
    return kserve_group_of(f"/{redirect}") if redirect else "inference"


def create_handler(
    engine: Engine, settings: VertexSettings, kserve: Handler, metrics: Handler | None
) -> Handler:
    """What answers each request of an `HttpProtocol`.

    Args:
        engine: what has the models.
        settings: the paths, and the model of predictions.
        kserve: answers the calls that are meant.
        metrics: answers with the metrics; None if they are not served.
    """
    return _Frontend(engine, settings, kserve, metrics).handle


class _Frontend:
    def __init__(
        self, engine: Engine, settings: VertexSettings, kserve: Handler, metrics: Handler | None
    ) -> None:
        self._settings = settings
        self._kserve = kserve
        self._metrics = metrics
        self._model = DefaultModel(engine, settings.default_model, DEFAULT_MODEL_FLAG, settings.predict_route)

    def handle(self, exchange: Exchange) -> None:
        """Answer, now or later."""
        if exchange.path == self._settings.predict_route:
            if exchange.method == "POST":
                self._predict(exchange, exchange.headers.get(REDIRECT))
                return
        elif exchange.path != self._settings.health_route:
            exchange.respond(400)
            return
        elif exchange.method in ("GET", "HEAD"):
            exchange.path = _HEALTH
            self._kserve(exchange)
            return
        exchange.respond(405, (error_body("Method Not Allowed"),))

    def _predict(self, exchange: Exchange, redirect: str | None) -> None:
        if not redirect:
            try:
                exchange.path = f"/v2/models/{quote(self._model.find(), safe='')}/infer"
            except InvalidArgumentError as error:
                respond_error(exchange, error)
                return
            self._kserve(exchange)
        elif redirect == _METRICS and self._metrics is not None:
            exchange.path, exchange.method = f"/{_METRICS}", "GET"
            self._metrics(exchange)
        else:
            self._redirect(exchange, f"/{redirect}")

    def _redirect(self, exchange: Exchange, path: str) -> None:
        """Answer as the call of that path would, whose method nobody can choose."""
        route = find_route(path)
        if route is None or route.call in _NOT_REDIRECTED:
            exchange.respond(400)
            return
        exchange.path, exchange.method = path, route.call.methods[0]
        self._kserve(exchange)
