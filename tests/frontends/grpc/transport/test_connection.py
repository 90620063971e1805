"""Frames, streams and the end of connections, as a peer sees them."""

import gzip
import logging
import zlib

import pytest

from halimede.core.clock import MILLISECOND, SECOND
from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.call import Call, StreamMethod
from halimede.frontends.grpc.transport.frames import ErrorCode
from halimede.frontends.grpc.transport.limits import GrpcSettings
from tests.frontends.grpc.transport.wire import BROKEN, COMPRESS, ECHO, STREAM, WAIT, Frame, Peer, message


def test_server_preface_announces_limits() -> None:
    peer = Peer()
    peer.send(frames.PREFACE, frames.settings({}))
    first, window, ack = peer.received()
    assert first.kind == frames.SETTINGS
    values = dict(frames.SETTING.iter_unpack(first.payload))
    assert values[frames.INITIAL_WINDOW_SIZE] == GrpcSettings().stream_window
    assert values[frames.MAX_CONCURRENT_STREAMS] == GrpcSettings().max_concurrent_streams
    assert window.kind == frames.WINDOW_UPDATE
    assert ack == Frame(frames.SETTINGS, frames.ACK, 0, b"")


def test_unary_call_is_answered_with_one_write() -> None:
    peer = Peer().start()
    request = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, peer.block())
    before = peer.transport.writes
    peer.send(request + frames.frame(frames.DATA, frames.END_STREAM, 1, message(b"hello")))
    assert peer.transport.writes == before + 1
    reply = peer.replies()[1]
    assert reply.headers == {":status": "200", "content-type": "application/grpc"}
    assert reply.messages == [b"hello"]
    assert reply.trailers == {"grpc-status": "0"}
    assert reply.ended


def test_replies_of_one_turn_of_the_loop_go_out_together() -> None:
    peer = Peer().start()
    streams = [peer.call(WAIT) for _ in range(10)]
    before = peer.transport.writes
    for call in peer.calls:
        call.reply((b"x",))
    assert sorted(peer.replies()) == streams
    assert peer.transport.writes == before + 1


def test_repeated_header_blocks_keep_meaning_what_they_meant() -> None:
    peer = Peer().start()
    for payload in (b"one", b"two", b"three", b"four"):
        assert peer.echo(payload).messages == [payload]
    # a new header changes the table, and with it what the remembered blocks would mean
    for payload in (b"five", b"six", b"seven"):
        assert peer.echo(payload, x_new=payload.decode()).messages == [payload]
        assert peer.echo(payload).messages == [payload]


def test_metadata_reaches_the_handler() -> None:
    peer = Peer().start()
    peer.call(WAIT, user="me", x_bin="AAE", y_bin="AAEC")
    metadata = peer.calls[0].metadata
    assert metadata["user"] == "me"
    assert metadata["x-bin"] == b"\x00\x01"
    assert metadata["y-bin"] == b"\x00\x01\x02"
    assert "te" not in metadata
    assert ":path" not in metadata


@pytest.mark.parametrize("step", [1, 3, 9, 100])
def test_request_split_anywhere_gives_the_same_answer(step: int) -> None:
    peer = Peer().start()
    payload = bytes(range(256))
    data = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, peer.block())
    data += frames.frame(frames.DATA, frames.END_STREAM, 1, message(payload))
    for start in range(0, len(data), step):
        peer.send(data[start : start + step])
    assert peer.replies()[1].messages == [payload]


def test_message_in_many_data_frames_and_empty_last_frame() -> None:
    peer = Peer().start()
    stream = peer.open()
    whole = message(bytes(1000))
    for start in range(0, len(whole), 7):
        peer.data(stream, whole[start : start + 7])
    peer.data(stream, b"", ends=True)
    assert peer.replies()[stream].messages == [bytes(1000)]


