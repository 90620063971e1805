"""How a connection begins: the preface, and the settings that each side tells the other.

What speaks HTTP/1 instead is told so in HTTP/1.
"""

from __future__ import annotations

from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.flow import Sender
from halimede.frontends.grpc.transport.frames import (
    DEFAULT_WINDOW,
    MAX_WINDOW,
    PREFACE,
    SETTING,
    ConnectionFault,
    ErrorCode,
)
from halimede.frontends.grpc.transport.limits import GrpcSettings

_METHODS_OF_HTTP_1 = tuple(
    word + b" " for word in b"GET HEAD POST PUT DELETE OPTIONS PATCH CONNECT TRACE".split()
)
_HTTP_1_TEXT = b"This port speaks gRPC over HTTP/2 with prior knowledge; HTTP/1 clients use the HTTP port.\n"
HTTP_1_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
    % (len(_HTTP_1_TEXT), _HTTP_1_TEXT)
)


def is_http_1(data: bytes) -> bool:
    """Whether a connection that begins so speaks HTTP/1."""
    return data.startswith(_METHODS_OF_HTTP_1)


def is_incomplete(data: bytes) -> bool:
    """Whether more of it may make it the preface, or a request of HTTP/1."""
    return PREFACE.startswith(data) or any(method.startswith(data) for method in _METHODS_OF_HTTP_1)


def greeting(settings: GrpcSettings, window: int) -> bytes:
    """What the server says first: its settings, and the `window` of the connection."""
    said = frames.settings(
        {
            frames.MAX_CONCURRENT_STREAMS: settings.max_concurrent_streams,
            frames.INITIAL_WINDOW_SIZE: settings.stream_window,
            frames.MAX_FRAME_SIZE: settings.max_frame_size,
            frames.MAX_HEADER_LIST_SIZE: settings.max_header_list_size,
        }
    )
    if window > DEFAULT_WINDOW:
        said += frames.window_update(0, window - DEFAULT_WINDOW)
    return said


def apply_settings(payload: bytes, sender: Sender[Call], calls: list[Call]) -> None:
    """Send from now on as the peer's SETTINGS ask.

    Raises:
        ConnectionFault: a value is not allowed.
    """
    if len(payload) % SETTING.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a SETTINGS frame of {len(payload)} bytes")
    for key, value in SETTING.iter_unpack(payload):
        if key == frames.INITIAL_WINDOW_SIZE:
            if value > MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the initial window is beyond 2^31-1")
            sender.set_stream_window(value, calls)
        elif key == frames.MAX_FRAME_SIZE:
            if not frames.MIN_FRAME_LIMIT <= value <= frames.MAX_FRAME_LIMIT:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE cannot be {value}")
            sender.set_max_frame(value)
        elif key == frames.HEADER_TABLE_SIZE:
            sender.set_table_limit(value)
        elif key == frames.ENABLE_PUSH and value > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH cannot be {value}")
