"""One turn of the loop takes a bounded part of what a connection sends; the rest has later turns, in order."""

import pytest

from halimede.core.clock import TURN_NS, VirtualClock
from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.call import Call, StreamMethod
from halimede.frontends.grpc.transport.frames import ErrorCode
from halimede.frontends.grpc.transport.inbound import READ_SIZE
from tests.frontends.grpc.transport.wire import WAIT, Peer, message

COLLECT = "/test.Service/Collect"


class BusyClock(VirtualClock):
    """Each look at it takes a tenth of what a turn may take, as the work between two looks does."""

    def now(self) -> int:
        self.stall(TURN_NS // 10)
        return super().now()


def _peer() -> tuple[Peer, list[bytes]]:
    """A peer of a busy server, and the messages that its method COLLECT gets."""
    collected: list[bytes] = []

    def collect(call: Call) -> None:
        call.on_message = lambda content: collected.append(bytes(content))

    return Peer(methods={COLLECT: StreamMethod(collect)}, clock=BusyClock()).start(), collected


def _calls(peer: Peer, count: int) -> bytes:
    return b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, peer.block(WAIT))
        + frames.frame(frames.DATA, frames.END_STREAM, stream, message(b"%d" % stream))
        for stream in range(1, 2 * count, 2)
    )


def test_many_calls_are_taken_in_turns_and_in_order() -> None:
    peer, _ = _peer()
    peer.send(_calls(peer, 1000))
    assert 0 < len(peer.calls) < 500
    assert not peer.transport.is_reading()
    peer.clock.run()
    assert peer.messages == [b"%d" % stream for stream in range(1, 2000, 2)]
    assert peer.transport.is_reading()


@pytest.mark.parametrize("content", [b"", b"x"])
def test_many_messages_in_one_frame_are_taken_in_turns(content: bytes) -> None:
    peer, collected = _peer()
    stream = peer.open(COLLECT)
    peer.send(frames.frame(frames.DATA, 0, stream, message(content) * 5000) + frames.ping(b"12345678"))
    assert 0 < len(collected) < 100
    assert not peer.transport.is_reading()
    kinds = [found.kind for found in peer.received()]
    assert collected == [content] * 5000
    assert kinds[-1] == frames.PING
    assert peer.transport.is_reading()


@pytest.mark.parametrize("padding", [0, 200])
def test_frame_that_takes_several_turns_ends_its_call(padding: int) -> None:
    peer, collected = _peer()
    stream = peer.open(COLLECT)
    payload = bytes((padding,)) + message(b"x") * 1000 + bytes(padding)
    flags = frames.PADDED | frames.END_STREAM
    peer.send(frames.frame(frames.DATA, flags, stream, payload), frames.frame(frames.HEADERS, 5, 3, b"\x80"))
    peer.clock.run()
    assert collected == [b"x"] * 1000
    assert peer.goaway()[1] == ErrorCode.COMPRESSION_ERROR  # what follows the frame is understood as a frame


@pytest.mark.parametrize(
    "data",
    [
        frames.window_update(0, 1),
        frames.window_update(1, 1),
        frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\1\0"),
        frames.frame(0xEE, 0, 0),
        frames.frame(frames.DATA, 0, 1, b"\0"),
    ],
)
def test_many_frames_without_effect_are_taken_in_turns(data: bytes) -> None:
    peer, _ = _peer()
    peer.open(COLLECT)
    peer.send(data * (60_000 // len(data)))
    assert not peer.transport.is_reading()
    peer.clock.run()
    assert peer.transport.is_reading()


def test_frame_of_which_a_part_has_come_is_completed_in_a_later_turn() -> None:
    peer, _ = _peer()
    calls = _calls(peer, 1000)
    peer.send(calls[:-3])
    peer.send(calls[-3:])
    peer.clock.run()
    assert len(peer.calls) == 1000


def test_fault_ends_the_connection_and_what_waited_is_not_read() -> None:
    peer, _ = _peer()
    peer.send(frames.frame(frames.HEADERS, 5, 2, b"") + _calls(peer, 500))
    peer.clock.run()
    assert peer.transport.closed
    assert peer.calls == []
    peer.protocol.connection_lost(None)


def test_connection_that_is_lost_between_turns_is_left_alone() -> None:
    peer, _ = _peer()
    peer.send(_calls(peer, 1000))
    before = len(peer.calls)
    peer.transport.abort()
    peer.protocol.connection_lost(None)
    peer.clock.run()
    assert len(peer.calls) == before
    assert not peer.transport.is_reading()


def test_socket_that_has_more_than_a_buffer_of_quick_frames_is_not_read_again_in_this_turn() -> None:
    class Clock(VirtualClock):
        def now(self) -> int:
            self.stall(TURN_NS // 100)
            return super().now()

    peer = Peer(methods={COLLECT: StreamMethod(lambda call: None)}, clock=Clock()).start()
    stream = peer.open(COLLECT)
    whole = frames.frame(frames.DATA, 0, stream, message(bytes(2**10)))
    data = whole * (READ_SIZE // len(whole) + 1)
    peer.send(data[:READ_SIZE])
    assert not peer.transport.is_reading()
    peer.clock.run()
    assert peer.transport.is_reading()
    peer.send(data[READ_SIZE:])
    assert peer.transport.is_reading()


def test_a_few_calls_at_once_do_not_stop_reading() -> None:
    peer, _ = _peer()
    peer.send(_calls(peer, 12))
    assert peer.transport.is_reading()
    assert len(peer.calls) == 12


def test_long_message_is_received_in_place_after_a_turn_that_was_too_long() -> None:
    peer, _ = _peer()
    stream = peer.open(WAIT)
    long = message(bytes(300_000))
    peer.send(frames.window_update(0, 1) * 2000 + frames.frame(frames.DATA, frames.END_STREAM, stream, long))
    peer.clock.run()
    assert peer.messages == [bytes(300_000)]


def test_call_with_more_headers_than_anybody_sends_ends_the_connection_undecoded() -> None:
    peer = Peer().start()
    fields = [("a", ""), *((f"name-{number}", "x" * (number % 140)) for number in range(60))]
    block = peer.block() + peer.encoder.encode(fields) + b"\xbe" * 200
    peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    assert peer.goaway()[1:] == (ErrorCode.ENHANCE_YOUR_CALM, "a call with more than 256 headers")