def test_long_message_is_received_in_place() -> None:
    peer = Peer().start({frames.INITIAL_WINDOW_SIZE: 2**24})
    peer.send(frames.window_update(0, 2**24))
    payload = bytes(range(256)) * 12_000
    whole = message(payload)
    stream = peer.open()
    for start in range(0, len(whole), 2**20):
        peer.data(stream, whole[start : start + 2**20], ends=start + 2**20 >= len(whole))
    assert peer.replies()[stream].messages == [payload]
    # and again, while the last one's memory may be used again
    again = peer.open()
    peer.data(again, whole[: 2**20])
    assert peer.echo(b"between").messages == [b"between"]
    for start in range(2**20, len(whole), 2**20):
        peer.data(again, whole[start : start + 2**20], ends=start + 2**20 >= len(whole))
    assert peer.replies()[again].messages == [payload]


def test_padding_is_not_content() -> None:
    peer = Peer().start()
    block = peer.block()
    padded = bytes((4,)) + block + bytes(4)
    peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.PADDED, 1, padded))
    content = message(b"padded")
    payload = bytes((10,)) + content + bytes(10)
    data = frames.frame(frames.DATA, frames.END_STREAM | frames.PADDED, 1, payload)
    for byte in data:
        peer.send(bytes((byte,)))
    assert peer.replies()[1].messages == [b"padded"]


def test_priority_in_headers_is_ignored() -> None:
    peer = Peer().start()
    flags = frames.END_HEADERS | frames.HAS_PRIORITY
    peer.send(frames.frame(frames.HEADERS, flags, 1, bytes(5) + peer.block()))
    peer.send(frames.frame(frames.PRIORITY, 0, 1, bytes(5)))
    peer.send(frames.frame(frames.PRIORITY, 0, 77, bytes(5)))
    peer.data(1, message(b"x"), ends=True)
    assert peer.replies()[1].messages == [b"x"]


def test_continuation_completes_a_header_block() -> None:
    peer = Peer().start()
    block = peer.block()
    peer.send(frames.frame(frames.HEADERS, 0, 1, block[:5]))
    peer.send(frames.frame(frames.CONTINUATION, 0, 1, block[5:9]))
    peer.send(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[9:]))
    peer.data(1, message(b"x"), ends=True)
    assert peer.replies()[1].messages == [b"x"]


def test_request_trailers_end_the_request() -> None:
    peer = Peer().start()
    stream = peer.open()
    peer.data(stream, message(b"x"))
    trailers = peer.encoder.encode([("x-checksum", "1")])
    peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, trailers))
    assert peer.replies()[stream].messages == [b"x"]


def test_unknown_frames_are_ignored_however_long() -> None:
    peer = Peer().start()
    peer.send(frames.frame(0xEE, 0xFF, 0, b"?" * 300_000))
    assert peer.echo().messages == [b"hello"]


def test_ping_is_answered_at_once() -> None:
    peer = Peer().start()
    peer.send(frames.ping(b"12345678"))
    assert peer.received() == [Frame(frames.PING, frames.ACK, 0, b"12345678")]


# what is answered without a handler


def test_unknown_method_is_unimplemented() -> None:
    reply = Peer().start().echo(p_path="/test.Service/Nope")
    assert reply.status == 12
    assert reply.text == "Method not found: /test.Service/Nope"
    assert reply.data == b""


def test_other_content_types_get_415() -> None:
    reply = Peer().start().echo(content_type="application/json")
    assert reply.headers[":status"] == "415"
    for accepted in ("application/grpc+proto", "application/grpc;charset=utf-8"):
        assert Peer().start().echo(content_type=accepted).messages == [b"hello"]
    assert Peer().start().echo(content_type="application/grpcweb").headers[":status"] == "415"


def test_other_methods_get_405() -> None:
    reply = Peer().start().echo(p_method="GET")
    assert reply.headers[":status"] == "405"
    assert reply.headers["allow"] == "POST"


def test_unknown_compression_is_unimplemented_and_says_what_is_known() -> None:
    reply = Peer().start().echo(grpc_encoding="snappy")
    assert reply.status == 12
    assert reply.headers["grpc-accept-encoding"] == "identity,deflate,gzip"


def test_bad_timeouts_and_bad_binary_metadata_are_said() -> None:
    assert Peer().start().echo(grpc_timeout="soon").status == 13
    assert "grpc-timeout" in Peer().start().echo(grpc_timeout="123456789S").text
    reply = Peer().start().echo(x_bin="!")
    assert reply.status == 13
    assert "x-bin" in reply.text


