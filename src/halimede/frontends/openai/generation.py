"""Chat, completions and responses: a request's choices run on the model, and told whole or as they come."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from halimede.core.errors import HalimedeError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Buffer
from halimede.engine.engine import Engine
from halimede.frontends.http.answers import AnswerInSteps
from halimede.frontends.http.generate import EVENT_STREAM
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.streaming import ResponseStream
from halimede.frontends.openai.choice import NOTHING_READ, Choice, Read
from halimede.frontends.openai.errors import respond_error
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.long_json import Steps
from halimede.frontends.openai.model_errors import client_error
from halimede.frontends.openai.replies import Replies, Usage
from halimede.frontends.openai.text_answer import TextAnswer
from halimede.frontends.openai.text_request import TextRequest
from halimede.frontends.openai.text_tokenizer import LONG
from halimede.frontends.restrictions import HeaderPattern


class Generation(TextAnswer):
    """The answer to one request. Lives on the event loop.

    Args:
        engine: what runs requests.
        exchange: what is answered.
        known: the model.
        asked: what is asked for.
        replies: what the client gets.
        received_ns: when, on the engine's clock.
    """

    def __init__(
        self,
        engine: Engine,
        exchange: Exchange,
        known: KnownModel,
        asked: TextRequest,
        replies: Replies,
        received_ns: int,
    ) -> None:
        choices = [
            Choice(known.profile, asked.stop, asked.max_tokens, echo, stop_shown=asked.stop_shown)
            for echo in asked.echo
        ]
        super().__init__(engine, exchange, known, choices, received_ns)
        self._known = known
        self._asked = asked
        self._replies = replies
        self._begun: set[int] = set()
        self._waiting: deque[Callable[[], None]] | None = None  # while events are made in steps

    def start(self, pattern: HeaderPattern | None) -> None:
        """Have the model run it; `pattern` finds the headers that become parameters.

        Raises:
            HalimedeError: the request is answered with this.
        """
        self._run(self._replies.id, self._asked.inputs, pattern)

    def _pass_on(
        self, number: int, response: InferResponse | None, final: bool, read: Read = NOTHING_READ
    ) -> None:
        choice = self._choices[number]
        if choice.ended:
            return
        if response is not None:
            if response.error is not None:
                raise client_error(response.error, self._asked.source, self._asked.sent)
            text = choice.take(response, read)
            if self._asked.stream:
                self._write_text(number, choice, text)
        if final or choice.stopped:
            rest = choice.end()
            self._left -= 1
            if not final:
                self._requests.cancel(number)
            if self._asked.stream:
                self._begin_stream(number)
                if rest:
                    self._put(partial(self._replies.text, number, rest))
                self._put(partial(self._replies.end, number, choice.output()))
        if not self._left:
            self._over = True
            self._count(self._complete)
        elif self._stream is not None and (self._stream.full or self._waiting is not None):
            self._requests.congest()

    def _write_text(self, number: int, choice: Choice, text: str) -> None:
        stream = self._begin_stream(number)
        if choice.new_logprobs is not None:
            self._put(partial(self._replies.text_with_logprobs, number, text, choice.new_logprobs))
        elif text and self._waiting is None:
            stream.write(self._replies.text(number, text))
        elif text:
            self._put(partial(self._replies.text, number, text))
        if choice.new_calls:
            first = len(choice.tool_calls) - len(choice.new_calls)
            self._put(partial(self._replies.tool_calls, number, choice.new_calls, first))

    def _begin_stream(self, number: int) -> ResponseStream:
        """The stream, on which the choice has begun: with whose turn it is, and with what is echoed."""
        stream = self._stream
        if stream is None:
            stream = self._stream = self._exchange.stream(200, EVENT_STREAM)
            stream.on_room = self._room
        if number not in self._begun:
            self._begun.add(number)
            self._put(partial(self._replies.begin, number))
            if echo := self._asked.echo[number]:
                self._put(partial(self._replies.text, number, echo))
        return stream

    def _put(self, make: Callable[[], bytes | Steps]) -> None:
        """Send events, at once or in their turn, behind those that are being made in steps."""
        if self._waiting is not None:
            self._waiting.append(partial(self._put, make))
            return
        made = make()
        if not isinstance(made, bytes):
            self._waiting = deque()
            AnswerInSteps(self._exchange, made, self._go_on).take()
        elif made:
            assert self._stream is not None, "events belong to a stream"
            self._stream.write(made)

    def _go_on(self, parts: list[Buffer]) -> None:
        """Send what was made in steps, and what has come meanwhile."""
        stream, waiting = self._stream, self._waiting
        assert stream is not None, "events belong to a stream"
        assert waiting is not None, "what comes while events are made in steps waits"
        self._waiting = None
        for part in parts:
            if part:
                stream.write(part)
        try:
            self._put_all(waiting)
        except Exception as error:  # in a callback of the loop, nobody else would answer
            self._failed(error)
        self._room()

    def _put_all(self, waiting: deque[Callable[[], None]]) -> None:
        while waiting and self._waiting is None:
            waiting.popleft()()
        if self._waiting is not None:
            self._waiting += waiting

    def _room(self) -> None:
        if self._waiting is None and not self._over:
            super()._room()

    def _fail(self, error: HalimedeError) -> None:
        if self._stream is None:
            respond_error(self._exchange, error)
            return
        self._put(partial(self._replies.failure, error))
        self._end_stream()

    def _end_stream(self) -> None:
        """End the stream behind all that was put."""
        if self._waiting is not None:
            self._waiting.append(self._end_stream)
        elif self._stream is not None:
            self._end(self._stream)

    def _complete(self, usage: Usage | None) -> None:
        if self._exchange.closed:
            return
        if self._stream is None:
            outputs = [choice.output() for choice in self._choices]
            whole = self._replies.whole(outputs, usage)
            if isinstance(whole, bytes):
                self._exchange.respond(200, (whole,))
            else:
                respond = partial(self._exchange.respond, 200)
                AnswerInSteps(self._exchange, whole, respond, respond_error).take()
            return
        self._put(partial(self._replies.complete, usage))
        self._end_stream()

    # usage

    def _count(self, then: Callable[[Usage | None], None]) -> None:
        """Go on with the usage, now or once it is counted."""
        if self._asked.stream and not self._asked.include_usage:
            then(None)
            return
        told = self._told_usage()
        tokenizer = self._known.files.tokenizer
        if told is not None or tokenizer is None or not all(self._asked.prompts):
            then(told)
            return
        texts = [
            "".join(choice.pieces[1:] if echo else choice.pieces)
            for choice, echo in zip(self._choices, self._asked.echo, strict=True)
        ]
        special = not self._asked.chat
        prompts = self._asked.prompts

        def add_up() -> Usage | None:
            counts = [tokenizer.count(prompt, special) for prompt in prompts]
            counts += [tokenizer.count(text, False) for text in texts]
            known = [each for each in counts if each is not None]
            if len(known) < len(counts):
                return None
            return Usage(sum(known[: len(prompts)]), sum(known[len(prompts) :]))

        if sum(map(len, texts)) + sum(map(len, prompts)) <= LONG:
            then(add_up())
            return
        counting = asyncio.get_running_loop().run_in_executor(None, add_up)
        counting.add_done_callback(lambda done: self._counted(done, then))

    def _counted(self, done: "asyncio.Future[Usage | None]", then: Callable[[Usage | None], None]) -> None:
        try:
            then(done.result())
        except Exception as error:  # in a callback of the loop, nobody else would answer
            self._exchange.fail(error)

    def _told_usage(self) -> Usage | None:
        """The usage as the model tells it, None if it does not."""
        asked = self._asked
        firsts = self._choices[:: asked.choices]
        prompts = [choice.prompt_tokens for choice in firsts if choice.prompt_tokens is not None]
        tokens = [choice.tokens for choice in self._choices if choice.tokens is not None]
        if len(prompts) < len(firsts) or len(tokens) < len(self._choices):
            return None
        return Usage(sum(prompts), sum(tokens))
