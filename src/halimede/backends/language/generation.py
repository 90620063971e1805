"""One text that a model is writing: its tokens so far, and the responses that bring it to the client."""

from functools import partial
from threading import Thread
from typing import Any, Final

import numpy as np
import orjson

from halimede.backends.batch import Send
from halimede.backends.language import tensors
from halimede.backends.language.detokenizer import Detokenizer
from halimede.backends.language.logprobs import (
    LogprobForm,
    TokenLogprob,
    TokenRecord,
    logprobs_document,
    prompt_document,
)
from halimede.backends.language.text_request import TextRequest
from halimede.backends.language.tokenizer import Tokenizer
from halimede.backends.language.tools.call_parser import CallParser, joined, merged
from halimede.core.datatypes import BYTES, FP32, UINT32
from halimede.core.errors import CancelledError, HalimedeError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.stop_words import StopWords
from halimede.core.tensors import Tensor, encode_bytes

_STOP: Final = "stop"
_LENGTH: Final = "length"
_ERROR: Final = "error"
_TOOL_CALLS: Final = "tool_calls"


class Generation:
    """A text that is being written. Used by one thread at a time.

    Attributes:
        request: who asked for it.
        asked: what is asked for.
        prompt: the prompt's tokens.
        tokens: the text's tokens so far.
        room: the most tokens that the text may have.
        finish: why it has ended: stop, length, tool_calls or error; "" until then.
        prompt_logprobs: how probable the prompt's tokens are, as far as it was read; None for the first one.
        counted, counted_ns: so many of the tokens were counted, the last of them then; see `TextCounter`.
    """

    __slots__ = (
        "_begun",
        "_called",
        "_calls",
        "_detokenizer",
        "_failure",
        "_length",
        "_logprob_sum",
        "_new_tokens",
        "_parser",
        "_piece",
        "_pieces",
        "_records",
        "_send",
        "_stop",
        "asked",
        "counted",
        "counted_ns",
        "finish",
        "prompt",
        "prompt_logprobs",
        "request",
        "room",
        "tokens",
    )

    def __init__(
        self,
        request: InferRequest,
        send: Send,
        asked: TextRequest,
        prompt: list[int],
        room: int,
        tokenizer: Tokenizer,
    ) -> None:
        self.request = request
        self.asked = asked
        self.prompt = prompt
        self.tokens: list[int] = []
        self.room = room
        self.finish = ""
        self.prompt_logprobs: list[TokenLogprob | None] = [None]
        self._begun = False  # a response was sent
        self.counted = 0
        self.counted_ns = 0
        self._send = send
        self._piece = _name if asked.token_ids else tokenizer.piece
        special = not asked.sampling.skip_special_tokens
        self._detokenizer = Detokenizer(partial(tokenizer.decode, special=special), prompt)
        self._parser = None if asked.tools is None else CallParser(asked.tools)
        self._calls: list[dict[str, Any]] = []
        self._called = False
        self._stop = StopWords(asked.sampling.stop, shown=asked.sampling.include_stop_str_in_output)
        self._pieces = [asked.prompt] if asked.echo else []
        self._new_tokens = 0
        self._length = 0  # of the text, in characters
        self._records: list[TokenRecord] = []
        self._logprob_sum = 0.0
        self._failure: HalimedeError | None = None

    @property
    def cancelled(self) -> bool:
        """Nobody waits for it any more."""
        return self.request.cancelled

    def take(
        self, token: int, *, ends: bool = False, last: bool = False, logprob: TokenLogprob | None = None
    ) -> None:
        """Add a token.

        Args:
            token: the token.
            ends: it ends the text: it is counted, and not shown.
            last: the text is complete with it.
            logprob: how probable it was, if that is asked for.
        """
        self.tokens.append(token)
        self._new_tokens += 1
        if logprob is not None:
            self._records.append(TokenRecord(token, self._length, ends, logprob))
            self._logprob_sum += logprob.logprob
        if not ends:
            text = self._detokenizer.take(token)
            self._length += len(text)
            self._write(self._stop.take(text))
        one_call = self._parser is not None and self._parser.complete
        if self._stop.found or ends or last or one_call:
            self.finish = _STOP
        elif len(self.tokens) >= self.room:
            self.finish = _LENGTH
        if self.finish:
            self.end(self.finish)

    def end(self, finish: str) -> None:
        """End it; "stop" and "length" are how."""
        self.finish = finish
        self._write(self._stop.take(self._detokenizer.end()))
        self._write(self._stop.end())
        if self._parser is not None:
            self._pieces.append(self._parser.end())
        if self._called and self.finish == _STOP:
            self.finish = _TOOL_CALLS

    def _write(self, text: str) -> None:
        """Add text, in which there may be calls of tools."""
        if self._parser is not None:
            text, calls = self._parser.take(text)
            self._calls += calls
            self._called = self._called or bool(calls)
        self._pieces.append(text)

    def give_up(self, error: HalimedeError) -> None:
        """End it with an error, which `send` sends."""
        self._failure = error
        self.finish = _ERROR

    def send(self) -> None:
        """Send what is new. To a client that reads too slowly, it is sent later, together with what follows."""
        if self._failure is not None:
            self.fail(self._failure)
        elif self.finish:
            self._answer(self._response("".join(self._pieces)))
        elif self.asked.stream and not self.request.congested:
            text = "".join(self._pieces)
            if text or self._calls:
                self._send(self.request, self._response(text), False)

    def fail(self, error: HalimedeError) -> None:
        """Answer with an error."""
        self._answer(InferResponse(error=error))

    def cancel(self) -> None:
        """Answer that it was cancelled."""
        self.fail(CancelledError("the request was cancelled"))

    def _answer(self, last: InferResponse) -> None:
        """Send the last response. If the client reads too slowly, nobody else is to wait for it."""
        if self.request.congested:
            Thread(target=self._send, args=(self.request, last, True), daemon=True).start()
        else:
            self._send(self.request, last, True)

    def _response(self, text: str) -> InferResponse:
        """The response with all that is new."""
        wanted = self.asked.wanted
        outputs = {tensors.TEXT_OUTPUT: _text_tensor(text)}
        if tensors.FINISH_REASON in wanted:
            outputs[tensors.FINISH_REASON] = _text_tensor(self.finish)
        if tensors.INPUT_TOKENS in wanted:
            outputs[tensors.INPUT_TOKENS] = _count_tensor(len(self.prompt))
        if tensors.OUTPUT_TOKENS in wanted:
            outputs[tensors.OUTPUT_TOKENS] = _count_tensor(self._new_tokens)
        if tensors.LOGPROBS in wanted:
            outputs[tensors.LOGPROBS] = Tensor(BYTES, (1,), encode_bytes([self._logprobs()]))
        if tensors.CUMULATIVE_LOGPROB in wanted:
            outputs[tensors.CUMULATIVE_LOGPROB] = Tensor.from_array(
                FP32, np.array([self._logprob_sum], FP32.numpy)
            )
        if not self._begun:
            self._begun = True
            outputs |= self._of_prompt()
        if self.finish and self._stop.found:
            outputs[tensors.STOP_REASON] = _text_tensor(self._stop.word)
        if self._calls:
            calls = joined(self._calls) if self.asked.stream else merged(self._calls)
            outputs[tensors.TOOL_CALLS] = Tensor(BYTES, (1,), encode_bytes([orjson.dumps(calls)]))
            self._calls = []
        self._records.clear()
        self._pieces.clear()
        self._new_tokens = 0
        return InferResponse(outputs)

    def _of_prompt(self) -> dict[str, Tensor]:
        """What the first response has of the prompt."""
        asked, told = self.asked, {}
        if asked.with_prompt:
            logprobs = None
            if asked.sampling.logprobs is not None:
                logprobs = prompt_document(
                    LogprobForm.COMPLETIONS, self.prompt, self.prompt_logprobs, self._piece, asked.prompt
                )
            document = orjson.dumps({"text": asked.prompt, "logprobs": logprobs})
            told[tensors.PROMPT] = Tensor(BYTES, (1,), encode_bytes([document]))
        if tensors.PROMPT_LOGPROBS in asked.wanted:
            document = orjson.dumps(
                prompt_document(LogprobForm.VLLM, self.prompt, self.prompt_logprobs, self._piece)
            )
            told[tensors.PROMPT_LOGPROBS] = Tensor(BYTES, (1,), encode_bytes([document]))
        return told

    def _logprobs(self) -> bytes:
        """The JSON of the new tokens' log probabilities; null if the sampling parameters do not ask for them."""
        if self.asked.sampling.logprobs is None:
            return b"null"
        ends = self.asked.with_prompt  # as whoever measures texts counts on a token for each
        return orjson.dumps(logprobs_document(self.asked.logprob_form, self._records, self._piece, ends=ends))


def _name(token: int) -> bytes:
    """A token by its id, as vLLM writes it."""
    return b"token_id:%d" % token


def _text_tensor(text: str) -> Tensor:
    return Tensor(BYTES, (1,), encode_bytes([text]))


def _count_tensor(count: int) -> Tensor:
    return Tensor.from_array(UINT32, np.array([count], UINT32.numpy))
