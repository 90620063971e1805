"""Frames of AWS's event streams (`application/vnd.amazon.eventstream`).

Prelude (total length, length of the headers, CRC32 of both), headers, payload, CRC32 of all before it; numbers are
big-endian.
"""

import struct
from collections.abc import Mapping
from zlib import crc32

import orjson

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_STRING = 7
_PRELUDE = struct.Struct(">II")
_NUMBER = struct.Struct(">I")


def _headers(headers: Mapping[str, str]) -> bytes:
    parts = []
    for name, value in headers.items():
        key, text = name.encode(), value.encode()
        parts.append(struct.pack(">B", len(key)) + key + struct.pack(">BH", _STRING, len(text)) + text)
    return b"".join(parts)


_PAYLOAD = _headers(
    {":event-type": "PayloadPart", ":content-type": "application/octet-stream", ":message-type": "event"}
)


def payload_part(data: bytes) -> bytes:
    """The frame of some bytes of the response."""
    return _frame(_PAYLOAD, data)


def stream_error(message: str, code: str) -> bytes:
    """The frame that ends a stream that broke (`ModelStreamError`).

    Args:
        message: what is wrong.
        code: ``ModelInvocationTimeExceeded`` or ``StreamBroken``.
    """
    headers = {
        ":exception-type": "ModelStreamError",
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return _frame(_headers(headers), orjson.dumps({"Message": message, "ErrorCode": code}))


def _frame(headers: bytes, payload: bytes) -> bytes:
    prelude = _PRELUDE.pack(16 + len(headers) + len(payload), len(headers))
    body = prelude + _NUMBER.pack(crc32(prelude)) + headers + payload
    return body + _NUMBER.pack(crc32(body))
