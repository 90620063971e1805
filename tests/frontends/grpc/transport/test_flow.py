"""Flow control both ways: nothing is sent beyond the peer's windows, and what waits is bounded."""

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from halimede.core.clock import SECOND
from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.call import Call, StreamMethod, UnaryMethod
from halimede.frontends.grpc.transport.frames import ErrorCode
from halimede.frontends.grpc.transport.limits import GrpcSettings
from tests.frontends.grpc.transport.wire import STREAM, WAIT, Peer, message

LARGE = bytes(range(256)) * 1000


def test_reply_waits_for_the_streams_window() -> None:
    peer = Peer().start()
    peer.send(frames.window_update(0, 2**20))
    stream = peer.call(payload=bytes(100_000))
    reply = peer.replies()[stream]
    assert len(reply.data) == 65_535
    assert not reply.ended
    peer.send(frames.window_update(stream, 10))
    assert len(peer.replies()[stream].data) == 10
    peer.send(frames.window_update(stream, 100_000))
    rest = peer.replies()[stream]
    assert len(rest.data) == 100_005 - 65_545
    assert rest.status == 0


def test_reply_waits_for_the_connections_window_and_calls_take_turns() -> None:
    peer = Peer().start({frames.INITIAL_WINDOW_SIZE: 2**20})
    first = peer.call(payload=LARGE)
    second = peer.call(payload=LARGE)
    assert len(peer.replies()[first].data) == 65_535
    peer.send(frames.window_update(0, 2**20))
    replies = peer.replies()
    assert replies[first].status == 0
    assert replies[second].messages == [LARGE]


def test_frames_are_no_longer_than_the_peer_takes() -> None:
    peer = Peer().start({frames.INITIAL_WINDOW_SIZE: 2**20, frames.MAX_FRAME_SIZE: 20_000})
    peer.send(frames.window_update(0, 2**20))
    peer.call(payload=LARGE)
    sizes = [len(found.payload) for found in peer.received() if found.kind == frames.DATA]
    assert max(sizes) == 20_000
    assert sum(sizes) == len(LARGE) + 5


def test_lowered_initial_window_makes_windows_negative() -> None:
    peer = Peer().start()
    peer.send(frames.window_update(0, 2**20))
    stream = peer.call(payload=LARGE)
    peer.received()
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))  # the stream's window: -65535
    peer.send(frames.window_update(stream, 65_535))
    assert stream not in peer.replies()
    peer.send(frames.window_update(stream, 7))
    assert len(peer.replies()[stream].data) == 7
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 2**20}))
    assert peer.replies()[stream].status == 0


def test_raised_initial_window_is_acknowledged_before_it_is_used() -> None:
    peer = Peer().start()
    peer.send(frames.window_update(0, 2**20))
    peer.call(payload=LARGE)
    peer.received()

    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 2**20}))

    # gRPC's own client refuses data that only a window not yet acknowledged allows
    first, second, *_ = peer.received()
    assert (first.kind, first.flags) == (frames.SETTINGS, frames.ACK)
    assert second.kind == frames.DATA


def test_small_replies_wait_for_a_closed_window_too() -> None:
    peer = Peer().start({frames.INITIAL_WINDOW_SIZE: 0})
    stream = peer.call()
    assert peer.replies()[stream].data == b""
    peer.send(frames.window_update(stream, 3))
    peer.send(frames.window_update(stream, 100))
    reply = peer.replies()[stream]
    assert reply.messages == [b"hello"]
    assert reply.status == 0


def test_stream_window_beyond_the_limit_resets_the_stream() -> None:
    peer = Peer().start()
    stream = peer.call(WAIT)
    peer.send(frames.window_update(stream, frames.MAX_WINDOW))
    assert peer.replies()[stream].reset == ErrorCode.FLOW_CONTROL_ERROR
    stream = peer.call(WAIT)
    peer.send(frames.window_update(stream, 0))
    assert peer.replies()[stream].reset == ErrorCode.PROTOCOL_ERROR
    assert [call.cancelled for call in peer.calls] == [True, True]


