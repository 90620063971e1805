"""One gRPC connection: bytes in, HTTP/2 frames, calls, and the order in which it all ends.

Only prior-knowledge HTTP/2 is spoken, as gRPC does; TLS is the listener's. Reading never stops, since what the peer
grants us comes the same way: what it may make us hold is bounded by windows and limits instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import cast

from halimede.core.clock import MILLISECOND, Clock
from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.blocks import HeaderBlock
from halimede.frontends.grpc.transport.call import Call, Method, RequestHead
from halimede.frontends.grpc.transport.flow import Sender
from halimede.frontends.grpc.transport.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    GOAWAY,
    HEADER_SIZE,
    HEADERS,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
)
from halimede.frontends.grpc.transport.guards import Guards, check_length
from halimede.frontends.grpc.transport.handshake import (
    HTTP_1_ANSWER,
    apply_settings,
    greeting,
    is_http_1,
    is_incomplete,
)
from halimede.frontends.grpc.transport.headers import (
    HARD_LIMIT_FACTOR,
    Authorize,
    HeaderReader,
    MalformedHeadersError,
)
from halimede.frontends.grpc.transport.inbound import READ_SIZE, Inbound
from halimede.frontends.grpc.transport.lifetime import Alarms, Deadlines, Lifetime
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.grpc.transport.responses import Status, status_of
from halimede.frontends.grpc.transport.turns import SLICE, Turns
from halimede.frontends.traffic import Counts, new_counts
from halimede.net.peers import client_text

logger = logging.getLogger("halimede")

_DRAIN_PING = b"drainall"


MakeCall = Callable[["GrpcProtocol", Sender[Call], int, RequestHead], Call]


class GrpcProtocol(asyncio.BufferedProtocol):
    """Serves gRPC methods on one connection.

    Args:
        methods: full path ("/package.Service/Method") to the method.
        settings: limits and times.
        clock: the time that deadlines and keepalive go by.
        connections: where the protocol enters itself while its connection is open.
        counts: where calls are counted, by path and status; those that no method is for under "".
        make_call: what makes a call of a request; one that logs it, perhaps.
        authorize: which calls are refused before they begin, as of `HeaderReader`.
    """

    inbound: Inbound
    sender: Sender[Call]

    def __init__(
        self,
        methods: Mapping[str, Method],
        settings: GrpcSettings,
        clock: Clock,
        connections: set[GrpcProtocol] | None = None,
        counts: Counts | None = None,
        make_call: MakeCall = Call,
        authorize: Authorize | None = None,
    ) -> None:
        self._counts = new_counts() if counts is None else counts
        self._make_call = make_call
        self.last_received = clock.now()
        self._settings = settings
        self._clock = clock
        self._connections = connections
        self._reader = HeaderReader(methods, settings.max_header_list_size, authorize)
        self._guards = Guards(settings)
        self._alarms = Alarms(clock)
        self._streams: dict[int, Call] = {}
        self._last_stream = 0
        self._reset_by_us: dict[int, None] = {}  # the latest ones, whose late frames are ignored
        self._deadlines = Deadlines(clock, self._alarms, self._streams, self._expire)

        # what was received of what is not complete
        self._kept = b""
        self._preface_seen = False
        self._settings_seen = False
        self._block = HeaderBlock(settings.max_header_list_size * HARD_LIMIT_FACTOR)
        self._whole_limit = settings.max_receive_message_size + 5
        self._draining = False
        self._last_accepted = MAX_WINDOW  # the highest stream that a GOAWAY still promised to serve
        self._closing = False  # the last word is said; what comes is not read

    # what the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self.sender = Sender(
            self._transport,
            self._clock,
            self._streams,
            self._settings.stream_high_water,
            self.forget,
            self._writable,
        )
        self._turns = Turns(self._transport, self._clock, lambda: self.data_received(b""))
        self.inbound = Inbound(self._settings, self.sender, self._turns, self.refuse)
        self._lifetime = Lifetime(
            self, self._transport, self.sender, self._settings, self._clock, self._alarms
        )
        if self._connections is not None:
            self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and with it every call."""
        self._closing = True
        self._alarms.close()
        if self._connections is not None:
            self._connections.discard(self)
        for call in list(self._streams.values()):
            self._cancel(call)

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self.sender.set_blocked(blocked=True)

    def resume_writing(self) -> None:
        """The transport's buffer has room."""
        self._guards.read_again()
        self.sender.set_blocked(blocked=False)
        self.inbound.relieved()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what is received next: into a long message itself, where one is being received."""
        return self.inbound.room or self.inbound.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were received into the buffer."""
        inbound = self.inbound
        if inbound.room:
            self.last_received = self._clock.now()
            self.sender.cork()
            inbound.filled(nbytes)
            self.sender.uncork()
        else:
            self.data_received(bytes(inbound.scratch[:nbytes]))
            if nbytes == READ_SIZE:
                self._turns.buffer_filled()

    def data_received(self, data: bytes) -> None:
        """Take what was received, where it was not received in place."""
        if self._closing:
            return
        self.last_received = self._turns.begin()
        inbound = self.inbound
        sender = self.sender
        sender.cork()
        try:
            self._parse(self._kept + data if self._kept else data)
            if inbound.held or inbound.window < inbound.low_window:
                inbound.relieved()
        except ConnectionFault as fault:
            self._fail(fault)
        sender.uncork()

    # frames

    def _parse(self, data: bytes) -> None:
        position = 0
        if not self._preface_seen:
            if not self._read_preface(data):
                return
            position = len(PREFACE)
        size = len(data)
        limit = size - HEADER_SIZE
        view = memoryview(data)
        inbound = self.inbound
        block = self._block
        streams = self._streams
        turns = self._turns
        if inbound.frame_open:
            position = inbound.take(view, position)
        stop = -1 if inbound.frame_open else limit if limit < SLICE else SLICE
        while position <= stop or position <= (stop := turns.stop(position, limit)):
            high, low, kind, flags, stream = FRAME_HEADER.unpack_from(data, position)
            length = high << 8 | low
            start = position + HEADER_SIZE
            end = start + length
            if kind == DATA:
                call = streams.get(stream)
                if (
                    call is not None
                    and end <= size
                    and flags <= END_STREAM
                    and not block.stream
                    and call.reader is None
                    and not call.half_closed
                    and 5 <= length <= self._whole_limit
                    and length <= call.receive_window
                    and not data[start]
                    and length - 5 == int.from_bytes(data[start + 1 : start + 5], "big")
                ):
                    # the usual case: one whole message, which is not compressed
                    position = end
                    inbound.whole(call, view[start + 5 : end], length, ends=flags)
                    continue
            elif (
                kind == HEADERS
                and flags & ~END_STREAM == END_HEADERS
                and end <= size
                and self._settings_seen
                and not block.stream
                and length <= block.limit
            ):
                position = end
                self._headers(stream, data[start:end], ends=flags > END_HEADERS)
                continue
            if self._closing:
                return
            self._check(kind, stream, length)
            if kind == DATA:
                if flags & PADDED and start == size:
                    break
                self._data(flags, stream, length, data[start] if flags & PADDED and length else 0)
                position = inbound.take(view, start + (1 if flags & PADDED else 0))
                if inbound.frame_open:
                    break
            elif kind == GOAWAY or kind > CONTINUATION:
                # its content is of no interest: the peer may close when it likes
                self._guards.other_frame(self.last_received, self.sender.sent)
                inbound.begin(None, length, 0, ends=False)
                position = inbound.take(view, start)
            elif end <= size:
                position = end
                self._control(kind, flags, stream, data[start:end])
            else:
                break
        self._kept = data[position:]
        if stop < 0 <= limit - position or (inbound.frame_open and position < size):
            turns.wait()
        elif inbound.last is not None:
            inbound.aim()

    def _read_preface(self, data: bytes) -> bool:
        if data.startswith(PREFACE):
            self._preface_seen = True
            self.sender.write(greeting(self._settings, self.inbound.connection_window))
            return True
        if is_http_1(data):
            self.sender.write(HTTP_1_ANSWER)
            self._linger()
        elif is_incomplete(data):
            self._kept = data
        else:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, "the connection does not begin with HTTP/2's preface"
            )
        return False

    def _check(self, kind: int, stream: int, length: int) -> None:
        """Refuse a frame that cannot be right, before the rest of it is waited for."""
        if self._block.stream and (kind != CONTINUATION or stream != self._block.stream):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block is not gone on with")
        if not self._settings_seen and kind != SETTINGS:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame must be SETTINGS")
        frames.check_shape(kind, stream, length, self._settings.max_frame_size)
        check_length(kind, length, self._block.limit)

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        block = self._block
        if kind in (HEADERS, CONTINUATION):
            if kind == HEADERS:
                block.open(flags, stream, payload)
            else:
                block.extend(payload)
                if not payload:
                    self._guards.empty_frame(self.last_received)
            if flags & END_HEADERS:
                self._headers(stream, block.close(), ends=block.ends)
        elif kind == WINDOW_UPDATE:
            self._window_update(stream, int.from_bytes(payload, "big") & MAX_WINDOW)
        elif kind == PING:
            self._ping(flags, payload)
        elif kind == RST_STREAM:
            self._rst_stream(stream)
        elif kind == SETTINGS:
            self._peer_settings(flags, payload)
        elif kind == PRIORITY:
            self._guards.other_frame(self.last_received, self.sender.sent)
        else:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "clients do not push")

    def _data(self, flags: int, stream: int, length: int, padding: int) -> None:
        """A DATA frame begins that is not the usual case."""
        content = length - padding - 1 if flags & PADDED else length
        if content < 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "more padding than the frame has bytes")
        ends = bool(flags & END_STREAM)
        if not content and not ends:
            self._guards.empty_frame(self.last_received)
        self.inbound.count(length)
        call = self._streams.get(stream)
        if call is None:
            self._check_closed(stream)
        elif call.half_closed:
            self._reset_call(call, ErrorCode.STREAM_CLOSED)
            call = None
        elif length > call.receive_window:
            self._reset_call(call, ErrorCode.FLOW_CONTROL_ERROR)
            call = None
        else:
            call.receive_window -= length
        self.inbound.begin(call, content, padding, ends=ends)

    def _check_closed(self, stream: int) -> None:
        """Let pass what is late for a stream that we have ended; anything else for no open stream is a fault."""
        self._check_opened(stream)
        if stream not in self._reset_by_us and stream <= self._last_accepted:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"stream {stream} is closed")
        self._guards.other_frame(self.last_received, self.sender.sent)

    def _check_opened(self, stream: int) -> None:
        """Refuse a frame for a stream that the peer has not opened."""
        if stream > self._last_stream or not stream & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream} is not open")

    def _window_update(self, stream: int, increment: int) -> None:
        self._guards.other_frame(self.last_received, self.sender.sent)
        if not stream:
            if not increment:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
            self.sender.window_grown(increment)
        else:
            call = self._streams.get(stream)
            if call is None:
                self._check_opened(stream)
                return
            if not increment:
                self._reset_call(call, ErrorCode.PROTOCOL_ERROR)
            elif not self.sender.stream_window_grown(call, increment):
                self._reset_call(call, ErrorCode.FLOW_CONTROL_ERROR)

    def _ping(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            self._guards.other_frame(self.last_received, self.sender.sent)
            if payload == _DRAIN_PING:
                self._stop_accepting()
            return
        self._guards.ping(self.last_received, self.sender.sent, calls=bool(self._streams))
        self._answer(frames.ping(payload, ack=True))

    def _rst_stream(self, stream: int) -> None:
        call = self._streams.get(stream)
        if call is not None:
            self._guards.reset(self.last_received)
            self._cancel(call)
            return
        self._check_opened(stream)
        self._guards.other_frame(self.last_received, self.sender.sent)

    def _peer_settings(self, flags: int, payload: bytes) -> None:
        self._guards.settings_frame(self.last_received)
        if flags & ACK:
            if payload:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS has content"
                )
            return
        apply_settings(payload, self.sender, list(self._streams.values()))
        if not self._settings_seen:
            self._settings_seen = True
            self._lifetime.begin()
        self._answer(frames.SETTINGS_ACK)
        self.sender.pump()  # not before the acknowledgement, until which the peer counts by its old windows

    def _answer(self, frame: bytes) -> None:
        """Send what the peer's frame asks for, unless the peer reads none of it."""
        if self.sender.blocked:
            self._guards.unread_reply()
        self.sender.write(frame)

    # header blocks

    def _headers(self, stream: int, block: bytes, *, ends: bool) -> None:
        """A whole header block: a call begins, or ends with trailers, which gRPC requests do not use."""
        if stream <= self._last_stream or not stream & 1:
            self._late_headers(stream, block, ends=ends)
            return
        self._last_stream = stream
        try:
            head = self._reader.read(block)
        except MalformedHeadersError as error:
            logger.debug("gRPC stream %d is malformed: %s", stream, error)
            self._guards.reset(self.last_received)
            self._reset(stream, ErrorCode.PROTOCOL_ERROR)
            return
        if stream > self._last_accepted:
            return  # after the last GOAWAY: the peer knows that it is not served
        if head.method is None:
            self._refused(stream, head)
            self.sender.write_block(stream, head.refusal, END_HEADERS | END_STREAM)
            if not ends:
                self._reset(stream, ErrorCode.NO_ERROR)
            return
        if len(self._streams) >= self._settings.max_concurrent_streams:
            self._guards.reset(self.last_received)
            self._reset(stream, ErrorCode.REFUSED_STREAM)
            return
        call = self._streams[stream] = self._make_call(self, self.sender, stream, head)
        if head.timeout >= 0:
            self._deadlines.set(call, self.last_received + head.timeout)
        if call.unary is None:
            self.inbound.run(call, head.method.handler, call)
        if ends and not call.closed:
            self.inbound.half_close(call)

    def _refused(self, stream: int, head: RequestHead) -> None:
        """Count a call that is answered without having begun."""
        call = self._make_call(self, self.sender, stream, head)
        call.status = status_of(head.refusal)
        call.end()
        self._counts["", call.status] += 1

    def _late_headers(self, stream: int, block: bytes, *, ends: bool) -> None:
        if not stream & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"clients do not open stream {stream}")
        call = self._streams.get(stream)
        if call is None:
            self._check_closed(stream)
        self._reader.skip(block)
        if call is None:
            return
        if call.half_closed:
            self._reset_call(call, ErrorCode.STREAM_CLOSED)
        elif not ends:
            self._reset_call(call, ErrorCode.PROTOCOL_ERROR)
        else:
            self.inbound.half_close(call)

    # how calls end

    def forget(self, call: Call) -> None:
        """A call is answered to its end."""
        del self._streams[call.stream]
        call.closed = True
        if not call.relayed:
            self._counts[call.path, call.status] += 1
        if not call.half_closed:
            # the client need not go on sending
            self._reset(call.stream, ErrorCode.NO_ERROR)
        if not call.half_closed or call.waiting or call.inflating or call.message is not None:
            self.inbound.drop(call)
        call.end()
        if self._last_accepted < MAX_WINDOW and not self._streams and not self._closing:
            self._linger()

    def _writable(self, call: Call) -> None:
        if call.on_writable is not None:
            self.inbound.run(call, call.on_writable)

    def refuse(self, call: Call, status: int, text: str) -> None:
        """End a call for a reason of the transport's own; its handler hears of it as of a cancellation."""
        if call.closed:
            return
        on_cancel = call.on_cancel
        call.cancelled = True
        self.sender.drop(call)
        call.trailers = call.compressor = None
        call.finish(status, text)
        if on_cancel is not None:
            self.inbound.run(call, on_cancel)

    def _cancel(self, call: Call) -> None:
        """End a call to which nothing more can be said."""
        on_cancel = call.on_cancel
        self._streams.pop(call.stream, None)
        call.cancelled = call.closed = True
        call.status = Status.CANCELLED
        if not call.relayed:
            self._counts[call.path, int(Status.CANCELLED)] += 1
        self.sender.drop(call)
        self.inbound.drop(call)
        call.end()
        if on_cancel is not None:
            self.inbound.run(call, on_cancel)
        if self._last_accepted < MAX_WINDOW and not self._streams and not self._closing:
            self._linger()

    def _reset_call(self, call: Call, code: ErrorCode) -> None:
        """End a call for what the peer did wrong on its stream."""
        self._guards.reset(self.last_received)
        self._reset(call.stream, code)
        self._cancel(call)

    def _reset(self, stream: int, code: ErrorCode) -> None:
        self.sender.write(frames.rst_stream(stream, code))
        self._reset_by_us[stream] = None
        if len(self._reset_by_us) > 2 * self._settings.max_concurrent_streams:
            del self._reset_by_us[next(iter(self._reset_by_us))]

    def _expire(self, call: Call) -> None:
        self.refuse(call, Status.DEADLINE_EXCEEDED, "Deadline Exceeded")
        self.inbound.relieved()

    # how the connection ends

    @property
    def in_flight(self) -> int:
        """Calls that are open."""
        return len(self._streams)

    @cached_property
    def client(self) -> str:
        """The client's address."""
        return client_text(self._transport)

    @property
    def busy(self) -> bool:
        """Whether calls are open."""
        return bool(self._streams)

    def look_again(self) -> None:
        """Who may call has changed: look at what clients repeat as if it were new."""
        self._reader.forget()

    def send_ping(self, payload: bytes) -> None:
        """Ask the peer for a sign of life."""
        self.sender.write(frames.ping(payload))

    def shutdown(self) -> None:
        """End gracefully: no new calls, those that are open are finished, then the connection closes."""
        if self._draining or self._closing:
            return
        self._draining = True
        if not self._settings_seen:
            self._linger()
            return
        # calls that are under way to us must not be lost: the last stream is named when the client has read this
        self.sender.write(frames.goaway(MAX_WINDOW, ErrorCode.NO_ERROR) + frames.ping(_DRAIN_PING))
        self._alarms.set(self._stop_accepting, self._clock.now() + self._settings.drain_ping_ms * MILLISECOND)

    def abort(self) -> None:
        """End now, whatever is open."""
        self._transport.abort()

    def _stop_accepting(self) -> None:
        if self._draining and self._last_accepted == MAX_WINDOW and not self._closing:
            self._alarms.clear(self._stop_accepting)
            self._last_accepted = self._last_stream
            self.sender.write(frames.goaway(self._last_stream, ErrorCode.NO_ERROR))
            if not self._streams:
                self._linger()

    def _fail(self, fault: ConnectionFault) -> None:
        """The peer broke the protocol or asks too much: say so and close."""
        if self._closing:
            return
        logger.info("A gRPC connection is closed: %s (%s)", fault.text, fault.code.name)
        self._closing = True
        self.sender.write(frames.goaway(self._last_stream, fault.code, fault.text))
        for call in list(self._streams.values()):
            self._cancel(call)
        self._linger()

    def _linger(self) -> None:
        """Close once the peer has had time to read what was said; what it still sends is not read."""
        self._closing = True
        self._kept = b""
        self.sender.uncork()
        self._lifetime.end()
