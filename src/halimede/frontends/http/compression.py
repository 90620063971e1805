"""gzip and deflate, of requests and of responses."""

import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.core.tensors import Buffer

ENCODINGS: Final = ("gzip", "deflate")

_EITHER: Final = zlib.MAX_WBITS | 32  # what inflates a gzip or a zlib stream, whichever comes
_GZIP: Final = zlib.MAX_WBITS | 16


class UnsupportedEncodingError(UnsupportedError):
    """The body is compressed in a way that this server does not know."""

    def __init__(self) -> None:
        super().__init__("Unsupported compression type")


def is_compressed(content_encoding: str | None) -> bool:
    """Whether a request's body needs to be inflated.

    Raises:
        UnsupportedEncodingError: this server cannot do that.
    """
    encoding = "" if content_encoding is None else content_encoding.strip().lower()
    if encoding in {"", "identity"}:
        return False
    if encoding in ENCODINGS:
        return True
    raise UnsupportedEncodingError


def inflate(data: Buffer, max_bytes: int) -> bytes:
    """What was compressed; never more than `max_bytes` of it are held.

    Raises:
        InvalidArgumentError: it is damaged or too large.
    """
    if not data:
        raise InvalidArgumentError("nothing to be decompressed")
    inflater = zlib.decompressobj(_EITHER)
    try:
        inflated = inflater.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise InvalidArgumentError(f"failed to decompress the request: {error}") from None
    if len(inflated) > max_bytes:
        msg = (
            f"Decompressed data size exceeds the maximum allowed value of {max_bytes} bytes. "
            f"Use --http-max-input-size to increase the limit."
        )
        raise InvalidArgumentError(msg)
    if not inflater.eof:
        raise InvalidArgumentError("failed to decompress the request: the compressed data ends early")
    if inflater.unused_data:
        raise InvalidArgumentError("failed to decompress the request: more data follows the compressed data")
    return inflated


def deflate(parts: Iterable[Buffer], encoding: str) -> bytes:
    """The parts, compressed as one body."""
    compressor = zlib.compressobj(wbits=_GZIP if encoding == "gzip" else zlib.MAX_WBITS)
    return b"".join([*map(compressor.compress, parts), compressor.flush()])


@lru_cache(maxsize=128)
def response_encoding(accept: str) -> str:
    """What a client's Accept-Encoding chooses: ``gzip``, ``deflate``, or "" for neither.

    The highest q wins, and the first of equals.
    """
    chosen, best = "", 0.0
    for entry in accept.split(","):
        name, _, parameters = entry.partition(";")
        name = name.strip().lower()
        quality = _quality(parameters)
        if name in (*ENCODINGS, "identity") and quality > best:
            chosen, best = name, quality
    return "" if chosen == "identity" else chosen


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
