"""One choice of a reply, as the model's responses come."""

from codecs import getincrementaldecoder
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from halimede.core.errors import InternalError
from halimede.core.requests import InferResponse
from halimede.core.stop_words import StopWords
from halimede.frontends.openai.long_json import READ_BYTES
from halimede.frontends.openai.long_json import read as read_json
from halimede.frontends.openai.profile import PROMPT, PROMPT_LOGPROBS, Profile
from halimede.frontends.openai.replies import Output
from halimede.frontends.openai.tensors import count_of, json_of, text_bytes, text_of

_DECODER: Final = getincrementaldecoder("utf-8")
_LOGPROBS: Final = frozenset(("logprobs", "return_logprobs"))
"""Inputs of models that tell log probabilities."""

_NO_REASON: Final = frozenset(("", "None"))
"""What models give as the reason before the last response."""

READ_IN_STEPS: Final = frozenset(("logprobs", PROMPT, PROMPT_LOGPROBS))
"""Outputs of JSON that may be long."""

Read = Mapping[str, Any]
"""Output → its value, of outputs of JSON that were read in steps."""

NOTHING_READ: Final[Read] = {}


class Choice:
    """What has come so far.

    Attributes:
        ended: it is complete.
        pieces: its text.
        tool_calls: calls of tools that the model has made.
        logprobs: log probabilities so far, or None.
        new_logprobs: those of the last response.
        new_calls: the calls of the last response.
        prompt_logprobs: those of the prompt, in vLLM's format; None if the model does not tell them.
        prompt_tokens: as the model says; None if it does not.
        tokens: tokens of the output, likewise.
        finish: why it ended; "" until then.
        stop_word: the stop word that ended it, "" if none did.
    """

    __slots__ = (
        "_before",
        "_decoder",
        "_max_tokens",
        "_profile",
        "_reason",
        "_stop",
        "ended",
        "finish",
        "logprobs",
        "new_calls",
        "new_logprobs",
        "pieces",
        "prompt_logprobs",
        "prompt_tokens",
        "stop_word",
        "tokens",
        "tool_calls",
    )

    def __init__(
        self,
        profile: Profile,
        stop: Sequence[str],
        max_tokens: int,
        echo: str = "",
        *,
        stop_shown: bool = False,
    ) -> None:
        self._profile = profile
        self._stop = StopWords(stop, shown=stop_shown)
        self._max_tokens = max_tokens
        self._decoder = _DECODER("replace")
        self._reason = ""
        self._before = 0  # characters of a prompt that the model repeats
        self.ended = False
        self.pieces = [echo] if echo else []
        self.tool_calls: list[Any] = []
        self.logprobs: Any = None
        self.new_logprobs: Any = None
        self.new_calls: list[Any] = []
        self.prompt_logprobs: Any = None
        self.prompt_tokens: int | None = None
        self.tokens: int | None = None
        self.finish = ""
        self.stop_word = ""

    def read_in_steps(self, response: InferResponse) -> "Generator[None, None, Read] | None":
        """What reads the JSON of a response that is long, for `take`; None if none is.

        Raises (in a step):
            InternalError: an output is not what it should be.
        """
        long = {}
        for field, spec in self._profile.outputs.items():
            told = response.outputs.get(spec.name) if field in READ_IN_STEPS else None
            if told is not None and told.byte_size > READ_BYTES:
                long[spec.name] = text_bytes(told)
        return _read_all(long) if long else None

    def take(self, response: InferResponse, read: "Read" = NOTHING_READ) -> str:
        """The text that a response adds, after the prompt if it repeats that. A cut character waits for its rest.

        Args:
            response: the response.
            read: its JSON that was read in steps.

        Raises:
            InternalError: an output is not what it should be.
        """
        outputs = response.outputs
        tensor = outputs.get(self._profile.output.name)
        piece = "" if tensor is None else self._decoder.decode(text_bytes(tensor))
        text = self._stop.take(piece)
        self.new_calls = []
        self.new_logprobs = None
        prompt: Any = None
        for field, spec in self._profile.outputs.items():
            told = outputs.get(spec.name)
            if told is None:
                continue
            if field == "finish_reason":
                reason = text_of(told)
                if reason not in _NO_REASON:
                    self._reason = reason
            elif field == "stop_reason":
                self.stop_word = text_of(told)
            elif field == "num_input_tokens":
                if self.prompt_tokens is None:  # every response tells it
                    self.prompt_tokens = count_of(told)
            elif field == "num_output_tokens":
                self.tokens = (self.tokens or 0) + count_of(told)
            elif field == "tool_calls":
                calls = json_of(spec.name, told)
                self.new_calls = calls if isinstance(calls, list) else []
                self.tool_calls += self.new_calls
            elif field == "logprobs" and _LOGPROBS & self._profile.inputs.keys():
                self.new_logprobs = read[spec.name] if spec.name in read else json_of(spec.name, told)
            elif field == PROMPT:
                prompt = read[spec.name] if spec.name in read else json_of(spec.name, told)
            elif field == PROMPT_LOGPROBS:
                self.prompt_logprobs = read[spec.name] if spec.name in read else json_of(spec.name, told)
        if prompt is not None:
            self._before = len(prompt["text"])
            text = prompt["text"] + text
        if self.new_logprobs is not None:
            told_before = None if prompt is None else prompt["logprobs"]
            self.new_logprobs = _merged(told_before, _moved(self.new_logprobs, self._before))
            self.logprobs = _merged(self.logprobs, self.new_logprobs)
        if text:
            self.pieces.append(text)
        return text

    @property
    def stopped(self) -> bool:
        """Whether a stop word was found, so that the rest of the output is not wanted."""
        return self._stop.found

    def end(self) -> str:
        """The text that was held back, now that nothing more comes."""
        self.ended = True
        text = ""
        if not self._stop.found:
            text = self._stop.take(self._decoder.decode(b"", final=True)) + self._stop.end()
        if text:
            self.pieces.append(text)
        if self._stop.found:
            self.finish, self.stop_word = "stop", self._stop.word
        elif self._reason:
            self.finish = self._reason
        elif self.tool_calls:
            self.finish = "tool_calls"
        elif self._max_tokens and self.tokens is not None and self.tokens >= self._max_tokens:
            self.finish = "length"
        else:
            self.finish = "stop"
        return text

    @property
    def text(self) -> str:
        """Its text so far."""
        return "".join(self.pieces)

    def output(self) -> Output:
        """The whole of it."""
        return Output(self.text, self.finish, self.tool_calls, self.logprobs, self.prompt_logprobs)


def _read_all(long: Mapping[str, bytes]) -> "Generator[None, None, Read]":
    values = {}
    for name, text in long.items():
        try:
            values[name] = yield from read_json(text)
        except ValueError:
            raise InternalError(f"the model's output '{name}' is not JSON") from None
    return values


def _moved(logprobs: Any, characters: int) -> Any:
    """Log probabilities of a text behind so many characters."""
    if not characters or not isinstance(logprobs, dict) or "text_offset" not in logprobs:
        return logprobs
    return {**logprobs, "text_offset": [offset + characters for offset in logprobs["text_offset"]]}


def _merged(before: Any, new: Any) -> Any:
    """Log probabilities of two responses: lists one after another."""
    if isinstance(before, list) and isinstance(new, list):
        return before + new
    if not (isinstance(before, dict) and isinstance(new, dict)):
        return before if new is None else new
    merged = dict(before)
    for name, value in new.items():
        both = isinstance(merged.get(name), list) and isinstance(value, list)
        merged[name] = merged[name] + value if both else value
    return merged
