import asyncio
import gc
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from halimede.core.buffers import BufferPool
from halimede.frontends.relay import link as link_module
from halimede.frontends.relay.link import Link
from halimede_worker.messages.memory import segment_of
from tests.support.waiting import wait_until_async

LARGE = 200_000


class Ends:
    """Both ends of a link, and what has arrived at each."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.received: tuple[list[Any], list[Any]] = ([], [])
        self.closed = [False, False]
        self.links = tuple(
            Link(loop, end, {1: self.received[side].append}, partial(self._close, side))
            for side, end in enumerate(ends)
        )

    def _close(self, side: int) -> None:
        self.closed[side] = True


def run(test: Callable[[Ends], Awaitable[None]]) -> None:
    async def main() -> None:
        ends = Ends()
        try:
            await test(ends)
        finally:
            for link in ends.links:
                link.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@contextmanager
def pool_of_a_front_end() -> Iterator[BufferPool]:
    """A pool whose segments are numbered as in a process of its own."""
    pool = BufferPool()
    pool.number_by_process()
    yield pool
    pool.release()


def test_items_of_one_turn_of_the_loop_arrive_in_order() -> None:
    async def test(ends: Ends) -> None:
        for number in range(1000):
            ends.links[0].post(1, number)
        await wait_until_async(lambda: len(ends.received[1]) == 1000)
        assert ends.received[1] == list(range(1000))

    run(test)


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 70_000, 5_000_000])
def test_payload_of_any_size_arrives(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)

    async def test(ends: Ends) -> None:
        for _ in range(20):
            ends.links[0].post(1, ends.links[0].payload(data))
        await wait_until_async(lambda: len(ends.received[1]) == 20)
        assert all(bytes(ends.links[1].bytes_of(each)) == data for each in ends.received[1])

    run(test)


def test_message_longer_than_a_packet_arrives() -> None:
    text = "x" * 300_000

    async def test(ends: Ends) -> None:
        ends.links[0].post(1, text)
        ends.links[1].post(1, text)
        await wait_until_async(lambda: ends.received[0] and ends.received[1])
        assert ends.received == ([text], [text])

    run(test)


def test_received_body_is_not_copied_and_comes_back_as_it_is() -> None:
    with pool_of_a_front_end() as pool:

        async def test(ends: Ends) -> None:
            front_end, engine = ends.links
            body = pool.take(LARGE)
            body[:] = b"a" * LARGE
            front_end.post(1, front_end.payload(body))
            await wait_until_async(lambda: ends.received[1])
            view = engine.bytes_of(ends.received[1].pop())
            body[0] = ord("b")
            assert view[0] == ord("b"), "both sides see the same memory"
            engine.post(1, engine.payload(view))
            await wait_until_async(lambda: ends.received[0])
            back = front_end.bytes_of(ends.received[0].pop())
            body[1] = ord("c")
            assert bytes(back[:3]) == b"bca"

        run(test)


def test_segment_is_used_again_only_when_the_other_side_views_it_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "_TIDY_S", 0.01)
    with pool_of_a_front_end() as pool:

        async def test(ends: Ends) -> None:
            front_end, engine = ends.links
            body = pool.take(LARGE)
            body[:] = b"a" * LARGE
            front_end.post(1, front_end.payload(body))
            segment = segment_of(np.frombuffer(body, np.uint8))
            assert segment is not None
            number = segment.number
            del body, segment
            await wait_until_async(lambda: ends.received[1])
            view = engine.bytes_of(ends.received[1].pop())
            engine.post(1, "with which it would be given back, were it not viewed")
            await wait_until_async(lambda: ends.received[0])
            other = pool.take(LARGE)
            other[:] = b"b" * LARGE
            assert bytes(view) == b"a" * LARGE
            del view
            await wait_until_async(lambda: pool.segment(LARGE).number == number)

        run(test)


def test_other_side_forgets_segments_that_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_TIDY_S", 0.01)
    with pool_of_a_front_end() as pool:

        def mapped() -> int:
            return Path("/proc/self/maps").read_text().count("memfd:halimede")

        async def test(ends: Ends) -> None:
            before = mapped()
            front_end, engine = ends.links
            body = pool.take(LARGE)
            front_end.post(1, front_end.payload(body))
            await wait_until_async(lambda: ends.received[1])
            view = engine.bytes_of(ends.received[1].pop())
            assert mapped() == before + 2
            del body, view
            gc.collect()

            def released() -> bool:
                pool.release()
                return mapped() == before

            await wait_until_async(released)

        run(test)


def test_other_items_are_taken_when_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def test(ends: Ends) -> None:
        ends.links[0].post(99, "no such kind")
        ends.links[0].post(1, "next")
        await wait_until_async(lambda: ends.received[1])
        assert ends.received[1] == ["next"]

    run(test)
    assert "a call between processes failed" in caplog.text


class Colour(IntEnum):
    RED = 1


def test_an_item_that_cannot_be_sent_ends_neither_the_link_nor_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(ends: Ends) -> None:
        for item in (1, Colour.RED, (2, [Colour.RED, True, "x"]), object(), 3):
            ends.links[0].post(1, item)
        ends.links[0].post(1, ends.links[0].payload(bytes(LARGE)))
        await wait_until_async(lambda: len(ends.received[1]) == 5)
        *small, large = ends.received[1]
        assert small == [1, 1, (2, (1, True, "x")), 3]
        assert ends.links[1].bytes_of(large) == bytes(LARGE)
        assert ends.closed == [False, False]

    run(test)
    assert "a call between processes is lost: unmarshallable object: (1, <object" in caplog.text


def test_items_that_need_more_shared_memory_than_there_is_are_sent_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def private(_size: int) -> None:
        raise MemoryError("there is no shared memory")

    async def test(ends: Ends) -> None:
        monkeypatch.setattr("halimede.workers.channel.POOL.private", private)
        for number in range(100):
            ends.links[0].post(1, (number, bytes(10_000)))
        await wait_until_async(lambda: len(ends.received[1]) == 100)
        assert [number for number, _ in ends.received[1]] == list(range(100))
        assert ends.closed == [False, False]

    run(test)


def test_end_of_the_other_side_is_told_once_and_items_are_dropped() -> None:
    async def test(ends: Ends) -> None:
        ends.links[0].close()
        await wait_until_async(lambda: ends.closed[1])
        ends.links[1].post(1, "nobody hears it")
        await asyncio.sleep(0)
        assert ends.closed == [False, True]

    run(test)


def test_connections_are_handed_over_with_what_is_said_of_them() -> None:
    async def test(ends: Ends) -> None:
        taken: list[tuple[Any, ...]] = []
        ends.links[1].on_connection = lambda *about: taken.append(about)
        client, server = socket.socketpair()
        ends.links[0].hand("http", 3, descriptor=server.detach())
        await wait_until_async(lambda: taken)
        (protocol, elsewhere, descriptor) = taken[0]
        assert (protocol, elsewhere) == ("http", 3)
        os.write(descriptor, b"hello")
        assert client.recv(10) == b"hello"
        os.close(descriptor)
        assert client.recv(10) == b"", "no other process has it open"
        client.close()

    run(test)
