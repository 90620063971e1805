import asyncio
import gzip
from collections.abc import Coroutine
from typing import Any

from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.grpc.transport.responses import Status
from halimede.net.receiving import ReceiveBudget
from tests.frontends.grpc.transport.wire import STREAM, WAIT, Peer, message
from tests.support.waiting import wait_until_async

MIB = 1 << 20


def open_peer(budget: ReceiveBudget) -> Peer:
    settings = GrpcSettings(budget=budget, stream_window=8 * MIB, connection_window=256 * MIB)
    return Peer(settings).start()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def send(peer: Peer, stream: int, size: int) -> None:
    """So much of a long message, in frames as long as they may be."""
    for start in range(0, size, MIB):
        peer.data(stream, b"x" * min(MIB, size - start))


def begin(peer: Peer, length: int, path: str = WAIT) -> int:
    """The stream of a call whose message has so many bytes."""
    stream = peer.open(path)
    peer.data(stream, b"\0" + length.to_bytes(4, "big"))
    return stream


def test_unfinished_messages_count_until_they_are_complete() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        peer = open_peer(budget)
        stream = begin(peer, 3 * MIB)
        send(peer, stream, 2 * MIB)
        assert budget.held == 2 * MIB
        send(peer, stream, MIB)
        assert budget.held == 3 * MIB  # the client may yet say that this was not all
        peer.data(stream, b"", ends=True)
        assert budget.held == 0
        assert peer.messages == [b"x" * 3 * MIB]

    run(test())


def test_messages_of_streams_count_until_they_are_complete() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        peer = open_peer(budget)
        stream = begin(peer, 3 * MIB, STREAM)
        send(peer, stream, 2 * MIB)
        assert budget.held == 2 * MIB
        send(peer, stream, MIB)
        assert budget.held == 0

    run(test())


def test_whole_messages_whose_calls_do_not_begin_count() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        peer = open_peer(budget)
        stream = peer.open(WAIT)
        peer.data(stream, message(b"x" * 1000))
        assert budget.held == 1000
        peer.data(stream, b"", ends=True)
        assert budget.held == 0
        assert peer.messages == [b"x" * 1000]

    run(test())


def test_lost_connection_gives_the_memory_back() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        peer = open_peer(budget)
        send(peer, begin(peer, 3 * MIB), 2 * MIB)
        peer.data(peer.open(), message(b"x"))
        peer.protocol.connection_lost(None)
        assert budget.held == 0

    run(test())


def test_message_that_could_never_fit_is_refused_when_only_its_prefix_has_come() -> None:
    async def test() -> None:
        peer = open_peer(ReceiveBudget(8 * MIB))
        stream = begin(peer, 7 * MIB + 1)
        reply = peer.replies()[stream]
        assert reply.status == 8
        assert reply.text == f"Received message larger than max ({7 * MIB + 1} vs. {7 * MIB})"

    run(test())


def test_newest_message_is_refused_when_nothing_is_left_and_the_others_go_on() -> None:
    async def test() -> None:
        budget = ReceiveBudget(24 * MIB)
        peer = open_peer(budget)
        streams = [begin(peer, 8 * MIB) for _ in range(4)]
        for stream in streams:
            send(peer, stream, 5 * MIB)
        small = peer.call(payload=b"small")
        assert peer.replies()[small].messages == [b"small"]
        send(peer, streams[0], 2 * MIB)
        await asyncio.sleep(0)
        replies = peer.replies()
        assert list(replies) == [streams[3]]
        assert replies[streams[3]].status == 14
        assert "--receive-memory-budget" in replies[streams[3]].text
        send(peer, streams[3], MIB)  # which was under way; it is thrown away
        assert budget.held == 17 * MIB
        for stream, rest in zip(streams, (1, 3, 3), strict=False):
            send(peer, stream, rest * MIB)
            peer.data(stream, b"", ends=True)
        assert [len(message) for message in peer.messages] == [8 * MIB] * 3
        assert budget.held == 0

    run(test())


def test_client_is_granted_no_more_while_memory_is_short() -> None:
    async def test() -> None:
        budget = ReceiveBudget(24 * MIB)
        peer = open_peer(budget)
        streams = [begin(peer, 4 * MIB) for _ in range(4)]
        for stream in streams:
            send(peer, stream, 4 * MIB)
        peer.received()
        late = begin(peer, 10 * MIB)
        send(peer, late, 4 * MIB + 1000)
        assert not [found for found in peer.received() if found.stream == late]
        for stream in streams:
            peer.data(stream, b"", ends=True)
        peer.received()
        await asyncio.sleep(0)
        assert [found.stream for found in peer.received()] == [late]  # a WINDOW_UPDATE
        send(peer, late, 6 * MIB - 1000)
        peer.data(late, b"", ends=True)
        assert len(peer.messages[-1]) == 10 * MIB

    run(test())


def compressed(content: bytes) -> bytes:
    return message(gzip.compress(content, 1), compressed=True)


def test_decompressed_messages_count_for_as_long_as_they_are_used() -> None:
    async def test() -> None:
        budget = ReceiveBudget(256 * MIB)
        peer = open_peer(budget)
        used: list[memoryview] = []
        peer.protocol.inbound.run = lambda call, handler, *args: used.append(args[-1])  # type: ignore[method-assign]
        stream = peer.open(WAIT, grpc_encoding="gzip")
        peer.data(stream, compressed(bytes(10 * MIB)), ends=True)
        await wait_until_async(lambda: bool(used), "the message")
        assert len(used[0]) == budget.kept == 10 * MIB
        assert budget.held == 0
        part = used.pop()[:10]
        assert budget.kept == 10 * MIB
        del part
        await wait_until_async(lambda: not budget.kept, "its memory to be free")

    run(test())


def test_messages_that_do_not_fit_when_decompressed_are_refused_while_others_are_used() -> None:
    async def test() -> None:
        budget = ReceiveBudget(32 * MIB, turn_s=0.02, wait_s=0.05)
        peer = open_peer(budget)
        budget.keep(27 * MIB)
        stream = peer.open(WAIT, grpc_encoding="gzip")
        peer.data(stream, compressed(bytes(10 * MIB)), ends=True)
        await wait_until_async(lambda: budget.held == 0 and not peer.protocol.busy, "the refusal")
        assert peer.replies()[stream].status == Status.UNAVAILABLE
        assert not peer.messages
        budget.release(27 * MIB)
        other = peer.open(WAIT, grpc_encoding="gzip")
        peer.data(other, compressed(bytes(10 * MIB)), ends=True)
        await wait_until_async(lambda: bool(peer.messages), "the message")

    run(test())


def test_a_message_larger_than_the_budget_when_decompressed_is_refused() -> None:
    async def test() -> None:
        peer = open_peer(ReceiveBudget(8 * MIB))
        stream = peer.open(WAIT, grpc_encoding="gzip")
        peer.data(stream, compressed(bytes(10 * MIB)), ends=True)
        await wait_until_async(lambda: not peer.protocol.busy, "the refusal")
        assert peer.replies()[stream].status == Status.RESOURCE_EXHAUSTED

    run(test())


def test_a_call_that_is_given_up_while_its_message_waits_gives_the_memory_back() -> None:
    async def test() -> None:
        budget = ReceiveBudget(256 * MIB)
        peer = open_peer(budget)
        stream = peer.open(WAIT, grpc_encoding="gzip")
        peer.data(stream, compressed(bytes(20 * MIB)), ends=True)
        peer.protocol.connection_lost(None)
        await wait_until_async(lambda: budget.held == 0 and budget.kept == 0, "the memory")
        assert not peer.messages

    run(test())
