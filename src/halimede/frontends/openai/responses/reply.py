"""The JSON of a response, whole and as the events of a stream."""

import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

import orjson

from halimede.core.errors import HalimedeError, InternalError
from halimede.core.tensors import Buffer
from halimede.frontends.openai.long_json import ITEMS, Steps, encode, object_of, steps
from halimede.frontends.openai.replies import EVENT, EVENT_END, Output, Usage

_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons why a choice ended → why a response is incomplete."""

_DELTA: Final = "response.output_text.delta"


class ResponseReply:
    """The reply to one request. As a stream, it has the state that the events so far have told.

    Args:
        model: the model's name.
        repeated: the members that repeat the request.
        request_id: what the client calls the request, "" for nothing.

    Attributes:
        id: the response's.
    """

    __slots__ = (
        "_delta",
        "_finish",
        "_is_long",
        "_items",
        "_logprobs",
        "_members",
        "_open",
        "_sequence",
        "_text",
        "id",
    )

    def __init__(self, model: str, repeated: dict[str, Any], request_id: str = "") -> None:
        self.id = f"resp_{request_id}" if request_id else _identifier("resp")
        self._members = {
            "id": self.id,
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            **repeated,
        }
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        self._open = False
        self._text: list[str] = []
        self._logprobs: list[Any] = []
        self._delta = b""
        self._finish = ""
        self._is_long = False  # an item has many log probabilities

    def whole(self, outputs: Sequence[Output], usage: Usage | None) -> bytes | Steps:
        """The reply that is not streamed; with many log probabilities, what makes it in steps."""
        (output,) = outputs
        content = _content(output.logprobs)
        if len(content) > ITEMS:
            return self._whole_in_steps(output, content, usage)
        return orjson.dumps(self._whole(output, _converted(content), usage))

    def _whole(self, output: Output, logprobs: list[Any], usage: Usage | None) -> dict[str, Any]:
        items = [_call_item(call) for call in output.tool_calls]
        if output.text or not items:
            part = _part(output.text, logprobs)
            items.insert(0, _message(_identifier("msg"), _status(output.finish), [part]))
        return self._document(_status(output.finish), items, output.finish, usage)

    def _whole_in_steps(self, output: Output, content: list[Any], usage: Usage | None) -> Steps:
        logprobs: list[Any] = []
        for start in range(0, len(content), ITEMS):
            logprobs += _converted(content[start : start + ITEMS])
            yield
        encoded = encode(self._whole(output, logprobs, usage))
        return [encoded] if isinstance(encoded, bytes) else (yield from encoded)

    # events

    def begin(self, index: int) -> bytes:
        """The first events of a stream; `index` is that of its only choice, here and below."""
        document = self._document("in_progress", [], "", None)
        return _encoded(
            self._event("response.created", response=document),
            self._event("response.in_progress", response=document),
        )

    def text(self, index: int, text: str) -> bytes:
        """A piece of the text."""
        began = b"" if self._open else self._begin_message()
        self._text.append(text)
        return b'%b%b,"logprobs":[]}%b' % (began, self._piece(text), EVENT_END)

    def text_with_logprobs(self, index: int, text: str, logprobs: Any) -> bytes | Steps:
        """A piece of the text, with its log probabilities."""
        content = _content(logprobs)
        if len(content) > ITEMS:
            return self._text_in_steps(text, content)
        began = b"" if self._open else self._begin_message()
        self._text.append(text)
        new = _converted(content)
        self._logprobs += new
        return b'%b%b,"logprobs":%b}%b' % (began, self._piece(text), orjson.dumps(new), EVENT_END)

    def _text_in_steps(self, text: str, content: list[Any]) -> Steps:
        parts: list[Buffer] = [b"" if self._open else self._begin_message()]
        self._text.append(text)
        parts.append(self._piece(text))
        before = b',"logprobs":['
        for start in range(0, len(content), ITEMS):
            new = _converted(content[start : start + ITEMS])
            self._logprobs += new
            parts += [before, orjson.dumps(new)[1:-1]]
            before = b","
            yield
        return [*parts, b"]}", EVENT_END]

    def _piece(self, text: str) -> bytes:
        """The event with a piece of the text, but for its last member and its end."""
        self._sequence += 1
        return b'%b%d,"delta":%b' % (self._delta, self._sequence - 1, orjson.dumps(text))

    def tool_calls(self, index: int, calls: list[Any], first: int) -> bytes | Steps:
        """Calls of functions, each an item of its own; `first` is the number of calls before."""
        new = [_call_item(call) for call in calls]
        events = self._end_message("completed")
        for item in new:
            place = {"item_id": item["id"], "output_index": len(self._items)}
            added = {**item, "status": "in_progress", "arguments": ""}
            self._items.append(item)
            arguments = "response.function_call_arguments"
            events += [
                self._event("response.output_item.added", output_index=place["output_index"], item=added),
                self._event(f"{arguments}.delta", **place, delta=item["arguments"]),
                self._event(f"{arguments}.done", **place, name=item["name"], arguments=item["arguments"]),
                self._event("response.output_item.done", output_index=place["output_index"], item=item),
            ]
        return self._made(events)

    def end(self, index: int, output: Output) -> bytes | Steps:
        """The output has ended."""
        self._finish = output.finish
        began = b"" if self._open or self._items else self._begin_message()
        return self._made(self._end_message(_status(output.finish)), began)

    def complete(self, usage: Usage | None) -> bytes | Steps:
        """The last event of a stream."""
        status = _status(self._finish)
        document = self._document(status, self._items, self._finish, usage)
        return self._made([self._event(f"response.{status}", response=document)])

    def failure(self, error: HalimedeError) -> bytes | Steps:
        """The last event of a stream that fails."""
        document = self._document("failed", self._items, "", None)
        code = "server_error" if error.code.http_status >= 500 else "invalid_prompt"
        document["error"] = {"code": code, "message": error.message}
        return self._made([self._event("response.failed", response=document)])

    def _begin_message(self) -> bytes:
        self._open = True
        self._text, self._logprobs = [], []
        identifier = _identifier("msg")
        place = {"item_id": identifier, "output_index": len(self._items), "content_index": 0}
        item = _message(identifier, "in_progress", [])
        self._items.append(item)
        head = orjson.dumps({"type": _DELTA, **place})[:-1]
        self._delta = b'event: %b\n%b%b,"sequence_number":' % (_DELTA.encode(), EVENT, head)
        return _encoded(
            self._event("response.output_item.added", output_index=place["output_index"], item=item),
            self._event("response.content_part.added", **place, part=_part("", [])),
        )

    def _end_message(self, status: str) -> list[dict[str, Any]]:
        """The last events of the message that has begun; none if none has."""
        if not self._open:
            return []
        self._open = False
        self._is_long = self._is_long or len(self._logprobs) > ITEMS
        text = "".join(self._text)
        part = _part(text, self._logprobs)
        item = self._items[-1]
        place = {"item_id": item["id"], "output_index": len(self._items) - 1, "content_index": 0}
        item |= {"status": status, "content": [part]}
        return [
            self._event("response.output_text.done", **place, text=text, logprobs=self._logprobs),
            self._event("response.content_part.done", **place, part=part),
            self._event("response.output_item.done", output_index=place["output_index"], item=item),
        ]

    def _event(self, kind: str, **members: Any) -> dict[str, Any]:
        """The next event."""
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence - 1, **members}

    def _made(self, events: list[dict[str, Any]], before: bytes = b"") -> bytes | Steps:
        """Events behind others, encoded; what encodes them in steps if the items have many log probabilities."""
        return _encoded_in_steps(before, events) if self._is_long else before + _encoded(*events)

    def _document(
        self, status: str, items: list[dict[str, Any]], finish: str, usage: Usage | None
    ) -> dict[str, Any]:
        reason = _INCOMPLETE.get(finish)
        return {
            **self._members,
            "status": status,
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "output": items,
            "usage": None if usage is None else _usage(usage),
        }


def _encoded(*events: dict[str, Any]) -> bytes:
    return b"".join(b"%b%b%b" % (_head(event), orjson.dumps(event), EVENT_END) for event in events)


def _encoded_in_steps(before: bytes, events: list[dict[str, Any]]) -> Steps:
    parts: list[Buffer] = [before]
    for event in events:
        encoded = yield from steps(event)
        parts += [_head(event), *encoded, EVENT_END]
        yield
    return parts


def _head(event: dict[str, Any]) -> bytes:
    return b"event: %b\n%b" % (event["type"].encode(), EVENT)


def _identifier(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def _status(finish: str) -> str:
    return "incomplete" if finish in _INCOMPLETE else "completed"


def _message(identifier: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": identifier, "type": "message", "status": status, "role": "assistant", "content": content}


def _part(text: str, logprobs: list[Any]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _call_item(call: Any) -> dict[str, Any]:
    """A call as the model tells it, in the format of chats, as an item.

    Raises:
        InternalError: it has another format.
    """
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str):
        raise InternalError(
            "the model calls a tool, but its output is not a list of calls of functions with names"
        )
    arguments = function.get("arguments", "")
    return {
        "id": _identifier("fc"),
        "type": "function_call",
        "status": "completed",
        "call_id": str(call.get("id") or _identifier("call")),
        "name": name,
        "arguments": arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode(),
    }


def _content(logprobs: Any) -> list[Any]:
    """What log probabilities of a chat tell of each token."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return content if isinstance(content, list) else []


def _converted(content: list[Any]) -> list[Any]:
    """Log probabilities of a chat as those of a text; bytes of tokens are told, even if the model does not."""
    converted: list[Any] = []
    for item in content:
        each = object_of(item)
        if isinstance(each, dict):
            tops = [_with_bytes(top) for top in each.get("top_logprobs") or ()]
            told = {**_with_bytes(each), "top_logprobs": tops}
            converted.append(told if each is item else orjson.Fragment(orjson.dumps(told)))
    return converted


def _with_bytes(each: dict[str, Any]) -> dict[str, Any]:
    if each.get("bytes") is not None:
        return each
    return {**each, "bytes": list(str(each.get("token", "")).encode())}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
