"""Replies whose clients open no window for them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.grpc.transport.responses import Status
from halimede.net.receiving import ReceiveBudget
from tests.frontends.grpc.transport.wire import STREAM, WAIT, Peer, message
from tests.support.waiting import wait_until_async

MIB = 1 << 20


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def open_peer(budget: ReceiveBudget) -> Peer:
    return Peer(GrpcSettings(budget=budget)).start()


def reply(peer: Peer, size: int) -> int:
    """A call that is answered with so many bytes: its stream."""
    stream = peer.call(WAIT)
    peer.calls[-1].reply((bytes(size),))
    return stream


def test_replies_count_until_the_client_takes_them() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        peer = open_peer(budget)
        stream = reply(peer, 8 * MIB)
        assert 7 * MIB < budget.unsent.held == budget.kept == peer.protocol.sender.queued
        for number in (0, stream):
            grant = (10 * MIB).to_bytes(4, "big")
            peer.send(frames.frame(frames.WINDOW_UPDATE, 0, number, grant))
        assert peer.replies()[stream].messages == [bytes(8 * MIB)]
        assert budget.unsent.held == budget.kept == 0

    run(test())


def test_replies_of_calls_and_connections_that_end_count_no_more() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        peer = open_peer(budget)
        stream = reply(peer, 8 * MIB)
        reply(peer, 8 * MIB)
        held = budget.unsent.held
        peer.send(frames.rst_stream(stream, frames.ErrorCode.CANCEL))
        assert 7 * MIB < budget.unsent.held < held - 7 * MIB
        peer.protocol.connection_lost(None)
        assert budget.unsent.held == budget.kept == 0

    run(test())


def test_a_reply_that_does_not_fit_is_refused_and_smaller_ones_are_not() -> None:
    async def test() -> None:
        budget = ReceiveBudget(24 * MIB)
        silent, other = open_peer(budget), open_peer(budget)
        reply(silent, 8 * MIB)
        refused = reply(other, 8 * MIB)
        answer = other.replies()[refused]
        assert answer.status == Status.UNAVAILABLE
        assert "half of --receive-memory-budget" in answer.text
        assert other.echo().messages == [b"hello"]
        silent.protocol.connection_lost(None)
        reply(other, 8 * MIB)
        assert budget.unsent.held > 7 * MIB

    run(test())


def test_a_stream_whose_message_does_not_fit_ends() -> None:
    async def test() -> None:
        budget = ReceiveBudget(2 * MIB)
        peer = open_peer(budget)
        budget.unsent.held += MIB  # of others
        stream = peer.open(STREAM)
        peer.data(stream, message(b"small"))
        peer.data(stream, message(bytes(512 * 1024)))
        answer = peer.replies()[stream]
        assert (answer.messages, answer.status) == ([b"small"], Status.UNAVAILABLE)

    run(test())


def test_clients_that_open_no_window_are_closed_when_memory_is_short() -> None:
    async def test() -> None:
        budget = ReceiveBudget(16 * MIB, turn_s=0.05)
        peer = open_peer(budget)
        reply(peer, 8 * MIB)
        await wait_until_async(lambda: peer.transport.aborted, "the connection to be closed")

    run(test())
