"""Where in the text of a `config.pbtxt` its fields stand, so that a problem can be told with its line.

A field is named by its path: ``input[0].dims``, ``parameters["threads"].string_value``.
"""

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.text_format import Tokenizer

from halimede.config.model_config_pb2 import ModelConfig


@dataclass(frozen=True, slots=True)
class Locations:
    """Where the fields of a text stand.

    Attributes:
        lines: path → line, from 1.
        repeated_keys: paths of map entries whose key occurred before, each with the line of the later one,
            which is the one that counts.
    """

    lines: dict[str, int] = field(default_factory=dict)
    repeated_keys: list[tuple[str, int]] = field(default_factory=list)

    def line(self, path: str) -> int:
        """The line of the field, or of the nearest one around it; 0 if there is none."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return 0


def locate(text: str) -> Locations:
    """Where the fields of a text stand that `parse_text` has accepted."""
    locations = Locations()
    tokens = Tokenizer(text.split("\n"))
    counts: dict[str, int] = {}
    while not tokens.AtEnd():
        _field(tokens, ModelConfig.DESCRIPTOR, "", counts, locations)
    return locations


def _field(
    tokens: Tokenizer, message: Any, prefix: str, counts: dict[str, int], locations: Locations
) -> None:
    """Pass one field, with all that is in it. `counts`: how often each field was seen in this message."""
    name = tokens.ConsumeIdentifier()
    line = _line(tokens)
    tokens.TryConsume(":")
    descriptor = message.fields_by_name[name]
    path = f"{prefix}{name}"
    locations.lines.setdefault(path, line)
    is_list = tokens.TryConsume("[")
    while not (is_list and tokens.TryConsume("]")):
        start = 0 if is_list else line
        if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
            _entry(tokens, descriptor.message_type, path, start, locations)
        elif descriptor.is_repeated:
            index = counts.get(name, 0)
            counts[name] = index + 1
            _value(tokens, descriptor, f"{path}[{index}]", start, locations)
        else:
            _value(tokens, descriptor, path, start, locations)
        if not is_list:
            break
        tokens.TryConsume(",")
    _separator(tokens)


def _value(tokens: Tokenizer, descriptor: Any, path: str, start: int, locations: Locations) -> None:
    """Pass one value. `start`: the line that it counts as standing on; 0 for that of its first token."""
    if descriptor.message_type is None:
        if tokens.token[:1] in "'\"":
            tokens.ConsumeString()  # all of several strings in a row
        else:
            tokens.NextToken()
        locations.lines[path] = start or _line(tokens)
        return
    end = _open(tokens)
    locations.lines[path] = start or _line(tokens)
    counts: dict[str, int] = {}
    while not tokens.TryConsume(end):
        _field(tokens, descriptor.message_type, f"{path}.", counts, locations)


def _entry(tokens: Tokenizer, entry: Any, path: str, start: int, locations: Locations) -> None:
    """Pass one entry of a map. Its key may stand behind its value, so paths get it afterwards."""
    inner = Locations()
    key = '""' if entry.fields_by_name["key"].cpp_type == entry.fields_by_name["key"].CPPTYPE_STRING else "0"
    end = _open(tokens)
    line = start or _line(tokens)
    while not tokens.TryConsume(end):
        if tokens.LookingAt("key"):
            tokens.NextToken()
            tokens.TryConsume(":")
            key = f'"{tokens.ConsumeString()}"' if tokens.token[:1] in "'\"" else str(tokens.ConsumeInteger())
            _separator(tokens)
        else:
            _field(tokens, entry, "", {}, inner)
    path = f"{path}[{key}]"
    if path in locations.lines:
        locations.repeated_keys.append((path, line))
    for below, its_line in inner.lines.items():
        locations.lines[path + below.removeprefix("value")] = its_line
    locations.lines[path] = line
    locations.repeated_keys.extend(
        (path + below.removeprefix("value"), at) for below, at in inner.repeated_keys
    )


def _line(tokens: Tokenizer) -> int:
    """The line of the token that was consumed last, which the tokenizer tells in its errors only."""
    error = tokens.ParseErrorPreviousToken("")  # type: ignore[arg-type] # it takes a text, not what its stub says
    return error.GetLine() or 0


def _separator(tokens: Tokenizer) -> None:
    if not tokens.TryConsume(","):
        tokens.TryConsume(";")


def _open(tokens: Tokenizer) -> str:
    if tokens.TryConsume("<"):
        return ">"
    tokens.Consume("{")
    return "}"
