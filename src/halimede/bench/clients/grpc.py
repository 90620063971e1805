"""gRPC over HTTP/2: one call at a time on a connection, or one stream that goes on as long as the connection."""

from collections.abc import Sequence
from urllib.parse import unquote

from hpack import Decoder, Encoder, HPACKError

from halimede.bench.address import Address
from halimede.bench.clients.lane import Lane, Recorder
from halimede.frontends.grpc.kserve_pb2 import ModelStreamInferResponse
from halimede.frontends.grpc.transport import frames

SERVICE = "/inference.GRPCInferenceService"
_FINAL = "triton_final_response"
_MOST_UNACKNOWLEDGED = 1 << 29
_MEMORISED = 64
_STATUS_NAMES = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]
_OPENING = (
    frames.PREFACE
    + frames.settings(
        {
            frames.HEADER_TABLE_SIZE: 0,  # each block of headers stands for itself
            frames.ENABLE_PUSH: 0,
            frames.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW,
        }
    )
    + frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)


class GrpcLane(Lane):
    """A connection to a gRPC server.

    Attributes:
        streaming: all requests go over one stream.
        decoupled: the answer to a request on the stream may have any number of responses.
        body: the response to the last call that was not on a stream, behind gRPC's five bytes.
    """

    def __init__(
        self,
        recorder: Recorder,
        address: Address,
        *,
        method: str = "ModelInfer",
        metadata: Sequence[tuple[str, str]] = (),
        streaming: bool = False,
        decoupled: bool = False,
    ) -> None:
        super().__init__(recorder)
        self.streaming = streaming
        self.decoupled = decoupled
        self.body = b""
        self._call_headers = [
            (":method", "POST"),
            (":scheme", "https" if address.tls else "http"),
            (":path", f"{SERVICE}/{'ModelStreamInfer' if streaming else method}"),
            (":authority", address.authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *((name.lower(), value) for name, value in metadata),
        ]
        encoder = Encoder()
        self._block = encoder.encode(self._call_headers)
        self._later_block = encoder.encode(self._call_headers)  # names what the first one left in the table
        self._decoder = Decoder()
        self._decoder.max_allowed_table_size = frames.DEFAULT_TABLE_SIZE
        self._known: dict[bytes, tuple[str, str] | None] = {}
        self._stream = 1
        self._read = b""
        self._headers = b""
        self._headers_end = False
        self._window = self._stream_window = self._initial_window = frames.DEFAULT_WINDOW
        self._largest_frame = frames.MIN_FRAME_LIMIT
        self._waiting = b""  # what the server has not allowed yet
        self._unacknowledged = 0
        self._lost = ""

    def connection_made(self, transport: object) -> None:
        """Begin: requests may be sent when the server's settings have come."""
        super().connection_made(transport)
        self._transport.write(_OPENING)

    def write(self, message: bytes) -> None:
        """Open a stream if there is none, and send the message as far as the server allows."""
        begin = b""
        if not self.streaming:
            self._stream_window = self._initial_window
            self.body = b""
            begin = frames.frame(frames.HEADERS, frames.END_HEADERS, self._stream, self._block)
            self._block = self._later_block
        size = len(message)
        if size <= self._largest_frame and size <= self._window and size <= self._stream_window:
            self._window -= size
            self._stream_window -= size
            end = 0 if self.streaming else frames.END_STREAM
            self._transport.write(begin + frames.frame(frames.DATA, end, self._stream, message))
            return
        if begin:
            self._transport.write(begin)
        self._waiting = message
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting:
            size = min(len(self._waiting), self._largest_frame, self._window, self._stream_window)
            if size <= 0:
                return
            part, self._waiting = self._waiting[:size], self._waiting[size:]
            self._window -= size
            self._stream_window -= size
            end = 0 if self.streaming or self._waiting else frames.END_STREAM
            self._transport.write(frames.frame(frames.DATA, end, self._stream, part))

    def data_received(self, data: bytes) -> None:
        """Take frames, whole or not."""
        data = self._read + data if self._read else data
        at, end = 0, len(data)
        while end - at >= frames.HEADER_SIZE:
            after = at + frames.HEADER_SIZE + int.from_bytes(data[at : at + 3])
            if after > end:
                break
            stream = int.from_bytes(data[at + 5 : at + 9]) & frames.MAX_WINDOW
            self._frame(data[at + 3], data[at + 4], stream, data[at + frames.HEADER_SIZE : after])
            at = after
        self._read = data[at:]
        if self._unacknowledged > _MOST_UNACKNOWLEDGED:
            updates = frames.window_update(0, self._unacknowledged)
            if self.streaming:
                updates += frames.window_update(self._stream, self._unacknowledged)
            self._transport.write(updates)
            self._unacknowledged = 0

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (frames.DATA, frames.HEADERS) and flags & frames.PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        if kind == frames.DATA:
            self._unacknowledged += len(payload)
            if stream == self._stream:
                self.body += payload
                if self.streaming:
                    self._messages()
        elif kind in (frames.HEADERS, frames.CONTINUATION):
            if kind == frames.HEADERS:
                self._headers_end = bool(flags & frames.END_STREAM)
                if flags & frames.HAS_PRIORITY:
                    payload = payload[5:]
            self._headers += payload
            if flags & frames.END_HEADERS:
                block, self._headers = self._headers, b""
                self._block_received(block, stream)
        elif kind == frames.RST_STREAM and stream == self._stream:
            self._call_ended("UNAVAILABLE", f"the server reset the stream ({int.from_bytes(payload)})")
        else:
            self._control(kind, flags, stream, payload)

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.SETTINGS and not flags & frames.ACK:
            self._settings(payload)
        elif kind == frames.PING and not flags & frames.ACK:
            self._transport.write(frames.ping(payload, ack=True))
        elif kind == frames.WINDOW_UPDATE:
            if stream == 0:
                self._window += int.from_bytes(payload)
            elif stream == self._stream:
                self._stream_window += int.from_bytes(payload)
            self._send_waiting()
        elif kind == frames.GOAWAY:
            self.usable = False
            self._lost = f": {payload[8:].decode(errors='replace')}" if payload[8:] else ""
            if not self.busy:
                self._transport.close()

    def _settings(self, payload: bytes) -> None:
        for key, value in frames.SETTING.iter_unpack(payload):
            if key == frames.INITIAL_WINDOW_SIZE:
                self._stream_window += value - self._initial_window
                self._initial_window = value
            elif key == frames.MAX_FRAME_SIZE:
                self._largest_frame = value
            elif key == frames.HEADER_TABLE_SIZE and value < frames.DEFAULT_TABLE_SIZE:
                encoder = Encoder()
                encoder.header_table_size = 0
                self._block = self._later_block = encoder.encode(self._call_headers)
        self._transport.write(frames.SETTINGS_ACK)
        if not self.usable:
            self.usable = True
            if self.streaming:
                opening = frames.frame(frames.HEADERS, frames.END_HEADERS, self._stream, self._block)
                self._transport.write(opening)
            self.ready()
        self._send_waiting()

    def _block_received(self, block: bytes, stream: int) -> None:
        status = self._status(block)
        if stream == self._stream and (self._headers_end or status):
            self._call_ended(*(status or ("UNKNOWN", "the server ended the call without a status")))

    def _status(self, block: bytes) -> tuple[str, str] | None:
        """The gRPC status in a block of headers, as name and text; None if it has none."""
        if block in self._known:
            return self._known[block]
        try:
            headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
        except HPACKError as error:
            return "INTERNAL", f"headers that cannot be read: {error}"
        status: tuple[str, str] | None = None
        if "grpc-status" in headers:
            number = headers["grpc-status"]
            known = number.isdigit() and int(number) < len(_STATUS_NAMES)
            name = _STATUS_NAMES[int(number)] if known else number
            status = (name, unquote(headers.get("grpc-message", "")))
        elif headers.get(":status", "200") != "200":
            status = ("UNAVAILABLE", f"HTTP status {headers[':status']}")
        if len(self._known) < _MEMORISED:
            self._known[block] = status
        return status

    def _call_ended(self, name: str, text: str) -> None:
        if self.streaming:
            self._lost = f": {name} {text}"
            self._transport.abort()
            return
        self._stream += 2
        self._waiting = b""
        if not self.busy:
            return
        if name == "OK":
            self.response()
            self.finish()
        else:
            self.finish(f"{name}: {text}")
        if not self.usable:
            self._transport.close()

    def _messages(self) -> None:
        body, at = self.body, 0
        while len(body) - at >= 5:
            after = at + 5 + int.from_bytes(body[at + 1 : at + 5])
            if after > len(body):
                break
            self._message(body[at + 5 : after])
            at = after
        self.body = body[at:]

    def _message(self, message: bytes) -> None:
        if not self.busy:
            return
        answer = ModelStreamInferResponse.FromString(message)
        if answer.error_message:
            self.finish(answer.error_message)
            return
        response = answer.infer_response
        if response.outputs or not self.decoupled:
            self.response()
        if not self.decoupled or response.parameters[_FINAL].bool_param:
            self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: a request that is under way has failed."""
        self.usable = False
        if self.busy:
            self.finish(f"the connection was closed{self._lost or (f': {exc}' if exc else '')}")
        super().connection_lost(exc)
