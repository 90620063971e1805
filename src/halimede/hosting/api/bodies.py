"""Bodies of requests as their senders meant them: SDKs compress large ones."""

import zlib

from halimede.hosting.errors import ApiError
from halimede.http1.head import Head

_GZIP = 16 + zlib.MAX_WBITS


def decoded(head: Head, body: bytes, limit: int) -> bytes:
    """The body, decompressed if it was compressed.

    Args:
        head: the request's.
        body: as it was sent.
        limit: how many bytes it may have.

    Raises:
        ApiError: it is not what its header says (``SerializationException``), or is larger.
    """
    coding = head.headers.get("content-encoding", "identity").lower()
    if coding == "identity":
        return body
    if coding != "gzip":
        raise ApiError("SerializationException", f"Content-Encoding '{coding}' is not supported; use gzip")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        data = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise ApiError("SerializationException", f"the body is not gzip: {error}") from None
    if len(data) > limit:
        msg = f"the body has more than the allowed {limit} bytes once it is decompressed"
        raise ApiError("RequestEntityTooLargeException", msg, 413)
    if not unpacker.eof or unpacker.unused_data:
        raise ApiError("SerializationException", "the body is not gzip: it does not end where it should")
    return data
