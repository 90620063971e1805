"""Whatever happens in whatever order: no byte and no copy is forgotten, and none is counted twice."""

# ruff: noqa: SLF001 - the state within is compared with a model of it

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from halimede.hosting.routing.agreement import ShadowCounts
from halimede.hosting.routing.counts import CountingMeter, InvocationCounts
from halimede.hosting.routing.table import Target, VariantRoute
from halimede.hosting.shadows.copies import Copies
from halimede.hosting.shadows.frames import Done, Frames, Job, Jobs, Results, Sent
from halimede.hosting.shadows.link import SenderLink
from halimede.hosting.shadows.settings import ShadowSettings
from halimede.hosting.shadows.tee import OVERHEAD_BYTES, Copy
from halimede.hosting.specs import Container, Variant
from halimede.http1.head import Head, parse_head
from halimede.http1.upstream import ResponseHead, UpstreamPool

LIMITS = ShadowSettings(
    copy_bytes=300,
    answer_bytes=200,
    held_bytes=8 * (OVERHEAD_BYTES + 200),
    in_flight=2,
    waiting=4,
    timeout_s=60.0,
    stream_timeout_s=60.0,
)
RESPONSE = ResponseHead(200, {"content-type": "x"}, "1.1")
"""Of a length that its end tells."""


class FakeFrames:
    """What the sender was given (`Frames`)."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, bytes]] = []

    def send(self, message: Jobs, behind: list[bytes]) -> None:
        data = b"".join(behind)
        for job in message.jobs:
            size = job.body_bytes + job.answer_bytes
            assert len(data) >= size
            self.jobs.append((job, data[:size]))
            data = data[size:]
        assert not data


class FakeLink:
    """A sender without a process (`SenderLink`)."""

    def __init__(self) -> None:
        self.frames: Frames | None = None
        self.pid = 0
        self.ended = 0

    @property
    def fake(self) -> FakeFrames | None:
        return cast("FakeFrames | None", self.frames)

    def want(self) -> None:
        self.frames = cast("Frames", FakeFrames())

    def end(self) -> None:
        self.ended += 1

    async def close(self) -> None:
        self.frames = None


class World:
    """Copies for two variants, and everything that may happen to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = 1
        self.copies = Copies(LIMITS, lambda: self.now_ns)
        self.link = FakeLink()
        self.copies._link = cast("SenderLink", self.link)
        self.shadows = [self._variant(name) for name in "XY"]
        self.open: list[tuple[Copy, bytearray]] = []
        self.sent: dict[int, Job] = {}
        self.comparing: dict[int, Job] = {}
        self.made = self.whole = self.broken = 0

    def _variant(self, name: str) -> VariantRoute:
        route = VariantRoute(Variant(name, "m", Container("i"), "t"), 1.0, meter=CountingMeter())
        route.targets = [self._target(), self._target()]
        return route

    def _target(self) -> Target:
        return Target("i", UpstreamPool("127.0.0.1", 1))

    # what may happen

    def begin(self) -> None:
        self.made += 1
        copy = self.copies._make(self.random.choice(self.shadows), head())
        if copy is not None:
            self.open.append((copy, bytearray()))

    def body(self) -> None:
        for copy, body in self._some(self.open):
            if not copy._complete:
                data = bytes([self.random.randrange(256)]) * self.random.randrange(160)
                body += data
                copy.request_data(data, complete=self.random.random() < 0.5)

    def answer(self) -> None:
        for copy, _ in self._some(self.open):
            if copy.answer_head is None:
                copy.response_begun(RESPONSE)
            else:
                copy.response_data(bytes(self.random.randrange(120)))

    def end(self) -> None:
        if self.open:
            copy, body = self.open.pop(self.random.randrange(len(self.open)))
            if copy._complete or copy._lost:
                self.whole += 1
            else:
                self.broken += 1
            if not copy._lost:
                assert b"".join(copy.body) == body
            copy.ended(self.random.choice([200, 200, 424, 499]), 5)

    def hand_over(self) -> None:
        self.copies._hand_over()
        self._take()

    def _take(self) -> None:
        fake = self.link.fake
        if fake is not None:
            for job, data in fake.jobs:
                assert len(data) == job.body_bytes + job.answer_bytes
                assert b"Content-Length: %d" % job.body_bytes in job.head
                self.sent[job.number] = job
            fake.jobs.clear()

    def done(self) -> None:
        for job in self._some(list(self.sent.values())):
            del self.sent[job.number]
            status = self.random.choice([200, 200, 500, 0])
            compares = job.answer is not None and status == 200 and self.random.random() < 0.8
            if compares:
                self.comparing[job.number] = job
            self.copies._on_message(Done([Sent(job.number, status, 7, compares)]), b"")
            self._take()

    def compared(self) -> None:
        for job in self._some(list(self.comparing.values())):
            same = [each for each in self.comparing.values() if each.variant == job.variant]
            for each in same:
                del self.comparing[each.number]
            counts = ShadowCounts()
            counts.whole.compared = len(same)
            self.copies._on_message(Results([each.number for each in same], counts), b"")

    def die(self) -> None:
        if self.link.frames is not None:
            self.link.frames = None
            self.sent.clear()
            self.comparing.clear()
            self.copies._gone()

    def time(self) -> None:
        self.now_ns += self.random.choice([1, 1, 1, 80]) * 10**9
        self.copies.tick()
        self._take()

    def join(self) -> None:
        variant = self.random.choice(self.shadows)
        if len(variant.targets) < 3:
            variant.targets.append(self._target())

    def leave(self) -> None:
        variant = self.random.choice(self.shadows)
        if variant.targets:
            target = variant.targets.pop()
            target.draining = True

    # what must hold

    def check(self) -> None:
        copies = self.copies
        kept = [copy for copy, _ in self.open]
        kept += [copy for waiting in copies._waiting.values() for copy in waiting]
        kept += [*copies._sent.values(), *copies._comparing.values()]
        assert LIMITS.held_bytes - copies.free_bytes == sum(copy._held for copy in kept)
        assert copies.free_bytes >= 0
        for copy in kept:
            here = OVERHEAD_BYTES + sum(map(len, copy.body)) + sum(map(len, copy.answer))
            assert (
                copy._held in (0, here) or copy in copies._sent.values() or copy in copies._comparing.values()
            )
        for waiting in copies._waiting.values():
            assert len(waiting) <= LIMITS.waiting
        assert sum(map(copies.pending, self.shadows)) == copies.count
        assert sorted(copies._sent) == sorted(self.sent)
        assert sorted(copies._comparing) == sorted(self.comparing)
        for variant in self.shadows:
            for target in variant.targets:
                assert target.inflight <= LIMITS.in_flight
        inflight = [copy.target for copy in copies._sent.values()]
        for target in {id(each): each for each in inflight if each is not None}.values():
            assert target.inflight == inflight.count(target)

    def counts(self) -> InvocationCounts:
        total = InvocationCounts()
        for variant in self.shadows:
            assert isinstance(variant.meter, CountingMeter)
            total.add(variant.meter.take())
        return total

    def _some(self, of: list[Any]) -> list[Any]:
        return [self.random.choice(of)] if of else []