def test_too_many_headers_refuse_the_call_and_leave_the_connection() -> None:
    peer = Peer(GrpcSettings(max_header_list_size=1000)).start()
    reply = peer.echo(x_long="x" * 1000)
    assert reply.status == 8
    assert "metadata" in reply.text
    assert peer.echo().messages == [b"hello"]


def test_too_long_message_is_refused_with_both_sizes() -> None:
    peer = Peer(GrpcSettings(max_receive_message_size=100)).start()
    reply = peer.echo(bytes(101))
    assert reply.status == 8
    assert reply.text == "Received message larger than max (101 vs. 100)"
    assert peer.echo(bytes(100)).messages == [bytes(100)]


def test_too_long_message_is_refused_when_only_its_prefix_has_come() -> None:
    peer = Peer(GrpcSettings(max_receive_message_size=100)).start()
    stream = peer.open()
    peer.data(stream, message(bytes(1000))[:50])
    reply = peer.replies()[stream]
    assert reply.status == 8
    assert reply.reset == ErrorCode.NO_ERROR
    peer.data(stream, bytes(900), ends=True)  # what was under way is ignored
    assert peer.echo().messages == [b"hello"]


@pytest.mark.parametrize("count", [0, 2])
def test_unary_call_needs_one_message(count: int) -> None:
    peer = Peer().start()
    stream = peer.open()
    peer.data(stream, message(b"x") * count, ends=True)
    assert peer.replies()[stream].status == 12


def test_unary_call_without_body_is_unimplemented() -> None:
    peer = Peer().start()
    stream = peer.open(ends=True)
    assert peer.replies()[stream].status == 12


def test_half_message_is_an_error() -> None:
    peer = Peer().start()
    stream = peer.open()
    peer.data(stream, message(b"hello")[:7], ends=True)
    assert peer.replies()[stream].status == 13


def test_unknown_message_flag_is_an_error() -> None:
    peer = Peer().start()
    stream = peer.open()
    peer.data(stream, b"\x02\0\0\0\0", ends=True)
    assert peer.replies()[stream].status == 13


def test_broken_handler_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer().start()
    with caplog.at_level(logging.ERROR, "halimede"):
        reply = peer.echo(p_path=BROKEN)
    assert reply.status == 13
    assert "this handler is broken" in caplog.text
    assert peer.echo().messages == [b"hello"]


# compression


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("gzip", None)]
)
def test_compressed_requests_are_understood(encoding: str, compress: object) -> None:
    peer = Peer().start()
    stream = peer.open(grpc_encoding=encoding)
    body = compress(b"hello" * 20) if callable(compress) else b"hello" * 20
    peer.data(stream, message(body, compressed=callable(compress)), ends=True)
    assert peer.replies()[stream].messages == [b"hello" * 20]


def test_compression_bomb_is_refused() -> None:
    peer = Peer(GrpcSettings(max_receive_message_size=1000)).start()
    stream = peer.open(grpc_encoding="gzip")
    peer.data(stream, message(gzip.compress(bytes(100_000)), compressed=True), ends=True)
    assert peer.replies()[stream].status == 8


@pytest.mark.parametrize(
    "body", [b"", b"not gzip", gzip.compress(b"cut")[:-1], gzip.compress(b"more") + b"x"]
)
def test_damaged_compression_is_an_error(body: bytes) -> None:
    peer = Peer().start()
    stream = peer.open(grpc_encoding="gzip")
    peer.data(stream, message(body, compressed=True), ends=True)
    reply = peer.replies()[stream]
    assert reply.status == 13
    assert reply.text.startswith("Failed to decompress message")


def test_compressed_flag_without_encoding_is_an_error() -> None:
    peer = Peer().start()
    stream = peer.open()
    peer.data(stream, message(gzip.compress(b"x"), compressed=True), ends=True)
    assert peer.replies()[stream].status == 13


def test_replies_are_compressed_only_for_clients_that_accept_it() -> None:
    peer = Peer().start()
    stream = peer.call(COMPRESS, b"a" * 1000, grpc_accept_encoding="identity, gzip")
    reply = peer.replies()[stream]
    assert reply.headers["grpc-encoding"] == "gzip"
    assert reply.data[0] == 1
    assert gzip.decompress(reply.messages[0]) == b"a" * 1000
    plain = peer.call(COMPRESS, b"a" * 1000)
    assert peer.replies()[plain].messages == [b"a" * 1000]