def test_initial_window_that_overflows_a_stream_is_a_fault() -> None:
    peer = Peer().start()
    stream = peer.call(WAIT)
    peer.send(frames.window_update(stream, 2**30))
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31 - 1}))
    assert peer.goaway()[1] == ErrorCode.FLOW_CONTROL_ERROR


def test_full_socket_holds_data_back_but_not_pings() -> None:
    peer = Peer().start({frames.INITIAL_WINDOW_SIZE: 2**24})
    peer.send(frames.window_update(0, 2**24))
    peer.transport.full = True
    payload = bytes(2**20)
    stream = peer.open()
    peer.data(stream, message(payload)[: 2**19])
    peer.data(stream, message(payload)[2**19 :], ends=True)
    sent = peer.replies()[stream]
    assert len(sent.data) < len(payload)
    peer.send(frames.ping(bytes(8)))
    assert [found.kind for found in peer.received()] == [frames.PING]
    peer.transport.drain()
    rest = peer.replies()[stream]
    assert len(sent.data) + len(rest.data) == len(payload) + 5
    assert rest.status == 0


def test_writable_tells_a_stream_handler_when_to_go_on() -> None:
    calls: list[Call] = []
    writable: list[bool] = []

    def handler(call: Call) -> None:
        calls.append(call)
        call.on_writable = lambda: writable.append(call.writable)

    peer = Peer(GrpcSettings(stream_high_water=1000), {"/produce": StreamMethod(handler)})
    peer.start({frames.INITIAL_WINDOW_SIZE: 100})
    stream = peer.open("/produce")
    call = calls[0]
    while call.writable:
        call.send((bytes(300),))
    assert writable == []
    peer.send(frames.window_update(stream, 100))
    assert writable == []
    peer.send(frames.window_update(stream, 1000))
    assert writable == [True]
    call.finish()
    peer.send(frames.window_update(stream, 1000))
    assert peer.replies()[stream].status == 0


def test_more_data_than_granted_is_a_fault() -> None:
    peer = Peer(GrpcSettings(stream_window=1000)).start()
    stream = peer.open()
    peer.data(stream, message(bytes(2000)))
    assert peer.replies()[stream].reset == ErrorCode.FLOW_CONTROL_ERROR
    calls: list[Call] = []

    def paused(call: Call) -> None:
        calls.append(call)
        call.pause()

    settings = GrpcSettings(stream_window=2**20, connection_window=65_535, max_buffered=10_000)
    peer = Peer(settings, {"/paused": StreamMethod(paused)}).start()
    stream = peer.open("/paused")
    for _ in range(4):
        peer.data(stream, message(bytes(16_000)))
    assert not peer.transport.closed
    peer.data(stream, message(bytes(16_000)))
    assert peer.goaway()[1] == ErrorCode.FLOW_CONTROL_ERROR


def test_window_is_granted_in_batches() -> None:
    peer = Peer(GrpcSettings(stream_window=100_000, connection_window=200_000)).start()
    stream = peer.open()
    payload = bytes(400_000)
    whole = message(payload)
    grants = []
    for start in range(0, len(whole), 10_000):
        peer.data(stream, whole[start : start + 10_000], ends=start + 10_000 >= len(whole))
        for found in peer.received():
            if found.kind == frames.WINDOW_UPDATE:
                grants.append((found.stream, int.from_bytes(found.payload, "big")))
    assert not peer.transport.closed
    assert min(increment for _, increment in grants) >= 50_000
    assert sum(increment for target, increment in grants if target == 0) >= 200_000


