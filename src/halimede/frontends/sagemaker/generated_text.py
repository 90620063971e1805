"""The answer to a request of LMI or TGI: texts, whole, or token by token as lines of JSON or as server-sent events."""

from typing import Any, Final, NamedTuple

import orjson

from halimede.core.errors import HalimedeError
from halimede.core.requests import InferResponse
from halimede.engine.engine import Engine
from halimede.frontends.http.answers import RespondError
from halimede.frontends.http.generate import EVENT_STREAM
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.openai.choice import NOTHING_READ, Choice, Read
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.long_json import object_of
from halimede.frontends.openai.text_answer import TextAnswer
from halimede.frontends.restrictions import HeaderPattern
from halimede.frontends.sagemaker.prompts import Prompts

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
        choices = [Choice(known.profile, asked.stop, asked.max_tokens) for _ in prompts.prompts]
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
        texts = [self._whole(number) for number in range(len(self._choices))]
        self._exchange.respond(200, (orjson.dumps(texts if self._prompts.listed else texts[0]),))

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

    def _whole(self, number: int) -> dict[str, Any]:
        whole: dict[str, Any] = {"generated_text": self._text(number)}
        if self._prompts.details:
            whole["details"] = self._details(number)
        return whole

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
        tokens = _tokens_of(choice.logprobs)
        if self._stream is None and (form.tgi or tokens):
            special = len(tokens) - 1 if reason == "eos_token" else len(tokens)
            details["tokens"] = [
                {"id": token.id, "text": token.text, "logprob": token.logprob, "special": place >= special}
                if form.tgi
                else {"id": token.id, "text": token.text, "log_prob": token.logprob}
                for place, token in enumerate(tokens)
            ]
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
