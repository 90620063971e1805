"""Answers every call of the HTTP front end."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson

from halimede.codec.json_text import NestingError
from halimede.config.document import config_document
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import (
    HalimedeError,
    InvalidArgumentError,
    NotFoundError,
    NotLoadedError,
    UnsupportedError,
)
from halimede.engine.engine import Engine
from halimede.frontends import descriptions, trace_settings
from halimede.frontends.http.answers import (
    AnswerInSteps,
    BackgroundAnswers,
    answer_later,
    refuse_restricted,
    respond_error,
)
from halimede.frontends.http.codec.load_parameters import parameters_of, read_load_request
from halimede.frontends.http.codec.request import too_large
from halimede.frontends.http.codec.small_json import parse_small
from halimede.frontends.http.dialect import KSERVE, Dialect
from halimede.frontends.http.generate import Generate
from halimede.frontends.http.inference import Inference
from halimede.frontends.http.landing import Landing
from halimede.frontends.http.log_changes import read_log_changes
from halimede.frontends.http.on_demand import wait_for_model
from halimede.frontends.http.openapi import openapi
from halimede.frontends.http.profile import ProfileCall
from halimede.frontends.http.routes import Call, Route, find_route
from halimede.frontends.http.settings import HttpSettings
from halimede.frontends.http.shared_memory import SharedMemoryCalls
from halimede.frontends.http.trace_changes import read_trace_changes, trace_document
from halimede.frontends.http.transport.exchange import Exchange, Handler
from halimede.frontends.load_request import LARGE as LARGE_LOAD
from halimede.frontends.load_request import LoadRequest
from halimede.frontends.steps_of_work import in_steps

_EXITING: Final = (b'{"error":"Server exiting"}',)

_STATISTICS_A_STEP: Final = 40

_SMALL_CONFIG: Final = 2048
"""Bytes of a configuration whose JSON is made in a millisecond; that of larger ones is made by a thread."""


Answer = Callable[[Exchange, Route], None]
"""Answers a call, now or later."""


def create_handler(
    engine: Engine,
    settings: HttpSettings | None = None,
    dialect: Dialect = KSERVE,
    further: Mapping[Call, Answer] | None = None,
) -> Handler:
    """What answers each request of an `HttpProtocol`.

    Args:
        engine: what is served.
        settings: what the command line says of the protocol; the defaults for None.
        dialect: how inference differs from KServe.
        further: what answers the calls of the console; without it, their paths mean nothing.
    """
    return _Frontend(engine, settings or HttpSettings(), dialect, further or {}).handle


class _Frontend:
    def __init__(
        self, engine: Engine, settings: HttpSettings, dialect: Dialect, further: Mapping[Call, Answer]
    ) -> None:
        self._engine = engine
        self._lifecycle = engine.lifecycle
        self._settings = settings
        self._restrictions = settings.restrictions
        self._infer = Inference.of(engine, settings, dialect).infer
        generate = Generate(
            engine,
            settings.max_input_size,
            settings.forward_pattern,
            decoders=settings.decoders,
            max_output_size=settings.max_output_size,
        )
        self._answer_in_background = BackgroundAnswers().answer
        self._take_profile = ProfileCall(self._settings.sampler).answer
        self._calls: dict[Call, Answer] = {
            Call.SERVER_METADATA: self._server_metadata,
            Call.SERVER_LIVE: self._server_live,
            Call.SERVER_READY: self._server_ready,
            Call.MODELS: self._models,
            Call.MODEL_METADATA: self._model_metadata,
            Call.MODEL_READY: self._model_ready,
            Call.MODEL_CONFIG: self._model_config,
            Call.MODEL_STATISTICS: self._statistics,
            Call.ALL_STATISTICS: self._statistics,
            Call.INDEX: self._index,
            Call.LOAD: self._load,
            Call.UNLOAD: self._unload,
            Call.LOGGING: self._logging,
            Call.TRACE: self._trace,
            Call.PROFILE: self._profile,
            Call.LANDING: Landing(console=Call.CONSOLE in further).answer,
            Call.OPENAPI: self._openapi,
            Call.GENERATE: generate.generate,
            Call.GENERATE_STREAM: generate.generate_stream,
            **SharedMemoryCalls(settings.regions, settings.max_input_size).calls,
            **further,
        }

    def handle(self, exchange: Exchange) -> None:
        """Answer, now or later."""
        route = find_route(exchange.path)
        if route is None:
            exchange.respond(404, (b'{"error":"Not Found"}',))
            return
        call = route.call
        exchange.route = call.label
        if self._restrictions and refuse_restricted(exchange, self._restrictions, call.category):
            return
        if exchange.method not in call.methods:
            exchange.respond(405, (b'{"error":"Method Not Allowed"}',))
            return
        try:
            if call is Call.INFER:
                self._infer(exchange, route.model, route.version)
            elif (answer := self._calls.get(call)) is not None:
                answer(exchange, route)
            else:
                exchange.route = ""
                exchange.respond(404, (b'{"error":"Not Found"}',))
        except NotLoadedError:
            self._answer_in_background(exchange, self._answer_when_loaded(exchange, route))
        except HalimedeError as error:
            respond_error(exchange, error)

    async def _answer_when_loaded(self, exchange: Exchange, route: Route) -> None:
        """Wait for the model, then answer."""
        if not await wait_for_model(self._engine, exchange, route.model, route.version):
            return
        if route.call is Call.INFER:
            self._infer(exchange, route.model, route.version)
        else:
            self._calls[route.call](exchange, route)

    # health

    def _server_live(self, exchange: Exchange, _route: Route) -> None:
        lifecycle = self._lifecycle
        self._respond_health(exchange, lifecycle.live, exiting=lifecycle.stopping)

    def _server_ready(self, exchange: Exchange, _route: Route) -> None:
        lifecycle = self._lifecycle
        self._respond_health(exchange, lifecycle.ready, exiting=lifecycle.leaving or lifecycle.stopping)

    def _respond_health(self, exchange: Exchange, healthy: bool, *, exiting: bool) -> None:
        if exiting:
            exchange.respond(503, _EXITING)
        else:
            exchange.respond(200 if healthy else 400)

    def _model_ready(self, exchange: Exchange, route: Route) -> None:
        self._answer_in_background(exchange, self._ask_model(exchange, route))

    async def _ask_model(self, exchange: Exchange, route: Route) -> None:
        try:
            ready = await self._lifecycle.model_ready(route.model, route.version)
        except NotLoadedError:
            raise
        except NotFoundError:
            ready = False
        if not ready:
            raise InvalidArgumentError("Model version not ready")
        exchange.respond(200)

    # descriptions

    def _server_metadata(self, exchange: Exchange, _route: Route) -> None:
        _respond_json(exchange, descriptions.server_metadata(self._settings.server_id))

    def _openapi(self, exchange: Exchange, _route: Route) -> None:
        _respond_json(exchange, openapi({*self._calls, Call.INFER}, self._settings.further_paths))

    def _models(self, exchange: Exchange, _route: Route) -> None:
        _respond_json(exchange, {"models": descriptions.ready_models(self._lifecycle)})

    def _model_metadata(self, exchange: Exchange, route: Route) -> None:
        _respond_json(exchange, descriptions.model_metadata(self._lifecycle, route.model, route.version))

    def _model_config(self, exchange: Exchange, route: Route) -> None:
        config = self._engine.find(route.model, route.version).config
        if config.ByteSize() <= _SMALL_CONFIG:
            exchange.respond(200, _config_body(config))
            return
        written = asyncio.get_running_loop().run_in_executor(None, _config_body, config)
        answer_later(exchange, written, partial(exchange.respond, 200))

    def _statistics(self, exchange: Exchange, route: Route) -> None:
        models = descriptions.models_for_statistics(self._lifecycle, route.model, route.version)

        def answer(statistics: list[dict[str, Any]]) -> None:
            _respond_json(exchange, {"model_stats": statistics})

        steps = in_steps(models, descriptions.statistics, _STATISTICS_A_STEP)
        AnswerInSteps(exchange, steps, answer).take()

    # repository

    def _index(self, exchange: Exchange, _route: Route) -> None:
        if self._lifecycle.stopping:
            exchange.respond(503, _EXITING)
            return
        ready = self._read_ready(exchange)
        self._answer_in_background(exchange, self._look_up_index(exchange, ready))

    def _read_ready(self, exchange: Exchange) -> bool:
        msg = "Invalid value for 'ready': expected a boolean"
        try:
            ready = self._document(exchange).get("ready", False)
        except NestingError:  # of 'ready', the only member that there is
            raise InvalidArgumentError(msg) from None
        if not isinstance(ready, bool):
            raise InvalidArgumentError(msg)
        return ready

    async def _look_up_index(self, exchange: Exchange, ready: bool) -> None:
        await self._lifecycle.refresh()
        rows = []
        for row in self._lifecycle.index(ready):
            members = {"version": row.version, "state": row.state, "reason": row.reason}
            rows.append({"name": row.name, **{key: value for key, value in members.items() if value}})
        _respond_json(exchange, rows)

    def _load(self, exchange: Exchange, route: Route) -> None:
        _refuse_repository(route)
        if len(exchange.body) > self._settings.max_input_size:
            raise too_large(len(exchange.body), self._settings.max_input_size)

        def load(request: LoadRequest) -> None:
            exchange.on_disconnect = None  # what has begun is seen through
            request.check(self._settings.code_upload, exchange.peer)
            self._answer_in_background(exchange, self._load_model(exchange, route.model, request))

        if len(exchange.body) > LARGE_LOAD:
            answer_later(exchange, self._settings.decoders.decode(read_load_request, exchange.body), load)
        else:
            load(read_load_request(exchange.body))

    async def _load_model(self, exchange: Exchange, name: str, request: LoadRequest) -> None:
        await self._lifecycle.load(name, request.parameters)
        exchange.respond(200)

    def _unload(self, exchange: Exchange, route: Route) -> None:
        _refuse_repository(route)
        document = self._json(exchange) if exchange.body else {}
        dependents = parameters_of(document).get("unload_dependents", False)
        if not isinstance(dependents, bool):
            raise InvalidArgumentError("Invalid value for 'unload_dependents': expected a boolean")
        self._answer_in_background(exchange, self._unload_model(exchange, route.model, dependents))

    async def _unload_model(self, exchange: Exchange, name: str, dependents: bool) -> None:
        await self._lifecycle.unload(name, dependents)
        exchange.respond(200)

    # logging, tracing and profiles

    def _logging(self, exchange: Exchange, _route: Route) -> None:
        log = self._settings.log
        if exchange.method == "POST":
            log.change(read_log_changes(self._json(exchange)))
        _respond_json(exchange, log.document())

    def _trace(self, exchange: Exchange, route: Route) -> None:
        if exchange.method == "POST":
            changes = read_trace_changes(self._json(exchange))
            trace_settings.change(self._engine, route.model, changes)
        exchange.respond(200, (trace_document(trace_settings.document(self._engine, route.model)),))

    def _profile(self, exchange: Exchange, _route: Route) -> None:
        self._answer_in_background(exchange, self._take_profile(exchange, self._document(exchange)))

    # everything else

    def _document(self, exchange: Exchange) -> dict[str, Any]:
        """The JSON object that the body is, {} for no body or what is no object."""
        document = self._json(exchange) if exchange.body else {}
        return document if isinstance(document, dict) else {}

    def _json(self, exchange: Exchange) -> Any:
        """What the body says."""
        return parse_small(exchange.body, self._settings.max_input_size)


def _config_body(config: ModelConfig) -> tuple[bytes]:
    return (orjson.dumps(config_document(config)),)


def _respond_json(exchange: Exchange, document: Any) -> None:
    exchange.respond(200, (orjson.dumps(document),))


def _refuse_repository(route: Route) -> None:
    if route.repository:
        raise UnsupportedError("'repository_name' specification is not supported")