# streams


def test_stream_echoes_each_message_and_ends_with_the_client() -> None:
    peer = Peer().start()
    stream = peer.open(STREAM)
    peer.data(stream, message(b"one") + message(b"") + message(b"three")[:4])
    assert peer.replies()[stream].messages == [b"one", b""]
    peer.data(stream, message(b"three")[4:])
    reply = peer.replies()[stream]
    assert reply.messages == [b"three"]
    assert not reply.ended
    peer.data(stream, b"", ends=True)
    assert peer.replies()[stream].status == 0


def test_finish_before_the_client_tells_it_to_stop() -> None:
    peer = Peer(
        methods={"/early": StreamMethod(lambda call: call.finish(9, "not now, 100 % sure: é"))}
    ).start()
    stream = peer.open("/early")
    reply = peer.replies()[stream]
    assert reply.status == 9
    assert reply.text == "not now, 100 %25 sure: %C3%A9"
    assert reply.reset == ErrorCode.NO_ERROR
    peer.data(stream, message(b"under way"))
    peer.data(stream, message(b"still"), ends=True)
    assert peer.echo().messages == [b"hello"]


def test_paused_stream_keeps_messages_and_grants_nothing() -> None:
    last_received: list[bytes] = []
    calls: list[Call] = []

    def handler(call: Call) -> None:
        calls.append(call)
        call.on_message = lambda message: last_received.append(bytes(message))
        call.on_half_close = call.finish
        call.pause()

    settings = GrpcSettings(stream_window=65_535, connection_window=65_535)
    peer = Peer(settings, {"/paused": StreamMethod(handler)}).start()
    stream = peer.open("/paused")
    peer.data(stream, message(bytes(20_000)))
    peer.data(stream, message(bytes(20_000)))
    assert last_received == []
    assert [found for found in peer.received() if found.kind == frames.WINDOW_UPDATE and found.stream] == []
    calls[0].resume()
    assert last_received == [bytes(20_000)] * 2
    assert [found.stream for found in peer.received() if found.kind == frames.WINDOW_UPDATE] == [stream]
    calls[0].pause()
    peer.data(stream, message(b"last"), ends=True)
    assert len(last_received) == 2
    calls[0].resume()
    assert last_received[2] == b"last"
    assert peer.replies()[stream].status == 0


# cancellation and deadlines


def test_reset_by_the_client_cancels_at_once() -> None:
    peer = Peer().start()
    stream = peer.call(WAIT)
    told: list[bool] = []
    call = peer.calls[0]
    call.on_cancel = lambda: told.append(call.cancelled)
    peer.send(frames.rst_stream(stream, ErrorCode.CANCEL))
    assert told == [True]
    call.reply((b"too late",))
    call.finish(5, "too late")
    assert peer.received() == []


def test_lost_connection_cancels_every_call() -> None:
    peer = Peer().start()
    assert peer.open_connections == {peer.protocol}
    told: list[int] = []
    for index in range(3):
        peer.call(WAIT)
        peer.calls[index].on_cancel = lambda index=index: told.append(index)
    peer.protocol.connection_lost(None)
    assert told == [0, 1, 2]
    assert peer.open_connections == set()
    peer.calls[0].reply((b"too late",))
    assert peer.received() == []


def test_deadline_ends_the_call_and_cancels_it() -> None:
    peer = Peer().start()
    late = peer.call(WAIT, grpc_timeout="500m")
    later = peer.call(WAIT, grpc_timeout="2S")
    never = peer.call(WAIT)
    told: list[int] = []
    peer.calls[0].on_cancel = lambda: told.append(late)
    peer.clock.advance(499 * MILLISECOND)
    assert peer.received() == []
    peer.clock.advance(MILLISECOND)
    reply = peer.replies()
    assert list(reply) == [late]
    assert reply[late].status == 4
    assert reply[late].text == "Deadline Exceeded"
    assert told == [late]
    peer.calls[1].reply((b"in time",))
    assert peer.replies()[later].messages == [b"in time"]
    peer.clock.advance(100 * SECOND)
    assert peer.received() == []
    peer.calls[2].reply((b"any time",))
    assert peer.replies()[never].messages == [b"any time"]


