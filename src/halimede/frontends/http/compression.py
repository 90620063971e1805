"""gzip and deflate, of requests and of responses."""

import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from halimede.core.errors import HalimedeError, InvalidArgumentError, UnavailableError, UnsupportedError
from halimede.core.tensors import Buffer
from halimede.frontends.inflation import DEFLATE, EITHER, GZIP, Fault, InflateError, Inflater, inflate_little

ENCODINGS: Final = ("gzip", "deflate")


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


def inflate(data: Buffer, max_bytes: int) -> bytes | None:
    """What was compressed; None if it is much, which an `inflater` should inflate elsewhere.

    Raises:
        InvalidArgumentError: it is damaged or larger than `max_bytes`.
    """
    _check_not_empty(data)
    try:
        return inflate_little(data, EITHER, max_bytes)
    except InflateError as error:
        raise inflate_failure(error, max_bytes) from None


def inflater(data: Buffer, max_bytes: int) -> Inflater:
    """What inflates a body to at most `max_bytes`.

    Raises:
        InvalidArgumentError: there is nothing to inflate.
    """
    _check_not_empty(data)
    return Inflater(data, EITHER, max_bytes)


def _check_not_empty(data: Buffer) -> None:
    if not data:
        raise InvalidArgumentError("nothing to be decompressed")


def inflate_failure(error: InflateError, max_bytes: int) -> HalimedeError:
    """The error for a body that cannot be inflated."""
    match error.fault:
        case Fault.TOO_LONG:
            return InvalidArgumentError(
                f"Decompressed data size exceeds the maximum allowed value of {max_bytes} bytes. "
                f"Use --http-max-input-size to increase the limit."
            )
        case Fault.NO_MEMORY:
            return UnavailableError("there is no memory to decompress the request")
        case Fault.DAMAGED:
            why = error.detail
        case Fault.CUT_OFF:
            why = "the compressed data ends early"
        case Fault.FOLLOWED:
            why = "more data follows the compressed data"
    return InvalidArgumentError(f"failed to decompress the request: {why}")


def deflate(parts: Iterable[Buffer], encoding: str) -> bytes:
    """The parts, compressed as one body."""
    compressor = zlib.compressobj(wbits=GZIP if encoding == "gzip" else DEFLATE)
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
