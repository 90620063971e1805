"""An instance of a language model: it takes requests while there is room, and one thread writes all their texts."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from threading import BoundedSemaphore, Condition, Thread
from time import monotonic, monotonic_ns, sleep
from typing import Final

from halimede.backends.base import Instance
from halimede.backends.batch import Batch, Send
from halimede.backends.language.counts import TextCounter
from halimede.backends.language.engine import Engine, failure_of, log_unexpected
from halimede.backends.language.form_limits import check_size
from halimede.backends.language.generation import Generation
from halimede.backends.language.sampling import Sampling
from halimede.backends.language.text_request import TextRequest, read_text_request
from halimede.backends.language.tokenizer import PromptLimit, Tokenizer
from halimede.backends.language.tools.formats import ToolFormat
from halimede.core.errors import CancelledError, InvalidArgumentError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse

logger = logging.getLogger("halimede")

_NEXT_WITHIN_S: Final = 0.0005
"""If more requests wait, the server sends the next one so soon after it has heard that the one before is under way."""

_SHORT: Final = 16_384
"""Prompts of more characters become tokens on another thread, so that requests that come later need not wait."""

_PREPARING: Final = 2
"""So many threads prepare what takes time: long prompts, and forms that are to be compiled."""

_MOST_SLOW: Final = 16
"""If so many requests wait for these threads or are prepared, further ones wait in the model's queue."""

_LOOK_S: Final = 0.0001
_LONGEST_WAIT_S: Final = 0.02
"""Texts that are under way wait no longer than this for others, however many come."""


