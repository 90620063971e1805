"""The one timer of a connection, which looks now and then whether its client is slow."""

import asyncio
from collections.abc import Callable


class CoarseTimer:
    """Breaks a connection off whose client takes nothing of what was written, and has the connection see to the rest.

    A timer for each request would cost more than the request; nobody minds when a slow client is noticed a little late.
    """

    __slots__ = (
        "_handle",
        "_interval",
        "_look",
        "_loop",
        "_send_timeout",
        "_stalled_since",
        "_transport",
        "_unsent",
    )

    def __init__(self, interval: float, send_timeout: float, look: Callable[[float], None]) -> None:
        """A timer that does not run yet.

        Args:
            interval: seconds between two looks.
            send_timeout: for how many seconds a client may take nothing.
            look: called at each look with the loop's time, unless the connection was broken off.
        """
        self._interval = interval
        self._send_timeout = send_timeout
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._handle: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._stalled_since = 0.0

    def start(self, transport: asyncio.Transport) -> None:
        """Look from now on."""
        self._transport = transport
        self._arm()

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        self._handle = self._loop.call_later(self._interval, self._tick)

    def _tick(self) -> None:
        self._arm()
        now = self._loop.time()
        unsent = self._transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._stalled_since = unsent, now
        if now - self._stalled_since > self._send_timeout:
            self._transport.abort()
        else:
            self._look(now)