def test_client_that_never_reads_cannot_make_the_server_hold_more_and_more() -> None:
    begun: list[int] = []

    def handler(call: Call, message: memoryview) -> None:
        begun.append(call.stream)
        call.reply((message,))

    settings = GrpcSettings(max_buffered=100_000, connection_window=65_535)
    peer = Peer(settings, {"/big": UnaryMethod(handler)}).start({frames.INITIAL_WINDOW_SIZE: 0})
    streams = []
    window = 65_535
    while window >= 10_005:
        streams.append(peer.call("/big", bytes(10_000)))
        window -= 10_005
        for found in peer.received():
            if found.kind == frames.WINDOW_UPDATE and not found.stream:
                window += int.from_bytes(found.payload, "big")
    # replies up to the bound, requests up to the window: then it is the client's turn
    assert len(begun) == 10
    assert len(streams) <= 10 + 7
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 100_000}), frames.window_update(0, 10**6))
    assert begun == streams
    replies = peer.replies()
    assert all(replies[stream].status == 0 for stream in streams)
    peer.call("/big", bytes(10_000))
    assert len(begun) == len(streams) + 1


def test_cancelled_replies_make_room_again() -> None:
    settings = GrpcSettings(max_buffered=10_000)
    peer = Peer(settings).start({frames.INITIAL_WINDOW_SIZE: 0})
    first = peer.call(payload=bytes(20_000))
    peer.call(WAIT)
    assert peer.calls == []
    peer.send(frames.rst_stream(first, ErrorCode.CANCEL))
    assert len(peer.calls) == 1


def test_calls_that_wait_for_room_still_end_at_their_deadline_or_when_cancelled() -> None:
    peer = Peer(GrpcSettings(max_buffered=10_000)).start({frames.INITIAL_WINDOW_SIZE: 0})
    first = peer.call(payload=bytes(20_000))
    late = peer.call(WAIT, grpc_timeout="1S")
    cancelled = peer.call(WAIT)
    peer.call(WAIT, payload=b"patient")
    peer.received()
    peer.clock.advance(SECOND)
    assert peer.replies()[late].status == 4
    peer.send(frames.rst_stream(cancelled, ErrorCode.CANCEL))
    peer.send(frames.rst_stream(first, ErrorCode.CANCEL))
    assert peer.messages == [b"patient"]


def test_messages_that_a_finished_stream_never_took_weigh_no_more() -> None:
    calls: list[Call] = []

    def paused(call: Call) -> None:
        calls.append(call)
        call.pause()

    settings = GrpcSettings(connection_window=65_535, max_buffered=10_000)
    peer = Peer(settings, {"/paused": StreamMethod(paused)}).start()
    for ends in (True, False):
        stream = peer.open("/paused")
        for _ in range(3):
            peer.data(stream, message(bytes(14_000)))
        peer.data(stream, message(b"last"), ends=ends)
        assert [found for found in peer.received() if found.kind == frames.WINDOW_UPDATE] == []
        calls[-1].finish()
        peer.send(frames.window_update(0, 1))
        assert peer.inbound_window() == 65_535
        peer.received()


def test_peer_without_a_header_table_is_told_that_none_is_used() -> None:
    peer = Peer().start({frames.HEADER_TABLE_SIZE: 0})
    stream = peer.call()
    headers = [found for found in peer.received() if found.kind == frames.HEADERS and found.stream == stream]
    assert [found.payload[:1] for found in headers] == [b"\x20", b"\x00"]
    peer.decoder.max_allowed_table_size = 0
    peer.decoder.header_table_size = 0
    assert peer.echo().messages == [b"hello"]


@examples(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60_000), min_size=1, max_size=6),
    initial=st.integers(0, 100_000),
    grants=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 50_000)), max_size=20),
)
def test_whatever_the_windows_every_byte_arrives_once_and_none_too_early(
    sizes: list[int], initial: int, grants: list[tuple[int, int]]
) -> None:
    peer = Peer().start({frames.INITIAL_WINDOW_SIZE: initial})
    streams = [peer.stream() for _ in sizes]
    windows = {0: 65_535, **dict.fromkeys(streams, initial)}
    got: dict[int, bytes] = dict.fromkeys(streams, b"")

    def account() -> None:
        for found in peer.received():
            if found.kind == frames.DATA:
                windows[0] -= len(found.payload)
                windows[found.stream] -= len(found.payload)
                got[found.stream] += found.payload
                assert windows[0] >= 0
                assert windows[found.stream] >= 0

    for stream, size in zip(streams, sizes, strict=True):
        peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, peer.block()))
        peer.data(stream, message(bytes(size)), ends=True)
        account()
    for index, increment in grants:
        target = 0 if index == 0 else streams[index % len(streams)]
        if len(got.get(target, b"")) == sizes[streams.index(target)] + 5 if target else False:
            continue
        windows[target] += increment
        peer.send(frames.window_update(target, increment))
        account()
    for target in (0, *streams):
        windows[target] += 10**6
        peer.send(frames.window_update(target, 10**6))
        account()
    assert got == {stream: message(bytes(size)) for stream, size in zip(streams, sizes, strict=True)}


