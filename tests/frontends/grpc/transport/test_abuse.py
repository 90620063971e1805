"""The known ways to keep an HTTP/2 server busy: each ends with GOAWAY, and moderate use does not."""

from collections.abc import Callable

import pytest

from halimede.core.clock import SECOND
from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.frames import ErrorCode
from halimede.frontends.grpc.transport.limits import Allowance, GrpcSettings
from tests.frontends.grpc.transport.wire import WAIT, Peer, message


def _flood(peer: Peer, send: Callable[[], None], count: int) -> tuple[ErrorCode, str]:
    for _ in range(count):
        send()
        if peer.transport.closed:
            return peer.goaway()[1:]
    raise AssertionError(f"{count} were let pass")


def test_rapid_reset() -> None:
    peer = Peer().start()

    def open_and_reset() -> None:
        peer.send(frames.rst_stream(peer.call(WAIT), ErrorCode.CANCEL))

    code, text = _flood(peer, open_and_reset, 1100)
    assert code == ErrorCode.ENHANCE_YOUR_CALM
    assert "reset" in text
    assert all(call.cancelled for call in peer.calls)


def test_streams_that_make_the_server_reset_them() -> None:
    peer = Peer().start()

    def make_reset() -> None:
        peer.send(frames.window_update(peer.call(WAIT), 0))

    assert _flood(peer, make_reset, 1100)[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_streams_beyond_the_limit() -> None:
    peer = Peer(GrpcSettings(max_concurrent_streams=1)).start()
    peer.call(WAIT)
    assert _flood(peer, lambda: void(peer.open(WAIT)), 1100)[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_clients_that_cancel_now_and_then_are_served() -> None:
    peer = Peer().start()
    for _ in range(3000):
        peer.send(frames.rst_stream(peer.call(WAIT), ErrorCode.CANCEL))
        peer.clock.advance(SECOND // 50)
    assert peer.echo().messages == [b"hello"]


def test_early_pings() -> None:
    peer = Peer().start()
    code, text = _flood(peer, lambda: peer.send(frames.ping(bytes(8))), 5)
    assert code == ErrorCode.ENHANCE_YOUR_CALM
    assert text == "too_many_pings"


def test_pings_at_the_permitted_interval_and_after_replies_are_no_strikes() -> None:
    peer = Peer().start()
    for _ in range(50):
        peer.echo()
        peer.send(frames.ping(bytes(8)))
    peer.call(WAIT)
    for _ in range(50):
        peer.clock.advance(300 * SECOND)
        peer.send(frames.ping(bytes(8)))
    assert peer.echo().messages == [b"hello"]


def test_ping_flood_where_strikes_are_off() -> None:
    peer = Peer(GrpcSettings(max_ping_strikes=0)).start()
    assert _flood(peer, lambda: peer.send(frames.ping(bytes(8))), 1100)[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_answers_that_are_never_read() -> None:
    settings = GrpcSettings(max_ping_strikes=0, send_timeout_ms=10_000_000)
    peer = Peer(settings).start({frames.INITIAL_WINDOW_SIZE: 2**24})
    peer.transport.full = True
    peer.call(payload=bytes(200_000))

    def ping() -> None:
        peer.send(frames.ping(bytes(8)))
        peer.clock.advance(SECOND)

    assert _flood(peer, ping, 1100) == (
        ErrorCode.ENHANCE_YOUR_CALM,
        "the answers to PING and SETTINGS are not read",
    )


@pytest.mark.parametrize(
    "data",
    [
        frames.settings({}),
        frames.SETTINGS_ACK,
        frames.settings({frames.INITIAL_WINDOW_SIZE: 1}),
    ],
)
def test_settings(data: bytes) -> None:
    peer = Peer().start()
    assert _flood(peer, lambda: peer.send(data), 200)[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_endless_settings_frame() -> None:
    peer = Peer().start()
    peer.send(frames.settings(dict.fromkeys(range(10, 200), 1)))
    assert peer.goaway()[1] == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("padding", [None, 200])
def test_empty_data_frames(padding: int | None) -> None:
    peer = Peer().start()
    stream = peer.open()
    data = frames.frame(frames.DATA, 0, stream)
    if padding is not None:
        data = frames.frame(frames.DATA, frames.PADDED, stream, bytes((padding,)) + bytes(padding))
    assert _flood(peer, lambda: peer.send(data), 200)[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_empty_continuations() -> None:
    peer = Peer().start()
    peer.send(frames.frame(frames.HEADERS, 0, 1, peer.block()))
    empty = frames.frame(frames.CONTINUATION, 0, 1)
    assert _flood(peer, lambda: peer.send(empty), 200)[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_endless_continuation() -> None:
    peer = Peer().start()
    peer.send(frames.frame(frames.HEADERS, 0, 1, peer.block()))
    more = frames.frame(frames.CONTINUATION, 0, 1, b"\x00\x01a" + b"\x7f\x80\x40" + b"x" * 8000)
    assert _flood(peer, lambda: peer.send(more), 200)[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_header_list_that_unpacks_to_megabytes() -> None:
    peer = Peer().start()
    large = peer.encoder.encode([("x", "y" * 3900)])
    peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, large + b"\xbe" * 16_000))
    assert peer.goaway()[1] == ErrorCode.ENHANCE_YOUR_CALM


def test_header_frame_beyond_all_measure_is_not_waited_for() -> None:
    peer = Peer().start()
    peer.send(frames.FRAME_HEADER.pack(0xFFF, 0, frames.HEADERS, frames.END_HEADERS, 1))
    assert peer.goaway()[1] == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "data",
    [
        frames.window_update(0, 1),
        frames.frame(frames.PRIORITY, 0, 1, bytes(5)),
        frames.frame(0xEE, 0, 0),
        frames.ping(bytes(8), ack=True),
    ],
)
def test_frames_that_do_nothing(data: bytes) -> None:
    peer = Peer().start()
    assert _flood(peer, lambda: peer.send(data * 100), 110)[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_window_updates_for_what_is_sent_are_no_flood() -> None:
    peer = Peer().start()
    for _ in range(2000):
        peer.echo()
        peer.send(frames.window_update(0, 10) * 8)
    assert peer.echo().messages == [b"hello"]


def test_one_byte_at_a_time_is_slow_but_served() -> None:
    peer = Peer().start()
    stream = peer.open()
    for byte in message(bytes(500)):
        peer.data(stream, bytes((byte,)))
    peer.data(stream, b"", ends=True)
    assert peer.replies()[stream].messages == [bytes(500)]


def test_allowance_is_a_burst_then_a_rate() -> None:
    allowance = Allowance(3, 10)
    assert [allowance.spend(0) for _ in range(5)] == [True, True, True, False, False]
    assert [allowance.spend(SECOND // 5) for _ in range(3)] == [True, True, False]
    assert [allowance.spend(100 * SECOND) for _ in range(4)] == [True, True, True, False]
    allowance.refill(2)
    assert [allowance.spend(100 * SECOND) for _ in range(3)] == [True, True, False]


def void(_: object) -> None:
    """Forget a result."""
