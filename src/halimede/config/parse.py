"""Reading a model's configuration: `config.pbtxt`, and the JSON that overrides it.

Neither can nest deeper than the schema, so neither can exhaust the stack; their size is bounded.
"""

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import orjson
from google.protobuf import json_format, text_format

from halimede.config.brackets import bracket_fault
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, NotFoundError

MAX_SIZE = 4 << 20
"""Bytes of the largest configuration that is read; real ones are a hundred times smaller."""

MAX_VALUES = 16_384
"""Values of the largest configuration that is read as JSON: objects, arrays, strings, numbers and booleans."""

_UNKNOWN_FIELD = re.compile(r'Message type "(?P<type>[\w.]+)" has no field named "(?P<name>.*)"', re.DOTALL)
_UNKNOWN_VALUE = re.compile(r"""Enum type "(?P<type>[\w.]+)" has no value named (?P<name>\w+|"\w+"|'\w+')""")
_TWICE = re.compile(r'Message type "[\w.]+" should not have multiple "(?P<name>\w+)" fields')
_ONE_OF = re.compile(r'Field "(?P<one>\w+)" is specified along with field "(?P<other>\w+)"')

_STRING_OR_COMMENT = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""")
_ESCAPE = re.compile(r"\\.[0-9a-fA-F]{0,8}")
_KNOWN_ESCAPE = re.compile(r"""\\(?:[abfnrtv\\?'"]|[0-7]|[xX][0-9a-fA-F]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})""")

_NO_DATATYPE = "TYPE_INVALID"
_OTHER_NAMES = {
    "float": "TYPE_FP32",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "double": "TYPE_FP64",
    "half": "TYPE_FP16",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "boolean": "TYPE_BOOL",
    "byte": "TYPE_UINT8",
    "char": "TYPE_INT8",
    "short": "TYPE_INT16",
    "int": "TYPE_INT32",
    "integer": "TYPE_INT32",
    "long": "TYPE_INT64",
    "uint": "TYPE_UINT32",
    "bytes": "TYPE_STRING",
    "str": "TYPE_STRING",
    "text": "TYPE_STRING",
}
"""What other programs call the datatypes: names that are alike are not those of the same datatype."""

MessageType = Any
"""A message's or a field's descriptor: its class depends on how protobuf is built, and so do its type stubs."""
FieldType = Any

_POOL = ModelConfig.DESCRIPTOR.file.pool
_PACKAGE = f"{ModelConfig.DESCRIPTOR.file.package}."


class ConfigTextError(InvalidArgumentError):
    """The text of a configuration is not what the schema says.

    Attributes:
        line: where, from 1; 0 if it concerns the whole file.
        column: where in the line, from 1; 0 likewise.
        fix: what the line should be, "" if that cannot be told.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0, fix: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.fix = fix


def read_config(path: Path) -> ModelConfig:
    """The configuration in a file in protobuf's text format.

    Raises:
        NotFoundError: there is no such file.
        ConfigTextError: it cannot be read, or is not a model configuration.
    """
    return parse_text(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a configuration file.

    Raises:
        NotFoundError: there is no such file.
        ConfigTextError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SIZE + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"failed to open text file for read {path}: {error.strerror}") from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigTextError(f"failed to open text file for read {path}: {reason}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(content) > MAX_SIZE:
            raise _too_large(str(path)) from error
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise _text_error(str(path), "it is not UTF-8; save it as UTF-8", line, column) from error


def parse_text(text: str, origin: str) -> ModelConfig:
    """The configuration that a text in protobuf's text format spells.

    Args:
        text: the text.
        origin: where it comes from, for errors; usually a path.

    Raises:
        ConfigTextError: it is not a model configuration.
    """
    if len(text) > MAX_SIZE:
        raise _too_large(origin)
    if "\\" in text:
        _refuse_unknown_escapes(text, origin)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        column = error.start - text.rfind("\n", 0, error.start)
        what = f"the character U+{ord(text[error.start]):04X} cannot be part of a text"
        raise _text_error(origin, what, line, column) from error
    try:
        return text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        line, column = error.GetLine() or 0, error.GetColumn() or 0
        lines = text.split("\n")
        source = lines[line - 1] if 0 < line <= len(lines) else ""
        what, fix = _explain(str(error), source, column)
        before = sum(len(each) + 1 for each in lines[: max(line - 1, 0)])
        if fault := bracket_fault(text, before + max(column - 1, 0)):
            what = f"{what}; {fault}"
        raise _text_error(origin, what, line, column, fix) from error
    except ValueError as error:
        raise _text_error(origin, _shorten(str(error))) from error


def _refuse_unknown_escapes(text: str, origin: str) -> None:
    """Refuse escapes that protobuf does not have, and its Python parser takes as they are.

    Raises:
        ConfigTextError: there is one.
    """
    for string in _STRING_OR_COMMENT.finditer(text):
        for escape in () if string[0].startswith("#") else _ESCAPE.finditer(string[0]):
            if not _KNOWN_ESCAPE.match(escape[0]):
                start = string.start() + escape.start()
                line = text.count("\n", 0, start) + 1
                column = start - text.rfind("\n", 0, start)
                what = f"invalid escape sequence {escape[0][:2]} in string literal"
                raise _text_error(origin, what, line, column)


def _too_large(origin: str) -> ConfigTextError:
    return _text_error(origin, f"it is larger than {MAX_SIZE} bytes, the most that a configuration may have")


def _text_error(origin: str, what: str, line: int = 0, column: int = 0, fix: str = "") -> ConfigTextError:
    where = f"line {line}, column {column}: " if line else ""
    return ConfigTextError(f"failed to read text proto from {origin}: {where}{what}", line, column, fix)


def _explain(report: str, source: str, column: int) -> tuple[str, str]:
    """What is wrong and what would be right, and the mended line, from the tokenizer's own report."""
    if match := _UNKNOWN_FIELD.search(report):
        message = _POOL.FindMessageTypeByName(match["type"])
        name = match["name"]
        return _unknown(name, f"a field of {message.name}", list(message.fields_by_name), source, column)
    if match := _UNKNOWN_VALUE.search(report):
        enum = _POOL.FindEnumTypeByName(match["type"])
        quoted, known = match["name"], list(enum.values_by_name)
        name = quoted.strip("\"'")
        if quoted == name:
            return _unknown(name, f"a {enum.name}", known, source, column)
        right = name if name in known else suggest(name, known)
        mended = _mended(source, column, quoted, right) if right else ""
        return f"{_shorten(quoted)} is in quotes, but a {enum.name} is a name without them", mended
    if match := _TWICE.search(report):
        return f"'{match['name']}' is given twice; it may be given once", ""
    if match := _ONE_OF.search(report):
        what = f"'{match['one']}' and '{match['other']}' exclude each other; only one may be given"
        batchers = {match["one"], match["other"]} == {"sequence_batching", "dynamic_batching"}
        return what, f"remove {'dynamic_batching' if batchers else match['one']}"
    # what remains ends with the reason, after the position and a copy of the line
    reason = re.sub(r"^\d+:\d+ : ", "", report).rpartition("': ")[2]
    reason = reason[:1].lower() + reason[1:].rstrip(".")
    return _shorten(reason), "}" if reason == 'expected "}"' else ""


def _unknown(name: str, kind: str, known: list[str], source: str, column: int) -> tuple[str, str]:
    right = suggest(name, known)
    if not right:
        return f"'{_shorten(name)}' is not {kind}, which are: {', '.join(sorted(known))}", ""
    return f"'{_shorten(name)}' is not {kind}; did you mean '{right}'?", _mended(source, column, name, right)


def _mended(source: str, column: int, wrong: str, right: str) -> str:
    start = column - 1
    return _shorten((source[:start] + source[start:].replace(wrong, right, 1)).strip())


def suggest(name: str, known: list[str]) -> str:
    """The name among `known` that was probably meant, "" if there is none."""
    for candidate in known:
        if candidate.lower() == name.lower() or candidate.endswith(f"_{name.upper()}"):
            return candidate
    if len(name) > 100:
        return ""
    bare = name.lower().removeprefix("type_").removeprefix("dt_").removesuffix("_t")
    for other in (_OTHER_NAMES.get(bare, ""), f"TYPE_{bare.upper()}"):
        if other in known:
            return other
    return next(iter(get_close_matches(name, [each for each in known if each != _NO_DATATYPE], 1)), "")


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def parse_json(text: str | bytes) -> ModelConfig:
    """The configuration that a load request brings as JSON. Enum values may be written in any case.

    Raises:
        InvalidArgumentError: it is not JSON, or not a model configuration.
    """
    if len(text) > MAX_SIZE:
        raise _override_error(f"it is larger than {MAX_SIZE} bytes, the most that a configuration may have")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _override_error(_shorten(str(error))) from error
    _check_values(document)
    prepared = _prepare(document, ModelConfig.DESCRIPTOR, "")
    try:
        return json_format.ParseDict(prepared, ModelConfig())
    except (json_format.ParseError, ValueError) as error:
        raise _override_error(_shorten(str(error).replace(_PACKAGE, ""))) from error


def _check_values(document: object) -> None:
    """Refuse a document of so many values that it takes long to convert, to check and to load.

    Raises:
        InvalidArgumentError: it has more than it may.
    """
    waiting = [document]
    read = 0
    while waiting:
        value = waiting.pop()
        read += 1
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        if read + len(waiting) > MAX_VALUES:
            raise _override_error(
                f"it has more than {MAX_VALUES} values, the most that a configuration may have"
            )


def _override_error(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"Invalid config override: {what}")


def _prepare(document: object, message: MessageType, path: str) -> dict[str, Any]:
    """The JSON object with known fields only, and with the names of enum values as the schema has them."""
    if not isinstance(document, dict):
        raise _override_error(f"{path or 'the configuration'} must be an object")
    prepared = {}
    for name, value in document.items():
        field = message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)
        if field is None:
            right = suggest(name, list(message.fields_by_name))
            hint = f"; did you mean '{right}'?" if right else ""
            prefix = f"{path}: " if path else ""
            raise _override_error(f"{prefix}'{_shorten(name)}' is not a field of {message.name}{hint}")
        prepared[name] = _prepare_field(value, field, f"{path}.{name}" if path else name)
    return prepared


def _prepare_field(value: object, field: FieldType, path: str) -> object:
    if value is None:
        return None
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _prepare_map(value, field.message_type.fields_by_name["value"], path)
    if field.is_repeated:
        if not isinstance(value, list):  # one element may stand for the array that has only it
            return [_prepare_value(value, field, path)]
        return [_prepare_value(item, field, f"{path}[{index}]") for index, item in enumerate(value)]
    return _prepare_value(value, field, path)


def _prepare_map(value: object, entry: FieldType, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _override_error(f"{path} must be an object")
    return {key: _prepare_value(item, entry, f'{path}["{_shorten(key)}"]') for key, item in value.items()}


def _prepare_value(value: object, field: FieldType, path: str) -> object:
    if field.message_type is not None:
        return _prepare(value, field.message_type, path)
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name
        if value.upper() in known:
            return value.upper()
        right = suggest(value, list(known))
        hint = f"did you mean '{right}'?" if right else f"which are: {', '.join(sorted(known))}"
        raise _override_error(f"{path}: '{_shorten(value)}' is not a {field.enum_type.name}; {hint}")
    return value