def test_messages_of_a_stream_keep_their_order_through_closed_windows() -> None:
    peer = Peer().start({frames.INITIAL_WINDOW_SIZE: 50})
    stream = peer.open(STREAM)
    sent = [bytes((index,)) * (index * 7) for index in range(30)]
    for payload in sent:
        peer.data(stream, message(payload))
    data = peer.replies()[stream].data
    while len(data) < sum(len(payload) + 5 for payload in sent):
        peer.send(frames.window_update(stream, 33))
        data += peer.replies()[stream].data
    assert data == b"".join(message(payload) for payload in sent)


def test_connection_whose_client_takes_nothing_of_its_replies_is_closed_after_a_minute() -> None:
    peer = Peer().start()
    peer.call(payload=LARGE)
    peer.clock.advance(59 * SECOND)
    assert not peer.transport.aborted
    peer.clock.advance(SECOND)
    assert peer.transport.aborted


def test_connection_whose_client_takes_a_little_now_and_then_stays_open() -> None:
    peer = Peer().start()
    peer.send(frames.window_update(0, 2**20))
    stream = peer.call(payload=LARGE)
    for _ in range(5):
        peer.clock.advance(50 * SECOND)
        peer.send(frames.window_update(stream, 10))
    assert not peer.transport.aborted
    peer.send(frames.window_update(stream, 2**20))
    assert peer.replies()[stream].status == 0
    peer.clock.advance(200 * SECOND)
    assert not peer.transport.aborted


def paused_peer(settings: GrpcSettings) -> tuple[Peer, list[Call], list[bytes]]:
    """A peer of a server with a stream at `/paused`, whose calls are paused, and what they have taken."""
    calls: list[Call] = []
    taken: list[bytes] = []

    def paused(call: Call) -> None:
        calls.append(call)
        call.on_message = lambda message: taken.append(bytes(message))
        call.pause()

    return Peer(settings, {"/paused": StreamMethod(paused)}).start(), calls, taken


def connection_grants(peer: Peer) -> int:
    return sum(1 for found in peer.received() if found.kind == frames.WINDOW_UPDATE and not found.stream)


def test_empty_messages_that_a_paused_call_has_not_taken_keep_the_client_from_sending_more() -> None:
    settings = GrpcSettings(connection_window=65_535, max_buffered=100_000)
    peer, calls, taken = paused_peer(settings)
    stream = peer.open("/paused")
    peer.received()
    for _ in range(4):
        peer.data(stream, message(b"") * 100)
    other = peer.open(STREAM)
    peer.data(other, message(bytes(40_000)))
    assert connection_grants(peer) == 0
    calls[0].resume()
    assert taken == [b""] * 400
    assert connection_grants(peer) == 1
    peer.data(other, message(bytes(20_000)))
    peer.data(other, message(bytes(20_000)))
    assert connection_grants(peer) == 1


def test_call_whose_empty_messages_would_take_more_than_may_wait_is_refused() -> None:
    settings = GrpcSettings(connection_window=65_535, max_buffered=100_000)
    peer, calls, taken = paused_peer(settings)
    stream = peer.open("/paused")
    for _ in range(7):
        peer.data(stream, message(b"") * 100)
    reply = peer.replies()[stream]
    assert (reply.status, reply.text) == (8, "Too many messages of the call wait to be handled")
    assert calls[0].cancelled
    assert taken == []
    again = peer.open("/paused")
    peer.data(again, message(b"one"))
    calls[1].resume()
    assert taken == [b"one"]
