"""Compressed bodies and messages, whose contents count against the budget."""

import asyncio
import gzip
import os
import zlib
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.frontends.inflation import (
    GZIP,
    Fault,
    InflateError,
    Inflater,
    Inflation,
    inflate,
    inflate_little,
)
from halimede.net.receiving import SMALL_BYTES, NoRoomError, ReceiveBudget
from tests.support.waiting import wait_until_async

MIB = 1 << 20
CONTENT = bytes(16 * MIB)
COMPRESSED = gzip.compress(CONTENT)


class Client:
    """For whom something is decompressed, and what comes of it."""

    def __init__(self, budget: ReceiveBudget, data: bytes = COMPRESSED, limit: int = 64 * MIB) -> None:
        self.closed = False
        self.content: memoryview | None = None
        self.error: Exception | None = None
        self.told = asyncio.Event()
        self.inflation = Inflation(budget, Inflater(data, GZIP, limit), self, self._done, self._failed)

    def _done(self, content: memoryview) -> None:
        self.content = content
        self.told.set()

    def _failed(self, error: Exception) -> None:
        self.error = error
        self.told.set()

    @property
    def has_all(self) -> bool:
        """Whether it has the whole `CONTENT`."""
        return self.content is not None and bytes(self.content) == CONTENT

    async def answered(self) -> "Client":
        await self.told.wait()
        return self


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(limited())


async def nothing_counts(budget: ReceiveBudget) -> None:
    await wait_until_async(lambda: not (budget.kept or budget.held), "nothing to count")


def test_content_counts_until_it_is_freed() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        client = await Client(budget).answered()
        assert client.content is not None
        assert client.has_all
        assert budget.kept == len(CONTENT)
        assert budget.keeps(client.content)
        part = client.content[5:10]
        client.content = None
        assert budget.kept == len(CONTENT)
        assert part == bytes(5)
        del part
        await nothing_counts(budget)

    run(test())


def test_little_content_never_waits_and_does_not_count() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        budget.keep(64 * MIB)
        client = await Client(budget, gzip.compress(bytes(SMALL_BYTES))).answered()
        assert bytes(client.content or b"") == bytes(SMALL_BYTES)
        assert budget.kept == 64 * MIB

    run(test())


def test_what_does_not_fit_waits_compressed_and_all_are_answered() -> None:
    async def test() -> None:
        budget = ReceiveBudget(48 * MIB, turn_s=0.1, wait_s=30)
        clients = [Client(budget) for _ in range(12)]
        most = 0
        answered = 0
        for waiting in asyncio.as_completed([each.answered() for each in clients]):
            client = await waiting
            most = max(most, budget.kept + budget.held)
            answered += client.has_all or isinstance(client.error, NoRoomError)
            client.content = None
        assert answered == 12
        assert any(client.error is None for client in clients)
        assert most <= 48 * MIB
        await nothing_counts(budget)

    run(test())


def test_who_waits_too_long_is_refused() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB, turn_s=0.02, wait_s=0.05)
        budget.keep(64 * MIB)
        clients = [Client(budget) for _ in range(8)]
        for client in clients:
            await client.answered()
            assert isinstance(client.error, NoRoomError)
            assert "--receive-memory-budget" in str(client.error)
        budget.release(64 * MIB)
        assert (await Client(budget).answered()).has_all

    run(test())


def test_nothing_counts_for_clients_that_leave() -> None:
    async def test() -> None:
        budget = ReceiveBudget(64 * MIB)
        clients = [Client(budget) for _ in range(8)]
        for number, client in enumerate(clients):
            client.closed = True
            if number % 2:
                client.inflation.cancel()
        await nothing_counts(budget)
        assert not any(client.told.is_set() for client in clients)
        assert (await Client(budget).answered()).has_all

    run(test())


NOISE = os.urandom(MIB)

FAULTS = {
    "damaged": (b"no gzip" * 1000, Fault.DAMAGED),
    "damaged later": (gzip.compress(NOISE)[:-2000] + bytes(2000), Fault.DAMAGED),
    "cut off": (gzip.compress(NOISE)[:-9], Fault.CUT_OFF),
    "followed": (gzip.compress(NOISE) + b"more", Fault.FOLLOWED),
    "followed soon": (gzip.compress(b"little") + b"more", Fault.FOLLOWED),
    "too long": (gzip.compress(bytes(3 * MIB)), Fault.TOO_LONG),
}


@pytest.mark.parametrize(("data", "fault"), FAULTS.values(), ids=FAULTS)
def test_faults_are_found_at_once_and_piece_by_piece(data: bytes, fault: Fault) -> None:
    async def test() -> None:
        with pytest.raises(InflateError) as at_once:
            inflate(data, GZIP, 2 * MIB)
        budget = ReceiveBudget(64 * MIB)
        client = await Client(budget, data, 2 * MIB).answered()
        assert isinstance(client.error, InflateError)
        assert client.error.fault is at_once.value.fault is fault
        await nothing_counts(budget)

    run(test())


@given(st.binary(max_size=5000), st.integers(0, 6000))
def test_content_is_the_same_at_once_and_piece_by_piece(content: bytes, limit: int) -> None:
    inflater = Inflater(gzip.compress(content), GZIP, limit)
    if len(content) > limit:
        with pytest.raises(InflateError, match="TOO_LONG"):
            inflater.step()
        return
    while not inflater.complete:
        inflater.step()
    assert inflater.take() == inflate(gzip.compress(content), GZIP, limit) == content


def test_much_content_is_not_decompressed_as_if_it_were_little() -> None:
    assert inflate_little(gzip.compress(bytes(100)), GZIP, 100) == bytes(100)
    assert inflate_little(gzip.compress(bytes(2 * SMALL_BYTES)), GZIP, MIB) is None
    with pytest.raises(InflateError, match="TOO_LONG"):
        inflate_little(gzip.compress(bytes(101)), GZIP, 100)
    assert inflate_little(zlib.compress(b"x"), zlib.MAX_WBITS, 100) == b"x"
