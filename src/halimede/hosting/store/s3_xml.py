"""The XML of S3's requests and answers."""

import asyncio
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from xml.parsers import expat

from halimede.hosting.errors import ApiError

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_ELEMENTS = 100_000
_DEPTH = 16
_ELEMENT = re.compile(rb"<[^<]{16384}")
"""A tag with the text after it that is too long. Keys have at most 1024 bytes, six times as many with references."""

_MAX_SHOWN = 64
_ENCODINGS = ("utf-8", "us-ascii")
_AT_ONCE = 4096
"""Larger documents are parsed on another thread."""

Element = tuple[str, Any]
"""A name, and a text or a list of elements."""

_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
    | {chr(code): f"&#x{code:x};" for code in range(32) if chr(code) not in "\t\n"}
)


DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'
"""What a document begins with."""


def element(root: str, content: str | Iterable[Element], namespace: str = NAMESPACE) -> bytes:
    """The root of a document."""
    attribute = f' xmlns="{namespace}"' if namespace else ""
    return f"<{root}{attribute}>{_text(content)}</{root}>".encode()


def _text(content: str | Iterable[Element]) -> str:
    if isinstance(content, str):
        return content.translate(_ESCAPES)
    return "".join(f"<{name}>{_text(value)}</{name}>" for name, value in content)


def timestamp(moment: datetime) -> str:
    """A time, as S3's XML has it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Node:
    """An element of a request.

    Attributes:
        name: without its namespace.
        pieces: what stands directly in it.
        children: the elements in it.
    """

    __slots__ = ("children", "name", "pieces")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: list[str] = []
        self.children: list[Node] = []

    @property
    def text(self) -> str:
        """What stands directly in it."""
        return "".join(self.pieces)

    def all(self, name: str) -> "list[Node]":
        """The elements of this name in it."""
        return [child for child in self.children if child.name == name]

    def value(self, name: str) -> str:
        """The text of the first element of this name in it, "" if there is none."""
        found = self.all(name)
        return found[0].text if found else ""


async def read(data: bytes, root: str) -> Node:
    """The root of a document: see `parse`. The event loop goes on while a large one is parsed."""
    return parse(data, root) if len(data) <= _AT_ONCE else await asyncio.to_thread(parse, data, root)


def parse(data: bytes, root: str) -> Node:
    """The root of a document.

    Raises:
        ApiError: it is no XML in UTF-8, has another root, or anything that documents of S3 don't have
            (``MalformedXML``).
    """
    if _ELEMENT.search(data):
        raise _malformed("an element is too long")
    builder = _Builder()
    # the document does not choose: expat would look for a codec of any name, and some of those fail or mislead
    parser = expat.ParserCreate("utf-8", " ")
    parser.buffer_text = True
    parser.XmlDeclHandler = builder.declaration
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.StartDoctypeDeclHandler = builder.doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise _malformed(str(error)) from None
    except (
        LookupError,
        ValueError,
    ) as error:  # of an encoding that Python does not have, or expat cannot use
        raise _malformed(f"its encoding is not supported: {error}") from None
    found = builder.root.children[0]
    if found.name != root:
        raise _malformed(f"expected <{root}>, got <{found.name}>")
    return found


class _Builder:
    def __init__(self) -> None:
        self.root = Node("")
        self._open = [self.root]
        self._count = 0

    def start(self, name: str, _: dict[str, str]) -> None:
        self._count += 1
        if self._count > _ELEMENTS or len(self._open) > _DEPTH:
            raise _malformed("it has too many elements")
        node = Node(name.rpartition(" ")[2])
        self._open[-1].children.append(node)
        self._open.append(node)

    def end(self, _: str) -> None:
        self._open.pop()

    def characters(self, text: str) -> None:
        self._open[-1].pieces.append(text)

    def declaration(self, _: str, encoding: str | None, __: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            raise _malformed(f"its encoding is '{encoding[:_MAX_SHOWN]}'; use UTF-8")

    def doctype(self, *_: object) -> None:
        raise _malformed("it has a document type")


def _malformed(why: str) -> ApiError:
    msg = f"The XML you provided was not well-formed or did not validate against our published schema: {why}"
    return ApiError("MalformedXML", msg)
