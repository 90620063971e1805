"""Finds calls of tools in a text that comes piece by piece."""

import re
import uuid
from collections.abc import Iterable
from typing import Any, Final

import orjson

from halimede.backends.language.tools.formats import MARKS, ToolFormat
from halimede.backends.language.tools.json_objects import JsonObjects
from halimede.backends.language.tools.tool_use import ToolUse

_END_MARK: Final = "</tool_call>"
_HEADER: Final = re.compile(r"([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)")
"""The name before the arguments, as newer models of Mistral write it."""
_PART_OF_HEADER: Final = re.compile(r"[\w.-]{1,256}(?:\[[A-Z_]*(?:\]\w*)?){0,2}\s*")
_SEPARATORS: Final = {
    ToolFormat.HERMES: re.compile(r"\s*"),
    ToolFormat.LLAMA3_JSON: re.compile(r"[\s;,]*"),
    ToolFormat.MISTRAL: re.compile(r"(?:[\s,\]]|\[(?=[\s{\]]))*"),
    None: re.compile(r"[^{]*"),
}
"""What stands around calls and says nothing."""


class CallParser:
    """Divides a text into what is said and what is called. Of what is no call, nothing is lost.

    Attributes:
        complete: nothing more is wanted, as there is one call, and there may be only one.

    Args:
        use: how the text may call tools.
    """

    def __init__(self, use: ToolUse) -> None:
        self._use = use
        self._mark = MARKS[use.format] if use.format is not None else ""
        self._in_calls = use.format is None
        self._begun = False  # something else than white space has come
        self._held = ""  # text that may be the beginning of a mark
        self._before = ""  # what stands before a call, and is said if that is none
        self._called = False  # a call came since the mark
        self._name = ""  # of the call whose arguments follow
        self._objects = JsonObjects()
        self._count = 0
        self.complete = False

    def take(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """What a piece adds: text that is said, and parts of calls as OpenAI's streams have them."""
        if self._use.named:
            return "", self._named(text)
        said: list[str] = []
        calls: list[dict[str, Any]] = []
        self._held += text
        while self._held and not self.complete:
            before = (self._in_calls, len(self._held))
            if self._in_calls:
                self._take_calls(said, calls)
            else:
                self._take_said(said)
            if (self._in_calls, len(self._held)) == before:
                break
        return "".join(said), calls

    def end(self) -> str:
        """What was held back: text that looked like the beginning of a call, and is none."""
        if self._use.format is None:  # all of the text is calls, and the last one was cut
            return ""
        rest = "" if self.complete else self._before + self._objects.unfinished + self._held
        self._held = self._before = ""
        return rest if rest.strip() else ""

    def _named(self, text: str) -> list[dict[str, Any]]:
        """All of the text is the arguments of one call."""
        if not self._count:
            return [self._call(self._use.named, text)]
        return [{"index": 0, "function": {"arguments": text}}] if text else []

    def _take_said(self, said: list[str]) -> None:
        """Take what is said before a mark."""
        if not self._begun:
            stripped = self._held.lstrip()
            if not stripped:
                return
            opens = self._opens(stripped)
            if opens is not False:
                self._held, self._in_calls = stripped, opens is True
                return
        place = self._held.find(self._mark)
        if place >= 0:
            before = self._held[:place]
            if self._begun or before.strip():
                said.append(before)
            self._held = self._held[place + len(self._mark) :]
            self._before, self._called = self._mark, False
            self._in_calls = True
            return
        keep = _overlap(self._held, self._mark)
        if keep == len(self._held.lstrip()) and not self._begun:
            return  # perhaps the mark comes, and white space before it is not said
        self._begun = True
        said.append(self._held[: len(self._held) - keep])
        self._held = self._held[len(self._held) - keep :]

    def _opens(self, text: str) -> bool | None:
        """Whether a text is calls only, by its beginning; None if that is still open.

        Tokenizers may hide the mark because it is a special token.
        """
        if self._use.format is ToolFormat.LLAMA3_JSON:
            return text.startswith("{")
        if self._use.format is not ToolFormat.MISTRAL:
            return False
        if text.startswith("["):
            inner = text[1:].lstrip()
            return inner.startswith("{") if inner else None
        header = _HEADER.match(text)
        if header is not None:
            return header[1] in self._use.names
        may_follow = _PART_OF_HEADER.fullmatch(text) and any(
            name.startswith(text) or text.startswith(name) for name in self._use.names
        )
        return None if may_follow else False

    def _take_calls(self, said: list[str], calls: list[dict[str, Any]]) -> None:
        """Take a call, or what is between two."""
        if not self._objects.unfinished and not self._reaches_object(said):
            return
        found, self._held = self._objects.take(self._held)
        for text in found:
            call = self._read(text)
            if call is None:
                self._say(said, text)
            else:
                calls.append(call)
                self._before = self._name = ""
                self._called = True
                self.complete = self._use.single

    def _reaches_object(self, said: list[str]) -> bool:
        """Take what stands before an object: whether one begins then."""
        form = self._use.format
        separators = _SEPARATORS[form].match(self._held)
        if separators is not None:
            self._skip(separators.end(), keep=not self._called)
        held = self._held
        if not held or held.startswith("{"):
            return bool(held)
        mark = _END_MARK if form is ToolFormat.HERMES else self._mark
        if held.startswith(mark):
            self._held = held[len(mark) :]
            self._before, self._called = mark, False
            if form is ToolFormat.HERMES:
                self._before = ""
                self._in_calls = self._begun = False  # white space between calls is not said
                return False
            return self._reaches_object(said)
        if mark.startswith(held):
            return False
        if form is ToolFormat.MISTRAL:
            header = _HEADER.match(held)
            if header is not None:
                self._name = header[1]
                self._skip(header.end(), keep=True)
                return True
            if _PART_OF_HEADER.fullmatch(held):
                return False
        self._say(said, "")
        return False

    def _skip(self, count: int, *, keep: bool) -> None:
        """Pass over text, which is said if no call follows and it is to be kept."""
        if keep:
            self._before += self._held[:count]
        self._held = self._held[count:]

    def _say(self, said: list[str], text: str) -> None:
        """Say what is no call, and what follows it."""
        if self._use.format is not None:
            said.append(self._before + text)
            self._in_calls = False
            self._begun = True
        self._before = self._name = ""

    def _read(self, text: str) -> dict[str, Any] | None:
        """A call that an object is, None if it is none."""
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        if self._name:
            return self._call(self._name, text) if self._name in self._use.names else None
        name = document.get("name")
        arguments = document.get("arguments", document.get("parameters"))
        if name not in self._use.names or not isinstance(arguments, dict | str):
            return None
        return self._call(name, arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode())

    def _call(self, name: str, arguments: str) -> dict[str, Any]:
        index, self._count = self._count, self._count + 1
        return {
            "index": index,
            "id": f"call_{uuid.uuid4().hex}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }


def merged(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Whole calls of the parts that a stream would have."""
    calls: dict[int, dict[str, Any]] = {}
    for part in parts:
        index = part["index"]
        if index in calls:
            calls[index]["function"]["arguments"] += part["function"]["arguments"]
        else:
            calls[index] = {"id": part["id"], "type": part["type"], "function": dict(part["function"])}
    return [calls[index] for index in sorted(calls)]


def joined(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same parts, of which those of the same call that follow one another are one."""
    found: list[dict[str, Any]] = []
    for part in parts:
        if found and found[-1]["index"] == part["index"]:
            function = found[-1]["function"]
            arguments = function["arguments"] + part["function"]["arguments"]
            found[-1] = {**found[-1], "function": {**function, "arguments": arguments}}
        else:
            found.append(part)
    return found


def _overlap(text: str, mark: str) -> int:
    """How much of the text's end is the beginning of a mark."""
    return next(
        (size for size in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:size])), 0
    )
