"""How long a connection lives: the preface it must send, keepalive pings, its age and its end; one timer for all."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Protocol

from halimede.core.clock import MILLISECOND, SECOND, Clock, Timer
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.flow import Sender
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.grpc.transport.unread import UnreadReplies

logger = logging.getLogger("halimede")

# a cancelled timer stays with the clock until it is due, so none is set further ahead than this
_MAX_DELAY = 60 * SECOND
_NEVER = 2**63
# after the last word, how long the peer has to read it and close
_LINGER = SECOND

KEEPALIVE_PING = b"keepaliv"


class Alarms:
    """Calls that will be made, each at most once until it is set again, on one timer of the clock."""

    __slots__ = ("_clock", "_due", "_timer", "_wakes_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Callable[[], None], int] = {}
        self._timer: Timer | None = None
        self._wakes_at = _NEVER

    def set(self, callback: Callable[[], None], when: int) -> None:
        """Call at `when`, and not at the time set before."""
        self._due[callback] = when
        self._arm()

    def clear(self, callback: Callable[[], None]) -> None:
        """Do not call it."""
        self._due.pop(callback, None)

    def close(self) -> None:
        """Call nothing any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wakes_at = _NEVER

    def _arm(self) -> None:
        if not self._due:
            return
        when = min(*self._due.values(), self._clock.now() + _MAX_DELAY)
        if when >= self._wakes_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = when
        self._timer = self._clock.call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._wakes_at = _NEVER
        now = self._clock.now()
        for callback in [callback for callback, when in self._due.items() if when <= now]:
            if self._due.pop(callback, None) is not None:
                callback()
        self._arm()


class ManagedConnection(Protocol):
    """What is asked of a connection about its life."""

    @property
    def last_received(self) -> int:
        """When the peer last sent anything."""

    @property
    def busy(self) -> bool:
        """Whether calls are open."""

    def send_ping(self, payload: bytes) -> None:
        """Ask for a sign of life."""

    def shutdown(self) -> None:
        """End gracefully."""

    def refuse(self, call: Call, status: int, text: str) -> None:
        """End a call for a reason of the transport's own."""

    def abort(self) -> None:
        """End now."""


class Lifetime:
    """Ends a connection that is silent, dead or old."""

    __slots__ = (
        "_alarms",
        "_clock",
        "_connection",
        "_pinged_at",
        "_pings",
        "_sender",
        "_sent_before",
        "_settings",
        "_taken",
        "_taken_at",
        "_transport",
        "_unsent",
    )

    def __init__(
        self,
        connection: ManagedConnection,
        transport: asyncio.Transport,
        sender: Sender[Call],
        settings: GrpcSettings,
        clock: Clock,
        alarms: Alarms,
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._sender = sender
        self._settings = settings
        self._clock = clock
        self._alarms = alarms
        self._pings = 0  # since data was sent
        self._pinged_at = 0
        self._sent_before = 0
        self._unsent = 0
        self._taken = 0, 0  # how much the client had taken when that was looked at
        self._taken_at = 0  # when it had taken more than before
        alarms.set(connection.abort, clock.now() + settings.preface_timeout_ms * MILLISECOND)

    def begin(self) -> None:
        """The peer has sent its preface and settings: the connection stands."""
        settings = self._settings
        now = self._clock.now()
        self._sender.on_queued = self._watch_reader
        UnreadReplies(self._connection, self._sender, settings.budget.unsent)
        self._alarms.clear(self._connection.abort)
        self._alarms.set(self._check_alive, now + settings.keepalive_time_ms * MILLISECOND)
        if settings.max_connection_age_ms:
            # spread, so that clients that came together do not all come back together
            spread = random.uniform(0.9, 1.1)  # noqa: S311 - nothing to guess here
            self._alarms.set(self._retire, now + int(settings.max_connection_age_ms * MILLISECOND * spread))

    def end(self) -> None:
        """Close once the peer has had time to read what was said.

        Closing at once, with bytes unread, would make the kernel discard what is under way to the peer.
        """
        self._alarms.close()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
        self._unsent = self._transport.get_write_buffer_size()
        self._alarms.set(self._cut_off, self._clock.now() + _LINGER)

    def _cut_off(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:  # the peer is slow, but reads
            self._unsent = unsent
            self._alarms.set(self._cut_off, self._clock.now() + _LINGER)
        else:
            self._connection.abort()

    def _retire(self) -> None:
        grace = self._settings.max_connection_age_grace_ms
        if grace:
            self._alarms.set(self._connection.abort, self._clock.now() + grace * MILLISECOND)
        self._connection.shutdown()

    def _watch_reader(self) -> None:
        """Messages wait for the client."""
        self._taken = self._progress
        self._taken_at = self._clock.now()
        self._alarms.set(self._check_reader, self._taken_at + self._settings.send_timeout_ms * MILLISECOND)

    def _check_reader(self) -> None:
        """Close the connection if the client has taken nothing of what waits."""
        if not self._sender.queued:
            return
        now, timeout = self._clock.now(), self._settings.send_timeout_ms * MILLISECOND
        if self._progress != self._taken:
            self._taken = self._progress
            self._taken_at = now
        elif now - self._taken_at >= timeout:
            logger.info(
                "A gRPC connection is closed: its client has read nothing for %d s", timeout // SECOND
            )
            self._connection.abort()
            return
        self._alarms.set(self._check_reader, now + timeout)

    @property
    def _progress(self) -> tuple[int, int]:
        """What changes when the client takes something."""
        return self._sender.sent, self._transport.get_write_buffer_size()

    def _check_alive(self) -> None:
        settings = self._settings
        now = self._clock.now()
        period = settings.keepalive_time_ms * MILLISECOND
        if self._sender.sent != self._sent_before:
            self._sent_before = self._sender.sent
            self._pings = 0
        if self._connection.last_received + period > now:
            self._alarms.set(self._check_alive, self._connection.last_received + period)
            return
        allowed = not settings.max_pings_without_data or self._pings < settings.max_pings_without_data
        if not allowed or not (self._connection.busy or settings.keepalive_permit_without_calls):
            self._alarms.set(self._check_alive, now + period)
            return
        self._pings += 1
        self._pinged_at = now
        self._connection.send_ping(KEEPALIVE_PING)
        self._alarms.set(self._check_answer, now + settings.keepalive_timeout_ms * MILLISECOND)

    def _check_answer(self) -> None:
        period = self._settings.keepalive_time_ms * MILLISECOND
        if self._connection.last_received < self._pinged_at:
            self._connection.abort()
        else:
            self._alarms.set(self._check_alive, self._connection.last_received + period)


class Deadlines:
    """Ends the calls of a connection at their deadlines, on one alarm: most calls end long before and cost nothing."""

    __slots__ = ("_alarms", "_calls", "_clock", "_end", "_next")

    def __init__(
        self, clock: Clock, alarms: Alarms, calls: Mapping[int, Call], end: Callable[[Call], None]
    ) -> None:
        self._clock = clock
        self._alarms = alarms
        self._calls = calls
        self._end = end
        self._next = _NEVER

    def set(self, call: Call, deadline: int) -> None:
        """End the call at `deadline`."""
        call.deadline = deadline
        if deadline < self._next:
            self._next = deadline
            self._alarms.set(self._expire, deadline)

    def _expire(self) -> None:
        now = self._clock.now()
        for call in list(self._calls.values()):
            if 0 <= call.deadline <= now:
                self._end(call)
        self._next = min(
            (call.deadline for call in self._calls.values() if call.deadline >= 0), default=_NEVER
        )
        if self._next < _NEVER:
            self._alarms.set(self._expire, self._next)
