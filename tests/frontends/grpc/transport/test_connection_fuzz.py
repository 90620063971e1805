"""Whatever arrives, and however it is split, nothing fails that should not."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.limits import GrpcSettings
from tests.frontends.grpc.transport.wire import COMPRESS, ECHO, STREAM, WAIT, Peer, message

SETTINGS = GrpcSettings(max_receive_message_size=100_000, max_buffered=50_000, max_frame_size=20_000)
_SLOW = (HealthCheck.too_slow,)


def _request_block(path: str) -> bytes:
    fields = ((":scheme", "http"), (":path", path), ("content-type", "application/grpc"))
    block = b"\x83"
    for name, value in fields:
        block += b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
    return block


_payloads = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=40).map(message),
    st.binary(max_size=40).map(lambda content: message(content, compressed=True)),
    st.sampled_from((ECHO, STREAM, WAIT, COMPRESS)).map(_request_block),
    st.integers(0, 2**32 - 1).map(lambda number: number.to_bytes(4, "big")),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2**32 - 1)), max_size=3).map(
        lambda values: b"".join(frames.SETTING.pack(*value) for value in values)
    ),
)
_frames = st.one_of(
    st.builds(
        frames.frame, st.integers(0, 10), st.integers(0, 255), st.sampled_from((0, 1, 3, 5, 7)), _payloads
    ),
    st.builds(
        lambda stream, path: frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _request_block(path)),
        st.sampled_from((1, 3, 5, 7, 9)),
        st.sampled_from((ECHO, STREAM, WAIT)),
    ),
    st.builds(
        lambda stream, content, ends: frames.frame(frames.DATA, ends, stream, message(content)),
        st.sampled_from((1, 3, 5, 7, 9)),
        st.binary(max_size=300),
        st.integers(0, 1),
    ),
    st.binary(max_size=30),
)


def _check_answers(peer: Peer) -> None:
    """All that was sent is whole frames, in which nothing follows GOAWAY; a closed connection has said why."""
    kinds = [found.kind for found in peer.received()]
    if peer.transport.closed:
        assert kinds[-1] == frames.GOAWAY
    assert frames.GOAWAY not in kinds[:-1]


@examples(max_examples=100, deadline=None, suppress_health_check=_SLOW)
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_bytes_after_the_preface(chunks: list[bytes]) -> None:
    peer = Peer(SETTINGS)
    peer.send(frames.PREFACE, frames.settings({}))
    for chunk in chunks:
        peer.send(chunk)
    _check_answers(peer)
    peer.protocol.connection_lost(None)


@examples(max_examples=100, deadline=None, suppress_health_check=_SLOW)
@given(st.lists(_frames, max_size=25))
def test_any_frames(sent: list[bytes]) -> None:
    peer = Peer(SETTINGS)
    peer.send(frames.PREFACE, frames.settings({}))
    for data in sent:
        peer.send(data)
    for call in peer.calls:
        call.reply((b"late",))
    _check_answers(peer)
    peer.protocol.connection_lost(None)
    assert all(call.closed for call in peer.calls)


@examples(max_examples=100, deadline=None)
@given(st.binary(max_size=100))
def test_any_first_bytes(data: bytes) -> None:
    peer = Peer()
    peer.send(data)
    sent = bytes(peer.transport.sent)
    assert not sent or sent.startswith(b"HTTP/1.1 400") or sent[3] in (frames.GOAWAY, frames.SETTINGS)


def _exchange() -> bytes:
    """A valid exchange with some of everything: padding, CONTINUATION, a stream, long and short messages."""
    parts = [
        frames.PREFACE,
        frames.settings({frames.INITIAL_WINDOW_SIZE: 2**20}),
        frames.window_update(0, 2**20),
    ]
    block = _request_block(ECHO)
    parts += [
        frames.frame(frames.HEADERS, 0, 1, block[:10]),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[10:]),
        frames.frame(frames.HEADERS, frames.END_HEADERS, 3, _request_block(STREAM)),
        frames.frame(frames.DATA, frames.PADDED, 1, b"\x03" + message(bytes(30_000))[:10_000] + bytes(3)),
        frames.frame(frames.DATA, 0, 3, message(b"one") + message(b"two")[:2]),
        frames.frame(frames.DATA, 0, 1, message(bytes(30_000))[10_000:25_000]),
        frames.frame(0xEE, 0, 0, b"unknown" * 20),
        frames.frame(frames.DATA, frames.END_STREAM, 3, message(b"two")[2:] + message(b"")),
        frames.frame(frames.DATA, frames.END_STREAM, 1, message(bytes(30_000))[25_000:]),
        frames.frame(frames.HEADERS, frames.END_HEADERS, 5, block),
        frames.frame(frames.DATA, 0, 5, message(b"x" * 190_000)[:99_000]),
        frames.frame(frames.PRIORITY, 0, 5, bytes(5)),
        frames.frame(frames.DATA, frames.END_STREAM, 5, message(b"x" * 190_000)[99_000:]),
    ]
    return b"".join(parts)


@examples(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, len(_exchange())), max_size=30))
def test_valid_exchange_split_anywhere_gives_the_same_answers(cuts: list[int]) -> None:
    data = _exchange()
    peer = Peer()
    places = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(places):
        peer.send(data[start:end])
    replies = peer.replies()
    assert replies[1].messages == [bytes(30_000)]
    assert replies[3].messages == [b"one", b"two", b""]
    assert replies[5].messages == [b"x" * 190_000]
    assert all(reply.status == 0 for reply in replies.values())
    assert not peer.transport.closed


@pytest.mark.parametrize("length", [0, 1, 9, 40])
def test_cut_off_exchange_only_waits(length: int) -> None:
    peer = Peer()
    peer.send(_exchange()[: len(frames.PREFACE) + length])
    assert not peer.transport.closed
    peer.protocol.connection_lost(None)
