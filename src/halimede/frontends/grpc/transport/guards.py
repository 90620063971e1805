"""The known ways to keep an HTTP/2 server busy with nothing, and how much of each is let pass."""

from halimede.core.clock import MILLISECOND, SECOND
from halimede.frontends.grpc.transport.frames import (
    CONTINUATION,
    HEADERS,
    SETTINGS,
    ConnectionFault,
    ErrorCode,
)
from halimede.frontends.grpc.transport.limits import Allowance, GrpcSettings

IDLE_PING_INTERVAL = 7200 * SECOND
# WINDOW_UPDATE frames that a peer may send for each time that data was sent to it
_UPDATES_PER_SEND = 16
_MAX_UNREAD_REPLIES = 1000
_MAX_SETTINGS_BYTES = 600


class Guards:
    """Counts what moves nothing, and ends the connection (ENHANCE_YOUR_CALM) when it is a flood."""

    __slots__ = (
        "_empty",
        "_last_ping",
        "_other",
        "_pings",
        "_resets",
        "_sent_at_other",
        "_sent_at_ping",
        "_settings",
        "_settings_frames",
        "_strikes",
        "_unread",
    )

    def __init__(self, settings: GrpcSettings) -> None:
        self._settings = settings
        self._resets = Allowance(1000, 100)
        self._settings_frames = Allowance(100, 10)
        self._empty = Allowance(100, 10)
        self._pings = Allowance(1000, 100)
        self._other = Allowance(10_000, 1000)
        self._unread = 0
        self._strikes = 0
        self._last_ping = -IDLE_PING_INTERVAL
        self._sent_at_ping = 0
        self._sent_at_other = 0

    def reset(self, now: int) -> None:
        """A call was opened and then reset by the peer, or for its fault."""
        if not self._resets.spend(now):
            raise enhance_your_calm("too many streams were reset")

    def settings_frame(self, now: int) -> None:
        """A SETTINGS frame."""
        if not self._settings_frames.spend(now):
            raise enhance_your_calm("too many SETTINGS frames")

    def empty_frame(self, now: int) -> None:
        """A frame that could have carried something and did not."""
        if not self._empty.spend(now):
            raise enhance_your_calm("too many empty frames")

    def other_frame(self, now: int, sent: int) -> None:
        """A WINDOW_UPDATE, PRIORITY or unknown frame, when data was sent `sent` times."""
        if self._other.spend(now):
            return
        self._other.refill((sent - self._sent_at_other) * _UPDATES_PER_SEND)
        self._sent_at_other = sent
        if not self._other.spend(now):
            raise enhance_your_calm("too many frames that do nothing")

    def ping(self, now: int, sent: int, *, calls: bool) -> None:
        """A PING, when data was sent `sent` times: too early for too often ends the connection."""
        settings = self._settings
        if sent != self._sent_at_ping:
            # pings that measure what is being sent are as frequent as round trips
            self._sent_at_ping = sent
            self._strikes = 0
            self._last_ping = now - IDLE_PING_INTERVAL
        elif not self._pings.spend(now):
            raise enhance_your_calm("too_many_pings")
        interval = settings.min_ping_interval_ms * MILLISECOND
        if not calls and not settings.keepalive_permit_without_calls:
            interval = IDLE_PING_INTERVAL
        early = self._last_ping + interval > now
        self._last_ping = now
        if early:
            self._strikes += 1
            if settings.max_ping_strikes and self._strikes > settings.max_ping_strikes:
                raise enhance_your_calm("too_many_pings")

    def unread_reply(self) -> None:
        """A frame that must be answered came while the peer does not read what it is sent."""
        self._unread += 1
        if self._unread > _MAX_UNREAD_REPLIES:
            raise enhance_your_calm("the answers to PING and SETTINGS are not read")

    def read_again(self) -> None:
        """The peer reads again."""
        self._unread = 0


def check_length(kind: int, length: int, block_limit: int) -> None:
    """Refuse a frame that is longer than its kind ever needs, before the rest of it is waited for.

    Raises:
        ConnectionFault: it is.
    """
    if kind in (HEADERS, CONTINUATION) and length > block_limit:
        raise enhance_your_calm(f"a header block of more than {block_limit} bytes")
    if kind == SETTINGS and length > _MAX_SETTINGS_BYTES:
        raise enhance_your_calm(f"a SETTINGS frame of {length} bytes")


def enhance_your_calm(text: str) -> ConnectionFault:
    """The fault of a peer that asks too much."""
    return ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text)
