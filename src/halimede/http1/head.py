"""The head of a request: request line and headers.

Clients repeat their heads byte for byte, so the last few hundred parsed ones are remembered.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy

import httptools

from halimede.core.memo import Memo

MEMO_HEAD_BYTES = 4096
"""A longer head is parsed each time."""

JsonLength = Callable[[Mapping[str, str]], str | None]
"""The digits that say how many bytes of JSON a body begins with, None if it is all JSON. Raises
InvalidArgumentError for headers that say it in a wrong way."""

_OLD_KEEP_ALIVE = "Connection: keep-alive\r\n"
_CLOSE = "Connection: close\r\n"


class Refusal(Exception):  # noqa: N818 - it is an answer more than an error
    """The request cannot be taken; answer with this status and text, and close the connection.

    Attributes:
        headers: further headers of the answer.
        head: the request's, where it is known.
    """

    def __init__(
        self,
        status: int,
        message: str,
        headers: tuple[tuple[str, str], ...] = (),
        head: "Head | None" = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.head = head


class Head:
    """Request line and headers. Shared by requests whose heads are equal, so never changed.

    Attributes:
        method: such as ``POST``.
        path: as it was sent, without the query.
        query: as it was sent, what follows the question mark.
        headers: lower-case name → value; repeated headers are joined by a comma.
        sent: the headers one by one, each with its name as it was sent; values keep the spaces at their end.
        count: how many headers there are, repeated ones counted.
        length: bytes of the body; -1 for a chunked one.
        keep_alive: the client may send more requests on this connection.
        expects_continue: the client waits for `100 Continue` before it sends the body.
        connection: the lines that end the response's head: the header that an HTTP/1.0 client needs to keep the
            connection, or "".
        closing: the same of the last response on the connection.
        chunked: the client understands responses in chunks.
    """

    __slots__ = (
        "chunked",
        "closing",
        "connection",
        "count",
        "expects_continue",
        "headers",
        "keep_alive",
        "length",
        "method",
        "path",
        "query",
        "sent",
    )

    def __init__(
        self, method: str, target: str, headers: dict[str, str], sent: Sequence[tuple[str, str]], version: str
    ) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.sent = sent
        self.count = len(sent)
        self.length = _body_length(headers)
        tokens = {token.strip() for token in headers.get("connection", "").lower().split(",")}
        # what frames a body wrongly, as chunks do in HTTP/1.0, has the connection closed (RFC 9112, 6.1)
        asked = version == "1.1" or ("keep-alive" in tokens and self.length >= 0)
        self.keep_alive = asked and "close" not in tokens
        self.connection = _OLD_KEEP_ALIVE if version == "1.0" and self.keep_alive else ""
        self.closing = _CLOSE
        self.chunked = version == "1.1"
        expect = headers.get("expect")
        if expect is not None and expect.lower() != "100-continue":
            raise Refusal(417, f"Expect: {expect} is not supported; only 100-continue is")
        self.expects_continue = expect is not None and version == "1.1"

    def answered_with(self, headers: Iterable[tuple[str, str]]) -> "Head":
        """The same head; responses to it have these headers too."""
        head, lines = copy(self), "".join(f"{name}: {value}\r\n" for name, value in headers)
        head.connection = lines + head.connection
        head.closing = lines + head.closing
        return head


def parse_head(data: bytes) -> Head | None:
    """The head that `data` is; None if it is nothing but empty lines.

    Args:
        data: all bytes up to the first empty line, that line included.

    Raises:
        Refusal: it is malformed, or asks for what this server does not do.
    """
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # the offer to change the protocol is declined by not taking it up
    except httptools.HttpParserError as error:
        raise Refusal(400, f"malformed HTTP request: {error}") from None
    if not collector.begun:
        return None
    if not collector.complete:
        raise Refusal(400, "malformed HTTP request: the header section does not end where it should")
    if collector.two_hosts:
        raise Refusal(400, "the request has two Host headers; one is allowed")
    version = parser.get_http_version()
    if version not in {"1.0", "1.1"}:
        raise Refusal(505, f"HTTP version {version} is not supported; use 1.1")
    method = parser.get_method().decode("latin-1")
    return Head(method, _target(collector.url), collector.headers, collector.sent, version)


def json_length(headers: Mapping[str, str]) -> str | None:
    """How many bytes of JSON a body begins with, as the KServe protocol says."""
    return headers.get("inference-header-content-length")


def check_beginning(data: bytes) -> None:
    """Whether `data` may be the beginning of a head.

    Raises:
        Refusal: it is something else, such as the first bytes of TLS.
    """
    try:
        httptools.HttpRequestParser(_Collector()).feed_data(data)
    except httptools.HttpParserError as error:
        raise Refusal(400, f"malformed HTTP request: {error}") from None


MEMO_HEADS = Memo(parse_head)
"""Results of `parse_head`, for heads of at most MEMO_HEAD_BYTES."""


def add_header(headers: dict[str, str], name: str, value: str) -> None:
    """Add a header as it was sent. Spaces around its value are not part of it, and repeated headers are joined."""
    key, text = name.lower(), value.strip(" \t")
    headers[key] = f"{headers[key]}, {text}" if key in headers else text


class _Collector:
    """What the parser calls."""

    def __init__(self) -> None:
        self.begun = False
        self.two_hosts = False
        self.complete = False
        self.url = b""
        self.headers: dict[str, str] = {}
        self.sent: list[tuple[str, str]] = []

    def on_message_begin(self) -> None:
        if self.complete:
            raise Refusal(400, "the header section ends twice")
        self.begun = True

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        as_sent, text = name.decode("latin-1"), value.decode("latin-1").lstrip(" \t")
        self.sent.append((as_sent, text))
        self.two_hosts |= as_sent.lower() == "host" in self.headers
        add_header(self.headers, as_sent, text)

    def on_headers_complete(self) -> None:
        self.complete = True


def _target(url: bytes) -> str:
    """The path of a URL, and its query if it has one."""
    if not url.startswith(b"/") and b"://" in url:
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserError as error:
            raise Refusal(400, f"malformed URL: {error}") from None
        url = (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
    return url.partition(b"#")[0].decode("latin-1")


def _body_length(headers: dict[str, str]) -> int:
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if coding is not None:
        if length is not None:
            raise Refusal(400, "a request has Content-Length or Transfer-Encoding, not both")
        if coding.lower() != "chunked":
            raise Refusal(501, f"Transfer-Encoding '{coding}' is not supported; use chunked")
        return -1
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit()):
        raise Refusal(400, f"Content-Length '{length}' is not a number")
    return int(length.lstrip("0") or "0")  # no larger than 64 bits, as the parser has it
