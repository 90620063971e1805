"""The answer to a request of LMI or TGI: texts, whole, or token by token as lines of JSON or as server-sent events."""

from collections.abc import Generator
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from halimede.core.errors import HalimedeError
from halimede.core.requests import InferResponse
from halimede.engine.engine import Engine
from halimede.frontends.http.answers import AnswerInSteps, RespondError
from halimede.frontends.http.generate import EVENT_STREAM
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.openai.choice import NOTHING_READ, Choice, Read
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.long_json import ITEMS, Steps, encode, object_of
from halimede.frontends.openai.text_answer import TextAnswer
from halimede.frontends.restrictions import HeaderPattern
from halimede.frontends.sagemaker.prompts import Prompts
from halimede.frontends.steps_of_work import whole

LINES: Final = "application/jsonlines"


class _Token(NamedTuple):
    """A token of a text: its id, its text, and the logarithm of its probability."""

    id: int | None
    text: str
    logprob: float | None


def _tokens_of(logprobs: Any) -> list[_Token]:
    """The tokens of log probabilities as vLLM's backend tells them: of each token, an object by ids, its own first."""
    tokens = []
    for entry in logprobs if isinstance(logprobs, list) else ():
        token, told = next(iter(object_of(entry).items()))
        tokens.append(_Token(int(token), told.get("decoded_token") or "", told.get("logprob")))
    return tokens


def _count(logprobs: Any) -> int:
    return len(logprobs) if isinstance(logprobs, list) else 0


class GeneratedText(TextAnswer):
    """The answer to one request. Lives on the event loop.

    Args:
        engine: what runs requests.
        exchange: what is answered.
        known: the model.
        prompts: what is asked for.
        received_ns: when, on the engine's clock.
        respond_error: answers with an error before there is a stream.
    """

    def __init__(
        self,
        engine: Engine,
        exchange: Exchange,
        known: KnownModel,
        prompts: Prompts,
        received_ns: int,
        respond_error: RespondError,
    ) -> None:
        asked = prompts.asked
        choices = [
            Choice(known.profile, asked.stop, asked.max_tokens, stop_shown=asked.stop_shown)
            for _ in prompts.prompts
        ]
        super().__init__(engine, exchange, known, choices, received_ns)
        self._prompts = prompts
        self._respond_error = respond_error
        self._told = 0

    def start(self, pattern: HeaderPattern | None) -> None:
        """Have the model run it; `pattern` finds the headers that become parameters.

        Raises:
            HalimedeError: the request is answered with this.
        """
        self._run("", self._prompts.asked.inputs, pattern)

    def _pass_on(
        self, number: int, response: InferResponse | None, final: bool, read: Read = NOTHING_READ
    ) -> None:
        choice = self._choices[number]
        if choice.ended:
            return
        text = ""
        if response is not None:
            if response.error is not None:
                raise response.error
            text = choice.take(response, read)
        over = final or choice.stopped
        if over:
            text += choice.end()
            self._left -= 1
            if not final:
                self._requests.cancel(number)
        if self._prompts.asked.stream and (text or over):
            self._write(
                {**self._token(text, choice.new_logprobs), **(self._last(number) if over else self._no_end())}
            )
        if self._left:
            if self._stream is not None and self._stream.full:
                self._requests.congest()
            return
        self._over = True
        if self._stream is not None:
            self._end(self._stream)
            return
        respond = partial(self._exchange.respond, 200)
        if sum(_count(choice.logprobs) for choice in self._choices) <= ITEMS:
            respond(whole(self._reply()))
        else:
            AnswerInSteps(self._exchange, self._reply(), respond, self._respond_error).take()

    # what is told

    def _token(self, text: str, logprobs: Any = None) -> dict[str, Any]:
        """A piece of the text; its id and probability if it is one token, and the model tells them."""
        self._told += 1
        tokens = _tokens_of(logprobs)
        told = tokens[0] if len(tokens) == 1 else _Token(None, "", None)
        if self._prompts.form.tgi:
            token = {"id": told.id, "text": text, "logprob": told.logprob, "special": not text}
            return {"index": self._told, "token": token}
        return {"token": {"id": told.id, "text": text, "log_prob": told.logprob}}

    def _no_end(self) -> dict[str, Any]:
        return {"generated_text": None, "details": None} if self._prompts.form.tgi else {}

    def _last(self, number: int) -> dict[str, Any]:
        """What the last event of a stream has beside its token."""
        return {"generated_text": self._text(number), "details": self._details(number)}

    def _reply(self) -> Steps:
        """Makes the reply that is not streamed."""
        texts = []
        for number, choice in enumerate(self._choices):
            text: dict[str, Any] = {"generated_text": self._text(number)}
            if self._prompts.details:
                details = text["details"] = self._details(number)
                tokens = yield from self._tokens(choice.logprobs, details["finish_reason"])
                if self._prompts.form.tgi or tokens:
                    details["tokens"] = tokens
            texts.append(text)
        encoded = encode(texts if self._prompts.listed else texts[0])
        return [encoded] if isinstance(encoded, bytes) else (yield from encoded)

    def _tokens(self, logprobs: Any, reason: str) -> Generator[None, None, list[dict[str, Any]]]:
        """Makes what is told of each token of a text that has ended for that reason."""
        count = _count(logprobs)
        special = count - 1 if reason == "eos_token" else count
        told: list[dict[str, Any]] = []
        for start in range(0, count, ITEMS):
            if start:
                yield
            for place, token in enumerate(_tokens_of(logprobs[start : start + ITEMS]), start):
                each = {"id": token.id, "text": token.text}
                more = {"logprob": token.logprob, "special": place >= special}
                told.append(each | (more if self._prompts.form.tgi else {"log_prob": token.logprob}))
        return told

    def _text(self, number: int) -> str:
        return self._prompts.prompts[number] * self._prompts.full_text + self._choices[number].text

    def _details(self, number: int) -> dict[str, Any]:
        choice = self._choices[number]
        ended = "stop_sequence" if choice.stop_word else "eos_token"
        reason = ended if choice.finish == "stop" else choice.finish
        details: dict[str, Any] = {
            "finish_reason": reason,
            "generated_tokens": choice.tokens,
        }
        form = self._prompts.form
        if choice.prompt_tokens is not None or form.tgi:
            details["input_length"] = choice.prompt_tokens
        if not form.tgi:
            details["inputs"] = self._prompts.prompts[number]
        elif self._stream is None:
            details["prefill"] = []
        return details

    # streams

    def _write(self, document: dict[str, Any]) -> None:
        stream = self._stream
        if stream is None:
            kind = EVENT_STREAM if self._prompts.form.events else LINES
            stream = self._stream = self._exchange.stream(200, kind)
            stream.on_room = self._room
        text = orjson.dumps(document)
        stream.write(b"data:" + text + b"\n\n" if self._prompts.form.events else text + b"\n")

    def _fail(self, error: HalimedeError) -> None:
        stream = self._stream
        if stream is None:
            self._respond_error(self._exchange, error)
            return
        told: dict[str, Any] = {"error": error.message, "error_type": "generation"}
        if not self._prompts.form.tgi:
            details = {"finish_reason": "error", "generated_tokens": None, "inputs": None}
            told = {**self._token(""), "generated_text": "", "details": details, **told}
        self._write(told)
        self._end(stream)
