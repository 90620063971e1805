"""The JSON of OpenAI's replies: what each call's are made of, and those to chat and completions."""

import time
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import orjson

from halimede.core.errors import HalimedeError
from halimede.frontends.openai.errors import error_document
from halimede.frontends.openai.long_json import Steps, encode, has_many, steps
from halimede.frontends.openai.text_request import TextRequest

EVENT: Final = b"data: "
EVENT_END: Final = b"\n\n"
DONE: Final = b"data: [DONE]\n\n"


class Usage(NamedTuple):
    """Tokens of a request and of its outputs."""

    prompt: int
    completion: int

    def document(self) -> dict[str, int]:
        """The JSON of it."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }


class Output(NamedTuple):
    """One choice, whole.

    Attributes:
        text: its text.
        finish: why it ended.
        tool_calls: the tools that the model calls, as OpenAI's JSON has them.
        logprobs: log probabilities likewise, or None.
        prompt_logprobs: those of the prompt, in vLLM's format, or None.
    """

    text: str
    finish: str
    tool_calls: list[Any]
    logprobs: Any
    prompt_logprobs: Any = None


class Replies(Protocol):
    """The replies to one request: one as a whole, or the events of a stream.

    Events with many log probabilities are made in steps; no other is asked for before these are taken.
    """

    id: str

    def whole(self, outputs: Sequence[Output], usage: Usage | None) -> bytes | Steps:
        """The reply that is not streamed; with many log probabilities, what makes it in steps."""

    def begin(self, index: int) -> bytes:
        """The first events of a choice; empty for none."""

    def text(self, index: int, text: str) -> bytes:
        """A piece of a choice's text."""

    def text_with_logprobs(self, index: int, text: str, logprobs: Any) -> bytes | Steps:
        """A piece of a choice's text with its log probabilities."""

    def tool_calls(self, index: int, calls: list[Any], first: int) -> bytes | Steps:
        """Calls of tools, the first of which is the choice's call number `first`."""

    def end(self, index: int, output: Output) -> bytes | Steps:
        """The last events of a choice."""

    def complete(self, usage: Usage | None) -> bytes | Steps:
        """The last events of a stream."""

    def failure(self, error: HalimedeError) -> bytes | Steps:
        """The last event of a stream that fails."""


class ChoiceReplies:
    """Those of chat and completions.

    Attributes:
        id: of all of them.
    """

    __slots__ = ("_chat", "_delta", "_frame", "_include_usage", "_plain_end", "id")

    def __init__(self, model: str, asked: TextRequest) -> None:
        chat = self._chat = asked.chat
        self._include_usage = asked.include_usage
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{asked.id or uuid.uuid4().hex}"
        kind = ("chat.completion" if chat else "text_completion") + (
            ".chunk" if chat and asked.stream else ""
        )
        self._frame: dict[str, Any] = {
            "id": self.id,
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }
        usage = b',"usage":null' if asked.include_usage else b""
        self._delta = EVENT + orjson.dumps(self._frame)[:-1] + b',"choices":[{"index":'
        self._plain_end = b"}]" + usage + b"}" + EVENT_END

    def whole(self, outputs: Sequence[Output], usage: Usage | None) -> bytes | Steps:
        """The reply that is not streamed; with many log probabilities, what makes it in steps."""
        document = {**self._frame, "choices": [self._choice(*each) for each in enumerate(outputs)]}
        if usage is not None:
            document["usage"] = usage.document()
        if self._chat and outputs[0].prompt_logprobs is not None:  # as vLLM has it
            document["prompt_logprobs"] = outputs[0].prompt_logprobs
        for output in outputs:
            if output.logprobs is not None or output.prompt_logprobs is not None:
                return encode(document)
        return orjson.dumps(document)

    def _choice(self, index: int, output: Output) -> dict[str, Any]:
        end: dict[str, Any] = {"logprobs": output.logprobs, "finish_reason": output.finish}
        if not self._chat:
            if output.prompt_logprobs is not None:
                end["prompt_logprobs"] = output.prompt_logprobs
            return {"index": index, "text": output.text, **end}
        message: dict[str, Any] = {"role": "assistant", "content": output.text, "refusal": None}
        if output.tool_calls:
            message["tool_calls"] = output.tool_calls
            message["content"] = output.text or None
        return {"index": index, "message": message, **end}

    def begin(self, index: int) -> bytes:
        """The first chunk of a choice of a chat; nothing for completions."""
        return self._event(index, {"role": "assistant", "content": ""}) if self._chat else b""

    def text(self, index: int, text: str) -> bytes:
        """A chunk of a choice's text."""
        if not self._chat:
            return self._event(index, {}, text=text)
        return b'%b%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null%b' % (
            self._delta,
            index,
            orjson.dumps(text),
            self._plain_end,
        )

    def text_with_logprobs(self, index: int, text: str, logprobs: Any) -> bytes | Steps:
        """A chunk of a choice's text with its log probabilities."""
        if has_many(logprobs):
            return self._text_in_steps(index, text, logprobs)
        return self._event(index, {"content": text}, logprobs=logprobs, text=text)

    def _text_in_steps(self, index: int, text: str, logprobs: Any) -> Steps:
        yield
        content = {"delta": {"content": text}} if self._chat else {"text": text}
        first, *parts = yield from steps({**content, "logprobs": logprobs, "finish_reason": None})
        parts.pop()  # the brace that closes, as the one that opens: they are members of a larger object
        return [b"%b%d,%b" % (self._delta, index, bytes(first)[1:]), *parts, self._plain_end]

    def tool_calls(self, index: int, calls: list[Any], first: int) -> bytes:
        """A chunk with calls of tools, numbered from `first` on if the model has not done so."""
        numbered = [
            {"index": number, **call} if isinstance(call, dict) else call
            for number, call in enumerate(calls, first)
        ]
        return self._event(index, {"tool_calls": numbered})

    def end(self, index: int, output: Output) -> bytes:
        """The last chunk of a choice."""
        return self._event(index, {}, finish=output.finish)

    def complete(self, usage: Usage | None) -> bytes:
        """The end of a stream: the usage, if that is asked for."""
        if not self._include_usage:
            return DONE
        document = {**self._frame, "choices": [], "usage": None if usage is None else usage.document()}
        return EVENT + orjson.dumps(document) + EVENT_END + DONE

    def failure(self, error: HalimedeError) -> bytes:
        """The last event of a stream that fails."""
        return EVENT + orjson.dumps(error_document(error)) + EVENT_END

    def _event(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        logprobs: Any = None,
        text: str = "",
    ) -> bytes:
        content = {"delta": delta} if self._chat else {"text": text}
        rest = orjson.dumps({**content, "logprobs": logprobs, "finish_reason": finish})[1:-1]
        return b"%b%d,%b%b" % (self._delta, index, rest, self._plain_end)
