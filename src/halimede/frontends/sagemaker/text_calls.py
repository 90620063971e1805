"""Invocations of models that write or embed text, in the bodies that containers for language models accept.

A member of the JSON says what is asked for: ``messages`` chat, ``prompt`` completions, ``input`` embeddings, all three
as in OpenAI's API; a text in ``inputs`` is a prompt, as in LMI and TGI. Any other body is a request for inference.
"""

import re
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from halimede.codec.json_sizes import LARGE
from halimede.codec.sagemaker_media_type import json_length
from halimede.core.errors import HalimedeError, NotLoadedError
from halimede.engine.engine import Engine
from halimede.engine.served_model import ServedModel
from halimede.frontends.http.answers import BackgroundAnswers, RespondError, answer_later
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.openai.embeddings import Embeddings
from halimede.frontends.openai.errors import respond_error as respond_openai_error
from halimede.frontends.openai.fields import IgnoredFields, read_object
from halimede.frontends.openai.generation import Generation
from halimede.frontends.openai.known_models import KnownModel, KnownModels
from halimede.frontends.openai.profile import Task, read_profile
from halimede.frontends.openai.reading import read_on_loop, read_on_thread
from halimede.frontends.openai.replies import ChoiceReplies
from halimede.frontends.openai.template_limits import TemplateLimits
from halimede.frontends.openai.text_request import TextRequest, read_chat, read_completion
from halimede.frontends.sagemaker.generated_text import GeneratedText
from halimede.frontends.sagemaker.prompts import read_prompts
from halimede.frontends.sagemaker.settings import SagemakerSettings

_TENSORS: Final = re.compile(rb'\s*\{\s*"inputs"\s*:\s*\[\s*\{')
"""How most requests for inference begin, which need not be read twice."""

_TASKS: Final = (("messages", Task.CHAT), ("prompt", Task.COMPLETIONS), ("input", Task.EMBEDDINGS))
INPUTS: Final = "inputs"


class TextCalls:
    """Serves them.

    Args:
        engine: what runs requests.
        settings: what limits requests, and how texts are told.
        background: answers that wait for a model's files.
        respond_error: answers with an error where the body is not OpenAI's.
        infer: answers requests that do not ask for text.
    """

    def __init__(
        self,
        engine: Engine,
        settings: SagemakerSettings,
        background: BackgroundAnswers,
        respond_error: RespondError,
        infer: Callable[[Exchange, str, int], None],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._background = background
        self._respond_error = respond_error
        self._infer = infer
        self._models = KnownModels(engine)
        self._ignored = IgnoredFields()
        self._of_text: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    def serve(self, exchange: Exchange, name: str) -> None:
        """Answer, now or later: with text if the model is one of text and the body asks for text.

        Raises:
            NotLoadedError, NotFoundError: the model cannot be served now.
            HalimedeError: the request is answered with this.
        """
        received = self._engine.clock.now()
        model = self._engine.find(name)
        most = self._settings.max_input_size
        if (
            not self._is_of_text(model)
            or json_length(exchange.headers) is not None
            or _TENSORS.match(exchange.body)
        ):
            self._infer(exchange, name, -1)
        elif LARGE < len(exchange.body) <= most:
            answer_later(
                exchange,
                self._settings.decoders.decode(read_object, exchange.body, most),
                lambda document: self._take(exchange, name, document, received),
                self._respond_error,
                self._engine.lifecycle.hold(model.identifier),
            )
        else:
            self._take(exchange, name, read_object(exchange.body, most), received)

    def _take(self, exchange: Exchange, name: str, document: dict[str, Any], received: int) -> None:
        """Answer a request whose JSON is read.

        Raises:
            NotLoadedError, NotFoundError: the model cannot be served now.
            HalimedeError: the request is answered with this.
        """
        task = _task_of(document)
        if task is None:
            self._infer(exchange, name, -1)
            return
        inputs = task is Task.COMPLETIONS and "prompt" not in document
        respond_error = self._respond_error if inputs else respond_openai_error
        try:
            known = self._models.find(name, task)
            if known is None:
                work = self._run_later(exchange, name, task, document, received)
                self._background.answer(exchange, work, respond_error)
            else:
                self._run(exchange, task, document, known, received)
        except NotLoadedError:
            raise
        except HalimedeError as error:
            respond_error(exchange, error)

    def _is_of_text(self, model: ServedModel) -> bool:
        found = self._of_text.get(model)
        if found is None:
            try:
                found = read_profile(model.name, model.config, model.signature) is not None
            except HalimedeError:  # whoever asks for text is told
                found = True
            self._of_text[model] = found
        return found

    async def _run_later(
        self, exchange: Exchange, name: str, task: Task, document: dict[str, Any], received: int
    ) -> None:
        """Have the model's files read, then run the request."""
        known = await self._models.look(name, task)
        if not exchange.closed:
            self._run(exchange, task, document, known, received)

    def _run(
        self, exchange: Exchange, task: Task, document: dict[str, Any], known: KnownModel, received: int
    ) -> None:
        engine, ignored, pattern = self._engine, self._ignored, self._settings.forward_pattern
        if task is Task.EMBEDDINGS:
            Embeddings(engine, exchange, known, document, ignored, received).start(pattern)
        elif task is Task.CHAT or "prompt" in document:
            self._run_text(exchange, task, document, known, received)
        else:
            prompts = read_prompts(document, known, ignored, self._settings.text_format)
            GeneratedText(engine, exchange, known, prompts, received, self._respond_error).start(pattern)

    def _run_text(
        self, exchange: Exchange, task: Task, document: dict[str, Any], known: KnownModel, received: int
    ) -> None:
        """Run a request in OpenAI's format for chat or completions."""

        def read(limits: TemplateLimits) -> TextRequest:
            if task is Task.CHAT:
                return read_chat(document, known, self._ignored, limits)
            return read_completion(document, known, self._ignored)

        def start(asked: TextRequest) -> None:
            replies = ChoiceReplies(known.model.name, asked)
            generation = Generation(self._engine, exchange, known, asked, replies, received)
            generation.start(self._settings.forward_pattern)

        async def run_later() -> None:
            asked = await read_on_thread(read)
            if not exchange.closed:
                start(asked)

        asked = read_on_loop(read, len(exchange.body), known)
        if asked is None:
            self._background.answer(exchange, run_later(), respond_openai_error)
        else:
            start(asked)


def _task_of(document: dict[str, Any]) -> Task | None:
    """What a body asks for, None for inference."""
    for member, task in _TASKS:
        if member in document:
            return task
    if INPUTS not in document:
        return None
    inputs = document[INPUTS]
    tensors = isinstance(inputs, list) and inputs and all(isinstance(each, dict) for each in inputs)
    return None if tensors else Task.COMPLETIONS