# the end of connections


def test_graceful_shutdown_serves_what_is_under_way_and_closes() -> None:
    peer = Peer().start()
    first = peer.call(WAIT)
    peer.protocol.shutdown()
    goaway, ping = peer.received()
    assert goaway.payload[:8] == frames.MAX_WINDOW.to_bytes(4, "big") + bytes(4)
    second = peer.call(WAIT)  # was under way
    peer.send(frames.ping(ping.payload, ack=True))
    last, code, _ = peer.goaway()
    assert (last, code) == (second, ErrorCode.NO_ERROR)
    peer.call(WAIT)  # is not served any more
    assert len(peer.calls) == 2
    peer.calls[1].reply((b"two",))
    assert not peer.transport.closed
    peer.calls[0].reply((b"one",))
    replies = peer.replies()
    assert replies[first].messages == [b"one"]
    assert replies[second].messages == [b"two"]
    assert peer.transport.ended
    peer.clock.advance(SECOND)
    assert peer.transport.aborted


def test_graceful_shutdown_does_not_wait_for_a_silent_client() -> None:
    peer = Peer().start()
    peer.protocol.shutdown()
    peer.received()
    peer.clock.advance(2 * SECOND)
    assert peer.goaway()[0] == 0
    assert peer.transport.ended


def test_shutdown_before_the_preface_closes() -> None:
    peer = Peer()
    peer.protocol.shutdown()
    assert peer.transport.ended


