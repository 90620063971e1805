"""``/models``: models that the platform loads, lists, invokes and unloads, each under a key of its choosing."""

import logging
from collections.abc import Iterable
from typing import Final

import orjson

from halimede.codec.sagemaker_media_type import json_length, label
from halimede.config.ensembles import needs_of
from halimede.core.errors import (
    AlreadyExistsError,
    Code,
    HalimedeError,
    NotFoundError,
    NotLoadedError,
)
from halimede.core.out_of_memory import is_out_of_memory, lacks_memory
from halimede.engine.engine import Engine
from halimede.engine.lifecycle.hosted_models import HostedModel
from halimede.frontends.http.answers import BackgroundAnswers, error_body
from halimede.frontends.http.dialect import Dialect
from halimede.frontends.http.inference import Inference
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.sagemaker.demand import load_and_serve
from halimede.frontends.sagemaker.load_request import LoadRequest, read_load_request
from halimede.frontends.sagemaker.paging import describe, page
from halimede.frontends.sagemaker.routes import find_route
from halimede.frontends.sagemaker.settings import SagemakerSettings
from halimede.frontends.sagemaker.text_calls import TextCalls

logger = logging.getLogger("halimede")

_NO_MEMORY: Final = 507
"""The status upon which the platform unloads other models."""

_OF_THE_MODEL: Final = frozenset((Code.UNKNOWN, Code.INTERNAL, Code.UNAVAILABLE))
"""Codes of what goes wrong while a model runs. Errors of a request are no shortage of memory, whatever they quote."""


class Models:
    """Serves the calls. Where they raise an error, the exchange is answered with `respond_bad_request`.

    Args:
        engine: what has the models.
        settings: what limits requests.
        background: answers that take their time.
    """

    def __init__(self, engine: Engine, settings: SagemakerSettings, background: BackgroundAnswers) -> None:
        self._engine = engine
        self._hosted = engine.hosted
        self._max_input_size = settings.max_input_size
        self._background = background
        dialect = Dialect(json_length, label, compression=False, respond_error=self._respond_invoke_error)
        infer = Inference.of(engine, settings, dialect).infer
        self._serve = TextCalls(engine, settings, background, self._respond_invoke_error, infer).serve

    def list(self, exchange: Exchange) -> None:
        """Answer with the loaded models, or with a page of them.

        Raises:
            InvalidArgumentError: the page is not described as it should be.
        """
        exchange.respond(200, (orjson.dumps(page(self._hosted.list(), exchange.query)),))

    def get(self, exchange: Exchange, key: str) -> None:
        """Answer with one model."""
        hosted = self._find(exchange, key)
        if hosted is not None:
            exchange.respond(200, (orjson.dumps(describe(hosted)),))

    def load(self, exchange: Exchange) -> None:
        """Load a model, then answer.

        Raises:
            InvalidArgumentError: the request is not what the contract describes.
        """
        request = read_load_request(exchange.body, exchange.headers, self._max_input_size)
        logger.info("Loading SageMaker TargetModel: %s", request.alias or request.key)
        self._background.answer(exchange, self._load(exchange, request), respond_bad_request)

    async def _load(self, exchange: Exchange, request: LoadRequest) -> None:
        try:
            await self._hosted.load(*request)
        except AlreadyExistsError as error:
            exchange.respond(409, (error_body(error.message),))
        except HalimedeError as error:
            if not _no_memory(error, request):
                raise
            exchange.respond(_NO_MEMORY, (error_body(error.message),))
        else:
            exchange.respond(200)

    def unload(self, exchange: Exchange, key: str) -> None:
        """Unload a model, and answer when everything that it held is given back."""
        self._background.answer(exchange, self._unload(exchange, key), respond_bad_request)

    async def _unload(self, exchange: Exchange, key: str) -> None:
        try:
            await self._hosted.unload(key)
        except NotFoundError:
            exchange.respond(404)
        else:
            exchange.respond(200)

    def invoke(self, exchange: Exchange, key: str) -> None:
        """Answer with what the model says, or with its error."""
        hosted = self._find(exchange, key)
        if hosted is None:
            return
        try:
            self._serve(exchange, hosted.name)
        except NotLoadedError:
            work = load_and_serve(self._engine, exchange, hosted.name, self._serve)
            self._background.answer(exchange, work, self._respond_invoke_error)
        except HalimedeError as error:
            self._respond_invoke_error(exchange, error)

    def _find(self, exchange: Exchange, key: str) -> HostedModel | None:
        """The loaded model under a key; if there is none, None, and the exchange is answered with that."""
        try:
            return self._hosted.get(key)
        except NotFoundError:
            exchange.respond(404)
            return None

    def _respond_invoke_error(self, exchange: Exchange, error: HalimedeError) -> None:
        """Answer an invocation with an error: 400 whatever it is, but for a shortage of memory."""
        no_memory = error.code in _OF_THE_MODEL and _no_memory(error, self._names(exchange))
        exchange.respond(_NO_MEMORY if no_memory else 400, (error_body(error.message),))

    def _names(self, exchange: Exchange) -> set[str]:
        """What the error of a model may quote: its names, and those of the models that it is made of."""
        key = find_route(exchange.path).name
        names = {key}
        try:
            hosted = self._hosted.get(key)
            names.update((hosted.name, hosted.alias, hosted.url))
            names.update(needs_of(self._engine.find(hosted.name).config))
        except HalimedeError:  # it has gone meanwhile
            pass
        return names


def _no_memory(error: HalimedeError, names: Iterable[str]) -> bool:
    """Whether the error tells of a shortage of memory; that it quotes one of the names says nothing."""
    return lacks_memory(error) or is_out_of_memory(error.message, names)


def respond_bad_request(exchange: Exchange, error: HalimedeError) -> None:
    """Answer with an error that the platform can do nothing about."""
    exchange.respond(400, (error_body(error.message),))
