"""AWS's query protocol: a form that says what is asked, and XML that answers."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl
from xml.sax import saxutils

from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request

_MAX_FIELDS = 20_000
_MAX_LEVELS = 32
_DIGITS = 20
_MAX_SHOWN = 128

_INTEGER = re.compile(rf"[+-]?[0-9]{{1,{_DIGITS}}}")
_NUMBER = re.compile(rf"[0-9]{{1,{_DIGITS}}}")
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_form(body: bytes) -> dict[str, str]:
    """The fields of a form.

    Raises:
        ApiError: it is none, or has too many (``MalformedQueryString``).
    """
    if body.count(b"&") >= _MAX_FIELDS:
        raise _malformed(f"the form has more than {_MAX_FIELDS} fields")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body)))
    except (UnicodeDecodeError, ValueError) as error:
        raise _malformed(f"the body is no form: {error}") from None


def document_of(shape: Any, fields: Mapping[str, str]) -> dict[str, Any]:
    """The request that the fields of a form make up.

    Args:
        shape: the operation's input, a `botocore.model.StructureShape`, or None.
        fields: name → value, where a name is a path such as ``MetricData.member.1.Value``.

    Raises:
        ApiError: a value is not of its member's type (``MalformedQueryString``).
    """
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        place = tree
        *parents, last = name.split(".", _MAX_LEVELS)
        if "." in last:
            raise _malformed(f"'{name[:_MAX_SHOWN]}…' has more than {_MAX_LEVELS} parts")
        for part in parents:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise _malformed(f"'{name}' is below a value")
        if isinstance(place.get(last), dict):
            raise _malformed(f"'{name}' is a value, and there are others below it")
        place[last] = value
    document: dict[str, Any] = {} if shape is None else _structure(shape, tree, "")
    return document


def _decode(shape: Any, value: Any, path: str) -> Any:
    """A value of the shape's type. What is wrong with it otherwise is for whoever checks it to say."""
    kind = shape.type_name
    if kind in ("structure", "list", "map"):
        if value == "":  # how an empty list is sent
            value = {}
        if not isinstance(value, dict):
            raise _malformed(f"'{path}' is a value where a {kind} is expected")
        if kind == "structure":
            return _structure(shape, value, f"{path}.")
        entries = _numbered(value, "member" if kind == "list" else "entry", path)
        if kind == "list":
            return [_decode(shape.member, each, f"{path}.{number}") for number, each in entries]
        return {
            _decode(shape.key, key, path): _decode(shape.value, below, f"{path}.{number}")
            for number, each in entries
            for key, below in (_pair(shape, each, path),)
        }
    if isinstance(value, dict):
        raise _malformed(f"'{path}' has members where a {kind} is expected")
    return _scalar(kind, value, path)


def _structure(shape: Any, value: Mapping[str, Any], lead: str) -> dict[str, Any]:
    """Members that the shape does not know are left as they are."""
    return {
        name: _decode(shape.members[name], each, lead + name) if name in shape.members else each
        for name, each in value.items()
    }


def _numbered(value: Mapping[str, Any], below: str, path: str) -> list[tuple[str, Any]]:
    """The entries of a list or map in their order: ``NAME.member.1`` and so on, or ``NAME.1`` if it is flat."""
    entries = value.get(below, value)
    if not isinstance(entries, dict) or not all(_NUMBER.fullmatch(key) for key in entries):
        raise _malformed(f"'{path}' has entries that are not numbered")
    return sorted(entries.items(), key=lambda entry: int(entry[0]))


def _pair(shape: Any, entry: Any, path: str) -> tuple[Any, Any]:
    key = shape.key.serialization.get("name", "key")
    value = shape.value.serialization.get("name", "value")
    if not isinstance(entry, dict) or not entry.keys() >= {key, value}:
        raise _malformed(f"'{path}' has an entry without {key} and {value}")
    return entry[key], entry[value]


def _scalar(kind: str, text: str, path: str) -> Any:
    if kind in ("integer", "long"):
        if not _INTEGER.fullmatch(text):
            raise _malformed(f"'{text[:_MAX_SHOWN]}' at '{path}' is not a whole number")
        return int(text)
    if kind in ("float", "double"):
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or "_" in text:
            raise _malformed(f"'{text[:_MAX_SHOWN]}' at '{path}' is not a number")
        return number
    if kind == "boolean":
        if text not in ("true", "false"):
            raise _malformed(f"'{text[:_MAX_SHOWN]}' at '{path}' is neither true nor false")
        return text == "true"
    return text


def escape(text: str) -> str:
    """The text as XML has it; characters that cannot be in XML are replaced."""
    return saxutils.escape(_NOT_IN_XML.sub("\ufffd", text))


def _malformed(why: str) -> ApiError:
    return ApiError("MalformedQueryString", why)


def answer(
    request: Request, name: str, model: Any, document: Mapping[str, Any], namespace: str, request_id: str
) -> None:
    """Answer with a document.

    Args:
        request: the client's.
        name: the operation's.
        model: the operation's `botocore.model.OperationModel`.
        document: what it answers.
        namespace: the service's XML namespace.
        request_id: the request's.
    """
    shape = model.output_shape
    result = ""
    if shape is not None:
        wrapper = shape.serialization.get("resultWrapper") or f"{name}Result"
        result = f"<{wrapper}>{_members(shape, document)}</{wrapper}>"
    metadata = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
    text = f'<{name}Response xmlns="{namespace}">{result}{metadata}</{name}Response>'
    request.respond(200, text.encode(), (("Content-Type", "text/xml"), ("x-amzn-RequestId", request_id)))


def answer_error(request: Request, error: ApiError, request_id: str) -> None:
    """Answer with an error."""
    side = "Sender" if error.status < 500 else "Receiver"
    text = (
        f"<ErrorResponse><Error><Type>{side}</Type><Code>{escape(error.code)}</Code>"
        f"<Message>{escape(error.message)}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    request.respond(
        error.status, text.encode(), (("Content-Type", "text/xml"), ("x-amzn-RequestId", request_id))
    )


def _members(shape: Any, document: Mapping[str, Any]) -> str:
    return "".join(
        f"<{name}>{_encode(member, document[name])}</{name}>"
        for name, member in shape.members.items()
        if document.get(name) is not None
    )


def _encode(shape: Any, value: Any) -> str:
    kind = shape.type_name
    if kind == "structure":
        return _members(shape, value)
    if kind == "list":
        return "".join(f"<member>{_encode(shape.member, each)}</member>" for each in value)
    if kind == "map":
        return "".join(
            f"<entry><key>{escape(key)}</key><value>{_encode(shape.value, each)}</value></entry>"
            for key, each in value.items()
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return escape(str(value))
