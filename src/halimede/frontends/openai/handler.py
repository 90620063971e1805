"""Answers every call of OpenAI's API, and leaves all other paths to the HTTP front end."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import orjson

import halimede
from halimede.codec.json_sizes import LARGE
from halimede.core.errors import HalimedeError, InvalidArgumentError, NotFoundError, NotLoadedError
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.http.answers import BackgroundAnswers, answer_later
from halimede.frontends.http.on_demand import wait_for_model
from halimede.frontends.http.transport.exchange import Exchange, Handler
from halimede.frontends.openai import fields
from halimede.frontends.openai.embeddings import Embeddings
from halimede.frontends.openai.errors import refuse, respond_error
from halimede.frontends.openai.fields import IgnoredFields, read_object
from halimede.frontends.openai.generation import Generation
from halimede.frontends.openai.known_models import KnownModel, KnownModels
from halimede.frontends.openai.openapi import DESCRIBED
from halimede.frontends.openai.profile import Task
from halimede.frontends.openai.reading import read_on_loop, read_on_thread
from halimede.frontends.openai.replies import ChoiceReplies, Replies
from halimede.frontends.openai.responses.reply import ResponseReply
from halimede.frontends.openai.responses.request import read_response
from halimede.frontends.openai.routes import PREFIX, Call, Route, find_route, is_of_api
from halimede.frontends.openai.settings import OpenaiSettings
from halimede.frontends.openai.template_limits import USUAL, TemplateLimits
from halimede.frontends.openai.text_request import TextRequest, read_chat, read_completion
from halimede.frontends.openai.tokens import TOKEN_THREADS, detokenize, tokenize

_TASKS = {
    Call.CHAT_COMPLETIONS: Task.CHAT,
    Call.COMPLETIONS: Task.COMPLETIONS,
    Call.RESPONSES: Task.CHAT,
    Call.EMBEDDINGS: Task.EMBEDDINGS,
    Call.TOKENIZE: None,
    Call.DETOKENIZE: None,
}
"""Call → what a model has to serve for it; None for anything."""

_ANSWERS = {Call.TOKENIZE: tokenize, Call.DETOKENIZE: detokenize}
"""Calls that are answered without the model."""

_OWNER = "halimede"


def create_handler(engine: Engine, settings: OpenaiSettings, otherwise: Handler) -> Handler:
    """What answers each request of an `HttpProtocol`; `otherwise` gets those of other paths."""
    return _Frontend(engine, settings, otherwise).handle


class _Frontend:
    def __init__(self, engine: Engine, settings: OpenaiSettings, otherwise: Handler) -> None:
        self._engine = engine
        self._settings = settings
        self._otherwise = otherwise
        self._models = KnownModels(engine)
        self._ignored = IgnoredFields()
        self._background = BackgroundAnswers()
        self._began = int(time.time())

    def handle(self, exchange: Exchange) -> None:
        """Answer, now or later."""
        if not is_of_api(exchange.path):
            self._otherwise(exchange)
            return
        route = find_route(exchange.path)
        if route is None:
            refuse(exchange, 404, _unknown(exchange.path), "unknown_url")
            return
        call = route.call
        exchange.route = call.label
        if self._settings.restrictions and self._refuse_restricted(exchange, call):
            return
        if exchange.method != call.method and (call, exchange.method) != (Call.HEALTH, "HEAD"):
            refuse(exchange, 405, f"the method of this path is {call.method}", "method_not_supported")
            return
        try:
            if call is Call.MODELS:
                self._list(exchange)
            elif call is Call.MODEL:
                self._model(exchange, route)
            elif call is Call.HEALTH:
                exchange.respond(200 if self._engine.lifecycle.ready else 503)
            elif call is Call.VERSION:
                exchange.respond(200, (orjson.dumps({"version": halimede.__version__}),))
            else:
                self._infer(exchange, call)
        except HalimedeError as error:
            respond_error(exchange, error)

    def _refuse_restricted(self, exchange: Exchange, call: Call) -> bool:
        restriction = self._settings.restrictions.get(call.category)
        if restriction is None or restriction.opened_by(exchange.headers.get(restriction.header)):
            return False
        refuse(exchange, 403, f"This API is restricted, expecting header '{restriction.name}'")
        return True

    def _list(self, exchange: Exchange) -> None:
        def respond(described: list[dict[str, Any]]) -> None:
            exchange.respond(200, (orjson.dumps({"object": "list", "data": described}),))

        self._describe(exchange, self._models.listed(), respond)

    def _model(self, exchange: Exchange, route: Route) -> None:
        def respond(described: list[dict[str, Any]]) -> None:
            exchange.respond(200, (orjson.dumps(described[0]),))

        found = [model for model in self._models.listed() if model.name == route.model]
        if not found:
            raise NotFoundError(f"there is no model '{route.model}' that OpenAI's API can use")
        self._describe(exchange, found, respond)

    def _describe(
        self,
        exchange: Exchange,
        models: list[ServedModel],
        respond: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        """Respond with what is said of models, now or once their files are read."""

        async def describe() -> None:
            described = []
            for model in models:
                one = {"id": model.name, "object": "model", "created": self._began, "owned_by": _OWNER}
                context = await self._models.read_context(model)
                described.append(one if context is None else {**one, "max_model_len": context})
            if not exchange.closed:
                respond(described)

        self._background.answer(exchange, describe(), respond_error)

    def _infer(self, exchange: Exchange, call: Call) -> None:
        received = self._engine.clock.now()
        encoding = exchange.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise InvalidArgumentError("Unsupported content-encoding, only 'identity' is supported.")
        most = self._settings.max_input_size
        if not LARGE < len(exchange.body) <= most:
            self._take(exchange, call, read_object(exchange.body, most), received)
            return
        answer_later(
            exchange,
            self._settings.decoders.decode(read_object, exchange.body, most),
            lambda document: self._take(exchange, call, document, received),
            respond_error,
        )

    def _take(self, exchange: Exchange, call: Call, document: dict[str, Any], received: int) -> None:
        """Run what the JSON of a call says.

        Raises:
            HalimedeError: it is answered with this.
        """
        name = fields.text(document, "model")
        try:
            known = self._models.find(name, _TASKS[call])
        except NotLoadedError:
            known = None
        if known is not None:
            self._run(exchange, call, document, known, received)
        else:
            self._background.answer(
                exchange, self._run_later(exchange, call, document, name, received), respond_error
            )

    async def _run_later(
        self, exchange: Exchange, call: Call, document: dict[str, Any], name: str, received: int
    ) -> None:
        """Have the model loaded if it has to be, and its files read; then run the request."""
        try:
            known = await self._models.look(name, _TASKS[call])
        except NotLoadedError:
            if not await wait_for_model(self._engine, exchange, name, -1):
                return
            known = await self._models.look(name, _TASKS[call])
        if not exchange.closed:
            self._run(exchange, call, document, known, received)

    def _run(
        self, exchange: Exchange, call: Call, document: dict[str, Any], known: KnownModel, received: int
    ) -> None:
        pattern = self._settings.forward_pattern
        if call is Call.EMBEDDINGS:
            Embeddings(self._engine, exchange, known, document, self._ignored, received).start(pattern)
            return
        if call in _ANSWERS:
            self._answer(exchange, call, document, known)
            return

        def read(limits: TemplateLimits) -> tuple[TextRequest, Replies]:
            return self._read(call, document, known, limits)

        def start(asked: TextRequest, replies: Replies) -> None:
            Generation(self._engine, exchange, known, asked, replies, received).start(pattern)

        async def run_later() -> None:
            asked = await read_on_thread(read)
            if not exchange.closed:
                start(*asked)

        asked = read_on_loop(read, len(exchange.body), known)
        if asked is None:
            self._background.answer(exchange, run_later(), respond_error)
        else:
            start(*asked)

    def _answer(self, exchange: Exchange, call: Call, document: dict[str, Any], known: KnownModel) -> None:
        """Answer without the model, now or from a thread."""

        def make(limits: TemplateLimits) -> bytes:
            return _ANSWERS[call](document, known, self._ignored, limits)

        def respond(body: bytes) -> None:
            exchange.respond(200, (body,))

        body = read_on_loop(make, len(exchange.body), known)
        if body is None:
            later = asyncio.get_running_loop().run_in_executor(TOKEN_THREADS, make, USUAL)
            answer_later(exchange, later, respond, respond_error)
        else:
            respond(body)

    def _read(
        self, call: Call, document: dict[str, Any], known: KnownModel, limits: TemplateLimits
    ) -> tuple[TextRequest, Replies]:
        """What a request asks for, and the replies to it."""
        if call is Call.RESPONSES:
            wanted = read_response(document, known, self._ignored, limits)
            return wanted.chat, ResponseReply(known.model.name, wanted.repeated, wanted.chat.id)
        if call is Call.CHAT_COMPLETIONS:
            asked = read_chat(document, known, self._ignored, limits)
        else:
            asked = read_completion(document, known, self._ignored)
        return asked, ChoiceReplies(known.model.name, asked)


def _unknown(path: str) -> str:
    *others, last = (
        each for described in DESCRIBED.values() for each in described.paths if each.startswith(PREFIX)
    )
    served = f"served are {', '.join(others)} and {last}"
    if path.startswith("/v1/responses/"):
        return f"responses are not stored, so that only POST /v1/responses is served; {served}"
    return f"there is no such path; {served}"