class LanguageInstance(Instance):
    """Writes texts with an engine. Its process is its own.

    `execute` returns once each request of the batch is under way, and waits while as many texts as may be are being
    written: requests that have to wait do so in the model's queue, where its policy applies to them. Requests whose
    preparation takes time, such as a long prompt, are prepared by other threads.

    Args:
        engine: makes the engine, on the thread that uses it.
        tokenizer: of the model.
        defaults: how tokens are chosen if a request does not say.
        context: how many tokens prompt and text may have together.
        max_texts: so many texts are written at once.
        tool_format: how the model writes calls of tools, None if that is not known.

    Raises:
        Exception: what `engine` raises.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        tokenizer: Tokenizer,
        defaults: Sampling,
        context: int,
        max_texts: int,
        tool_format: ToolFormat | None = None,
    ) -> None:
        self._make_engine = engine
        self._tokenizer = tokenizer
        self._defaults = defaults
        self._context = context
        self._max_texts = max_texts
        self._tool_format = tool_format
        self._changed = Condition()
        self._new: list[Generation] = []
        self._count = 0  # of texts under way, new ones too
        self._counter = TextCounter()
        self._beginning = False  # a request is being looked at
        self._begun_s = 0.0  # when the last one was
        self._closing = False
        self._preparing = ThreadPoolExecutor(_PREPARING, "halimede-prepare")
        self._slow = BoundedSemaphore(_MOST_SLOW)
        self._engine: Engine | None = None  # until it is made
        self._failure: Exception | None = None
        self._under_way: list[Generation] = []  # of the thread
        self._together: Callable[[], AbstractContextManager[None]] = nullcontext
        self._thread = Thread(target=self._run, name="halimede-generate", daemon=True)
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._engine is not None or self._failure is not None)
        if self._failure is not None:
            raise self._failure

    def execute(self, batch: Batch) -> None:
        """Begin the texts that the requests ask for."""
        assert batch.send is not None, "the model is decoupled"
        self._beginning = True
        batch.gathered()
        self._together = batch.together
        try:
            for request in batch.requests:
                self._begin(request, batch.send)
            batch.computed()
        finally:
            self._begun_s = monotonic()
            self._beginning = False

    @property
    def reserved_bytes(self) -> int:
        """Memory that the engine has reserved for keys and values."""
        return 0 if self._engine is None else self._engine.reserved_bytes

    def look(self) -> None:
        """Look whether the engine is broken. From any thread."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread. No text is under way."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._preparing.shutdown()

    def _begin(self, request: InferRequest, send: Send) -> None:
        try:
            asked = self._read(request)
            request.inputs = {}  # perhaps in shared memory, which others may have now
            if self._takes_time(asked):
                self._slow.acquire()
                self._preparing.submit(self._prepare, request, send, asked)
                return
            generation = self._generation(request, send, asked)
        except Exception as error:  # of a tokenizer, say
            log_unexpected(error)
            send(request, InferResponse(error=failure_of(error)), True)
            return
        self._admit(generation)

    def _takes_time(self, asked: TextRequest) -> bool:
        """Whether others would wait for this request if it were prepared before them."""
        assert self._engine is not None, "an instance without an engine is not made"
        structure = asked.sampling.structure
        return len(asked.prompt) > _SHORT or (structure is not None and not self._engine.knows(structure))

    def _prepare(self, request: InferRequest, send: Send, asked: TextRequest) -> None:
        """Begin a request that takes time, on a thread for such requests."""
        try:
            if request.cancelled:
                raise CancelledError("the request was cancelled")
            generation = self._generation(request, send, asked)
        except Exception as error:
            log_unexpected(error)
            send(request, InferResponse(error=failure_of(error)), True)
        else:
            self._admit(generation)
        finally:
            self._slow.release()

    def _read(self, request: InferRequest) -> TextRequest:
        """What is asked for, if the prompt's text is not longer than the context can hold."""
        asked = read_text_request(request, self._defaults, self._tool_format)
        if asked.sampling.structure is not None:
            check_size(asked.sampling.structure)
        if asked.prompt_tokens is not None:
            return asked
        limit = PromptLimit(self._context, self._tokenizer.max_characters)
        if asked.truncation is None:
            limit.check(asked.prompt, "the prompt")
            return asked
        most = limit.characters
        return replace(asked, prompt=asked.prompt[-most:] if asked.truncation.left else asked.prompt[:most])

    def _generation(self, request: InferRequest, send: Send, asked: TextRequest) -> Generation:
        assert self._engine is not None, "an instance without an engine is not made"
        if asked.sampling.structure is not None:
            self._engine.check(asked.sampling)
        asked, prompt = self._prompt(asked)
        if asked.truncation is not None:
            prompt = asked.truncation.of(prompt, self._context - (asked.sampling.max_tokens or 1))
        if not prompt:
            raise InvalidArgumentError(
                "'text_input' is empty: the model needs at least one token to begin with"
            )
        room = self._context - len(prompt)
        most = asked.sampling.max_tokens
        if room < (0 if most == 0 else 1):
            msg = (
                f"the prompt has {len(prompt)} tokens, but the model's context holds {self._context}, with at least "
                f"one for the answer: at most {self._context - 1} tokens are possible"
            )
            raise InvalidArgumentError(msg)
        room = room if most is None else min(room, most)
        return Generation(request, send, asked, prompt, room, self._tokenizer)

    def _prompt(self, asked: TextRequest) -> tuple[TextRequest, list[int]]:
        """The request, with the text of its prompt, and the tokens of the prompt."""
        tokens = asked.prompt_tokens
        if tokens is None:
            return asked, self._tokenizer.encode(asked.prompt, special=asked.special)
        if tokens and not self._tokenizer.piece(max(tokens)):
            msg = f"'prompt_token_ids' contains {max(tokens)}, which is not in the model's vocabulary"
            raise InvalidArgumentError(msg)
        text = (
            self._tokenizer.decode(tokens[: self._context], special=True)
            if asked.echo or asked.with_prompt
            else ""
        )
        return replace(asked, prompt=text), list(tokens)

    def _admit(self, generation: Generation) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._count < self._max_texts or generation.cancelled)
            if generation.cancelled:
                generation.cancel()
                return
            self._count += 1
            self._new.append(generation)
            self._changed.notify_all()
        assert self._engine is not None, "an instance without an engine is not made"
        self._engine.wake()

    # The thread

    def _run(self) -> None:
        try:
            engine = self._make_engine()
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            return
        with self._changed:
            self._engine = engine
            self._changed.notify_all()
        try:
            self._write_texts(engine)
        except Exception as error:
            logger.exception("the thread that writes texts failed")
            _give_up(
                f"the model's engine failed: {failure_of(error).message}", [*self._under_way, *self._new]
            )

    def _write_texts(self, engine: Engine) -> None:
        """Begin texts and let them go on, until the instance is closed or the engine is broken."""
        while True:
            with self._changed:
                while not (self._new or self._closing or self._under_way or engine.broken):
                    self._changed.wait()
                if self._closing:
                    return
            self._wait_for_more()
            with self._changed:
                new, self._new = self._new, []
            if engine.broken:
                _give_up(engine.broken, [*self._under_way, *new])
                return
            self._under_way += self._begun(engine, new)
            self._under_way = self._turn(engine, self._under_way)
            with self._changed:
                self._count = len(self._under_way) + len(self._new)
                self._changed.notify_all()

    def _wait_for_more(self) -> None:
        """Wait for requests that have come and are not under way yet, as far as there is room for their texts.

        An engine may hold the interpreter for the whole of a step. Without a wait, requests would advance only between
        two steps, by a bit each time.
        """
        sleep(0)  # whoever waits for the interpreter has it now
        end = monotonic() + _LONGEST_WAIT_S
        while self._count < self._max_texts and (now := monotonic()) < end:
            if not self._beginning and now - self._begun_s > _NEXT_WITHIN_S:
                break
            sleep(_LOOK_S)

    def _begun(self, engine: Engine, new: list[Generation]) -> list[Generation]:
        begun = []
        for generation in new:
            try:
                engine.add(generation)
            except Exception as error:  # each framework fails in its own way
                log_unexpected(error)
                generation.fail(failure_of(error))
            else:
                begun.append(generation)
        return begun

    def _turn(self, engine: Engine, under_way: list[Generation]) -> list[Generation]:
        """Let the texts go on by a step: those that are under way after it."""
        cancelled = [each for each in under_way if each.cancelled]
        if cancelled:
            engine.remove(cancelled)
            for generation in cancelled:
                generation.cancel()
            under_way = [each for each in under_way if each not in cancelled]
        if not under_way:
            self._report(engine, under_way)
            return []
        try:
            engine.step()
        except Exception as error:
            logger.exception("a step of generation failed")
            self._report(engine, [])
            for generation in under_way:
                generation.fail(failure_of(error))
            engine.clear()
            return []
        self._report(engine, under_way)  # before the last responses, by which requests are forgotten
        with self._together():
            for generation in under_way:
                _send(generation)
        ended = [each for each in under_way if each.finish]
        if ended:
            engine.remove(ended)
        return [each for each in under_way if not each.finish]

    def _report(self, engine: Engine, under_way: list[Generation]) -> None:
        """Count what is new of the texts, and tell it if it is time, or if one whose first token is not told ends."""
        if self.on_counts is None:
            return
        now = monotonic_ns()
        count = self._counter.count
        running = 0
        for generation in under_way:
            count(generation, now)
            running += not generation.finish
        ends = running < len(under_way) and self._counter.first_tokens
        if ends or self._counter.is_due(running, now):
            self.on_counts(self._counter.report(running, engine.cache_usage(), now))


def _send(generation: Generation) -> None:
    """Send what is new of a text. If that fails, only this text does."""
    try:
        generation.send()
    except Exception as error:
        log_unexpected(error)
        generation.finish = generation.finish or "error"
        generation.fail(failure_of(error))


def _give_up(why: str, generations: list[Generation]) -> None:
    """Fail the texts, as the engine is broken, and end this process: the server starts another in its place."""
    logger.error("%s; the process ends, and another is started", why)
    try:
        for generation in generations:
            generation.fail(UnavailableError(why))
    finally:
        end_process()


def end_process() -> None:
    """End this process at once."""
    os._exit(1)
