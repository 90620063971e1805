"""All copies of one process: those that wait, and those that are being sent. Lives on the event loop.

    an invocation ends ─▶ a copy waits ─▶ the sender has it ─▶ done ─▶ compared
                              │                │
                              └─── lost ◀──────┘  too many, too large, too old, no instance, the sender has ended

Copies of one variant are handed over in the order in which their invocations ended. A copy is always lost rather than
waited for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic_ns
from typing import Any

from halimede.hosting.budget import Budget
from halimede.hosting.routing.agreement import ShadowCounts
from halimede.hosting.routing.counts import CountingMeter
from halimede.hosting.routing.heads import REQUEST_HEADS
from halimede.hosting.routing.table import Target, VariantRoute
from halimede.hosting.routing.taps import tap_of
from halimede.hosting.shadows.frames import Done, Job, Jobs, Results, Returned, Sent
from halimede.hosting.shadows.link import SenderLink
from halimede.hosting.shadows.settings import ShadowSettings
from halimede.hosting.shadows.tee import Copy, ShadowObserver
from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead

_TICK_S = 1.0
_BATCH_S = 0.01
"""How often copies are handed over: most requests find the event loop with nothing else to do."""

_BATCH = 64
"""So many copies of a variant are handed over at once, however soon they are there."""

_BATCH_BYTES = 1 << 18
"""Of bodies that are handed over together, unless one alone is larger."""

_LATE_S = 10.0
"""A sender that has told nothing of a copy so long after any answer had its time is ended."""

_PATH = "/invocations"
_FAILED = 424
"""What is counted of a copy that the instance gave no 2xx for, as of any invocation."""


class Copies:
    """The copies of this process's invocations."""

    def __init__(
        self,
        settings: ShadowSettings | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
        *,
        is_idle: bool = False,
    ) -> None:
        """There are none, and no process that sends them.

        Args:
            settings: limits.
            is_idle: this process hardly answers invocations: the process that sends copies is started with the first
                one, and not with the first shadow variant.
            now_ns: the time, in nanoseconds since any moment.
        """
        self._settings = settings or ShadowSettings()
        self._now_ns = now_ns
        self._is_idle = is_idle
        self._budget = Budget(self._settings.held_bytes)
        self._waiting: dict[VariantRoute, deque[Copy]] = {}
        self._sent: dict[int, Copy] = {}
        self._comparing: dict[int, Copy] = {}
        self._numbers = count(1)
        self._link = SenderLink(self._settings, self._on_message, self._hand_over, self._gone)
        self._timer: asyncio.TimerHandle | None = None
        self._handing: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def sender(self) -> int:
        """The process that sends copies; 0 while there is none."""
        return self._link.pid

    @property
    def free_bytes(self) -> int:
        """What further copies may hold."""
        return self._budget.free

    @property
    def count(self) -> int:
        """How many copies have not come to their end."""
        return len(self._sent) + len(self._comparing) + sum(map(len, self._waiting.values()))

    def pending(self, shadow: VariantRoute) -> int:
        """How many copies for a shadow variant have not come to their end."""
        held = (*self._sent.values(), *self._comparing.values())
        return len(self._waiting.get(shadow, ())) + sum(copy.shadow is shadow for copy in held)

    def observer(self, production: VariantRoute, shadow: VariantRoute) -> ShadowObserver:
        """What makes copies of a production variant's requests for its shadow."""
        if not self._is_idle:
            self._link.want()
        return ShadowObserver(production, shadow, self._make)

    def _make(self, shadow: VariantRoute, head: Head, streamed: bool = False) -> Copy | None:
        waiting = self._waiting.get(shadow)
        if self._closed or not shadow.targets or (waiting and len(waiting) >= self._settings.waiting):
            self._lose(shadow)
            return None
        return Copy(shadow, head, self._budget, self._settings, self._add, self._lose, streamed=streamed)

    def _add(self, copy: Copy) -> None:
        """An invocation is over whose copy may be sent: not before the client has its answer."""
        waiting = self._waiting.get(copy.shadow)
        if waiting is None:
            waiting = self._waiting[copy.shadow] = deque()
        if self._closed or len(waiting) >= self._settings.waiting:
            copy.release()
            self._lose(copy.shadow)
            return
        copy.since_ns = self._now_ns()
        waiting.append(copy)
        loop = asyncio.get_running_loop()
        if len(waiting) == _BATCH:
            loop.call_soon(self._hand_over)
        elif self._handing is None:
            self._handing = loop.call_later(_BATCH_S, self._hand_over)
            if self._timer is None:
                self._timer = loop.call_later(_TICK_S, self._look)

    def _hand_over(self) -> None:
        """Give the sender what instances may be asked."""
        if self._handing is not None:
            self._handing.cancel()
            self._handing = None
        frames = self._link.frames
        if frames is None:
            if not self._closed:
                self._link.want()
            return
        jobs: list[Job] = []
        pieces: list[bytes] = []
        size = 0
        for job, copy in self._jobs():
            jobs.append(job)
            pieces += copy.body
            pieces += copy.answer
            size += job.body_bytes + job.answer_bytes
            copy.body.clear()  # but they count as held until the sender is done with them
            copy.answer.clear()
            if size > _BATCH_BYTES:
                frames.send(Jobs(jobs), pieces)
                jobs, pieces, size = [], [], 0
        if jobs:
            frames.send(Jobs(jobs), pieces)

    def _jobs(self) -> Iterator[tuple[Job, Copy]]:
        """The copies that instances may be asked now."""
        for shadow, waiting in self._waiting.items():
            while waiting and (target := self._target(shadow)) is not None:
                copy = waiting.popleft()
                yield self._job(copy, target), copy

    def _job(self, copy: Copy, target: Target) -> Job:
        """A copy that is handed over, for an instance."""
        shadow = copy.shadow
        number = next(self._numbers)
        self._sent[number] = copy
        copy.target = target
        copy.since_ns = self._now_ns()
        target.inflight += 1
        shadow.meter.sent(len(shadow.targets))
        pool, answer = target.pool, copy.answer_head
        if shadow.observers:
            copy.tap = tap_of(shadow.observers, copy.head, streamed=False)
            if copy.tap is not None:
                copy.tap.request_data(b"".join(copy.body), complete=True)
        head = REQUEST_HEADS[copy.head, _PATH, pool.address, copy.size]
        return Job(
            number,
            id(shadow),
            pool.host,
            pool.port,
            pool.unix_socket,
            head,
            self._settings.stream_timeout_s if copy.streamed else self._settings.timeout_s,
            copy.size,
            copy.answer_size,
            None if answer is None else dict(answer.headers),
            copy.tap is not None,
        )

    def _target(self, shadow: VariantRoute) -> Target | None:
        """The instance with the fewest requests, if it may get one more; those that give no answers come last."""
        able = [each for each in shadow.targets if not each.draining]
        able = [each for each in able if not each.refuses] or able
        best = min(able, key=lambda target: target.outstanding, default=None)
        return best if best is not None and best.outstanding < self._settings.in_flight else None

    # the sender

    def _on_message(self, message: Any, data: bytes) -> None:
        if isinstance(message, Done):
            for each in message.copies:
                self._done(each)
            if self._waiting:
                self._hand_over()
        elif isinstance(message, Results):
            self._compared(message.numbers, message.counts)
        elif isinstance(message, Returned):
            copy = self._sent.get(message.number)
            if copy is not None and copy.tap is not None:
                copy.tap.response_begun(ResponseHead(message.status, message.headers, "1.1"))
                copy.tap.response_data(data)

    def _done(self, done: Sent) -> None:
        copy = self._sent.pop(done.number, None)
        if copy is None:
            return
        shadow = copy.shadow
        if done.refused and copy.target is not None:
            copy.target.refuse()
        self._leave(copy)
        is_ok = 200 <= done.status < 300
        overhead = max(self._now_ns() - copy.since_ns - done.model_ns, 0)
        shadow.meter.ended(200 if is_ok else _FAILED, done.model_ns, overhead, model_error=not is_ok)
        if copy.tap is not None:
            copy.tap.ended(200 if is_ok else _FAILED, done.model_ns)
        counts = _counts(shadow)
        if copy.status in (200, _FAILED):
            counts.statuses += 1
            counts.same_status += is_ok == (copy.status == 200)
            if copy.primary_ns:
                counts.primary_ns.append(copy.primary_ns)
        if done.compares:
            self._comparing[done.number] = copy
        else:
            counts.skipped += copy.status == 200 and is_ok
            copy.release()

    def _compared(self, numbers: list[int], compared: ShadowCounts) -> None:
        counts = None
        for number in numbers:
            copy = self._comparing.pop(number, None)
            if copy is not None:
                counts = _counts(copy.shadow)
                copy.release()
        if counts is not None:
            counts += compared

    def _leave(self, copy: Copy) -> None:
        """The instance is done with a copy."""
        target, copy.target = copy.target, None
        if target is not None:
            target.answered()

    def _gone(self) -> None:
        """The sender has ended, with all that it was told."""
        sent, self._sent = self._sent, {}
        for copy in sent.values():
            self._leave(copy)
            if copy.tap is not None:
                copy.tap.ended(_FAILED, 0)
            copy.release()
            self._lose(copy.shadow)
        comparing, self._comparing = self._comparing, {}
        for copy in comparing.values():
            copy.release()
            _counts(copy.shadow).skipped += 1

    # what is lost

    def _lose(self, shadow: VariantRoute) -> None:
        _counts(shadow).lost += 1

    def _look(self) -> None:
        self.tick()
        is_needed = self._waiting or self._sent or self._comparing
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._look) if is_needed else None

    def tick(self) -> None:
        """Lose what has waited for too long, and a sender that says nothing."""
        now = self._now_ns()
        limit = int(self._settings.timeout_s * 1e9)
        for shadow, waiting in list(self._waiting.items()):
            while waiting and (not shadow.targets or now - waiting[0].since_ns > limit):
                waiting.popleft().release()
                self._lose(shadow)
            if not waiting:
                del self._waiting[shadow]
        longest = int((self._settings.timeout_s + self._settings.stream_timeout_s + _LATE_S) * 1e9)
        for kept in (self._sent, self._comparing):
            oldest = next(iter(kept.values()), None)
            if oldest is not None and now - oldest.since_ns > longest:
                self._link.end()
        self._hand_over()

    async def close(self) -> None:
        """Copy no more; what has not been sent is lost."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._link.close()
        self._gone()
        for shadow, waiting in self._waiting.items():
            for copy in waiting:
                copy.release()
                self._lose(shadow)
        self._waiting.clear()


def _counts(shadow: VariantRoute) -> ShadowCounts:
    """Where copies for a variant are counted."""
    meter = shadow.meter
    return meter.shadow if isinstance(meter, CountingMeter) else ShadowCounts()