def test_http_1_client_is_told_what_this_port_speaks() -> None:
    for request in (b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n"):
        peer = Peer()
        peer.send(request[:3])
        peer.send(request[3:])
        assert peer.transport.sent.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"gRPC" in peer.transport.sent
        assert peer.transport.ended


def test_silent_connection_is_closed() -> None:
    peer = Peer()
    peer.clock.advance(20 * SECOND)
    assert peer.transport.aborted


def test_keepalive_pings_a_silent_client_and_closes_a_dead_one() -> None:
    settings = GrpcSettings(keepalive_time_ms=10_000, keepalive_timeout_ms=5_000)
    peer = Peer(settings).start()
    peer.clock.advance(60 * SECOND)
    assert peer.received() == []  # no call is open
    peer.call(WAIT)
    peer.clock.advance(10 * SECOND)
    (ping,) = peer.received()
    assert (ping.kind, ping.flags) == (frames.PING, 0)
    peer.send(frames.ping(ping.payload, ack=True))
    peer.clock.advance(14 * SECOND)
    assert not peer.transport.aborted
    assert len(peer.received()) == 1
    peer.clock.advance(2 * SECOND)
    assert peer.transport.aborted


def test_old_connection_is_retired_and_cut_off_after_the_grace() -> None:
    settings = GrpcSettings(max_connection_age_ms=60_000, max_connection_age_grace_ms=10_000)
    peer = Peer(settings).start()
    peer.call(WAIT)
    peer.clock.advance(53 * SECOND)
    assert peer.received() == []
    peer.clock.advance(14 * SECOND)
    assert peer.goaway()[1] == ErrorCode.NO_ERROR
    peer.clock.advance(12 * SECOND)
    assert peer.transport.aborted


# faults of the peer


def _after_start(peer: Peer, data: bytes) -> tuple[ErrorCode, str]:
    peer.start()
    peer.send(data)
    assert peer.transport.ended
    return peer.goaway()[1:]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frames.frame(frames.DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 0, b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 2, b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff"), ErrorCode.COMPRESSION_ERROR),
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xbf"), ErrorCode.COMPRESSION_ERROR),
        (frames.frame(frames.HEADERS, 12, 1, b"\x09abc"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, 12, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, 0, 1, b"\x82") + frames.ping(bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (
            frames.frame(frames.HEADERS, 0, 1, b"\x82") + frames.frame(frames.CONTINUATION, 4, 3, b""),
            ErrorCode.PROTOCOL_ERROR,
        ),
        (frames.frame(frames.CONTINUATION, 4, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.PRIORITY, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.RST_STREAM, 0, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.RST_STREAM, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.PING, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.SETTINGS, frames.ACK, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.SETTINGS, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31}), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.settings({frames.MAX_FRAME_SIZE: 16_383}), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({frames.MAX_FRAME_SIZE: 2**24}), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({frames.ENABLE_PUSH: 2}), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.window_update(1, 1), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.FRAME_HEADER.pack(0xFFFF, 0, frames.DATA, 0, 1), ErrorCode.FRAME_SIZE_ERROR),
        (frames.FRAME_HEADER.pack(0xFFFF, 0, 0xEE, 0, 0), ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_broken_protocol_ends_the_connection_with_the_right_code(data: bytes, code: ErrorCode) -> None:
    found, text = _after_start(Peer(), data)
    assert found == code
    assert text


def test_connection_must_begin_with_preface_and_settings() -> None:
    peer = Peer()
    peer.send(b"PRI * HTTP/2.0\r\n\r\nNO\r\n\r\n")
    assert peer.goaway()[1] == ErrorCode.PROTOCOL_ERROR
    peer = Peer()
    peer.send(frames.PREFACE, frames.ping(bytes(8)))
    assert peer.goaway()[1] == ErrorCode.PROTOCOL_ERROR
    peer = Peer()
    peer.send(frames.PREFACE, frames.frame(frames.HEADERS, frames.END_HEADERS, 1, peer.block()))
    assert peer.goaway()[1] == ErrorCode.PROTOCOL_ERROR


def test_fault_cancels_open_calls() -> None:
    peer = Peer().start()
    peer.call(WAIT)
    told: list[str] = []
    peer.calls[0].on_cancel = lambda: told.append("cancelled")
    peer.send(frames.window_update(0, 0))
    assert told == ["cancelled"]
    peer.send(b"anything" * 1000)  # is not read any more
    assert peer.goaway()[1] == ErrorCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "fields",
    [
        [(":method", "POST"), (":scheme", "http")],
        [(":method", "POST"), (":scheme", "http"), (":path", ECHO), (":path", ECHO)],
        [(":method", "POST"), (":scheme", "http"), (":path", ECHO), (":status", "200")],
        [(":method", "POST"), (":scheme", "http"), ("x", "y"), (":path", ECHO)],
        [(":method", "POST"), (":scheme", "http"), (":path", ECHO), ("X-Upper", "y")],
        [(":method", "POST"), (":scheme", "http"), (":path", ECHO), ("connection", "close")],
        [(":method", "POST"), (":scheme", "http"), (":path", ECHO), ("te", "gzip")],
        [(":method", "POST"), (":scheme", "http"), (":path", ECHO), ("x", "a\r\nb")],
        [(":method", "POST"), (":scheme", "http"), (":path", ECHO), ("", "empty")],
    ],
)
def test_malformed_headers_reset_the_stream_only(fields: list[tuple[str, str]]) -> None:
    peer = Peer().start()
    stream = peer.stream()
    peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, peer.encoder.encode(fields)))
    assert peer.replies()[stream].reset == ErrorCode.PROTOCOL_ERROR
    peer.data(stream, message(b"under way"), ends=True)
    assert peer.echo().messages == [b"hello"]


def test_data_after_the_end_of_the_request_resets_the_stream() -> None:
    peer = Peer().start()
    stream = peer.call(WAIT)
    peer.data(stream, b"more")
    assert peer.replies()[stream].reset == ErrorCode.STREAM_CLOSED
    assert peer.calls[0].cancelled


def test_frames_on_a_stream_that_both_have_ended_are_a_fault() -> None:
    peer = Peer().start()
    stream = peer.call()
    peer.received()
    peer.send(frames.window_update(stream, 1))  # may have been under way
    peer.send(frames.rst_stream(stream, ErrorCode.CANCEL))
    assert peer.received() == []
    peer.data(stream, b"x")
    assert peer.goaway()[1] == ErrorCode.STREAM_CLOSED


def test_more_streams_than_allowed_are_refused() -> None:
    peer = Peer(GrpcSettings(max_concurrent_streams=2)).start()
    peer.call(WAIT)
    peer.call(WAIT)
    third = peer.call(WAIT)
    assert peer.replies()[third].reset == ErrorCode.REFUSED_STREAM
    peer.calls[0].reply((b"done",))
    peer.call(WAIT)
    assert len(peer.calls) == 3