def head() -> Head:
    head = parse_head(b"POST /endpoints/e/invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    assert head is not None
    return head


@pytest.mark.parametrize("seed", range(80))
def test_nothing_is_forgotten_and_nothing_is_counted_twice(seed: int) -> None:
    async def run() -> None:
        world = World(seed)
        actions: list[tuple[Callable[[], None], int]] = [
            (world.begin, 10),
            (world.body, 20),
            (world.answer, 10),
            (world.end, 10),
            (world.hand_over, 10),
            (world.done, 6),
            (world.compared, 6),
            (world.die, 1),
            (world.time, 2),
            (world.join, 1),
            (world.leave, 1),
        ]
        for _ in range(500):
            [action] = world.random.choices(*zip(*actions, strict=True))
            action()
            world.check()
        while world.open:
            world.end()
        await world.copies.close()
        assert world.copies.free_bytes == LIMITS.held_bytes
        assert world.copies.count == 0
        counts = world.counts()
        # each copy is answered or lost, or its request was never whole
        assert counts.answered + counts.shadow.lost == world.made - world.broken
        assert counts.sent >= counts.answered
        assert counts.shadow.whole.compared + counts.shadow.skipped <= counts.answered
        late = world.copies._make(world.shadows[0], head())
        assert late is None

    asyncio.run(run())


def test_a_sender_that_says_nothing_is_ended() -> None:
    async def run() -> None:
        world = World(1)
        copy = world.copies._make(world.shadows[0], head())
        assert copy is not None
        copy.request_data(b"x", complete=True)
        copy.ended(200, 5)
        world.hand_over()
        world.hand_over()
        world.now_ns += 125 * 10**9
        world.copies.tick()
        assert world.link.ended == 0
        world.now_ns += 10 * 10**9
        world.copies.tick()
        assert world.link.ended == 1
        await world.copies.close()

    asyncio.run(run())
