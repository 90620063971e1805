"""The log of requests that were denied: a few lines a second, and how many there were beside those."""

import asyncio
import logging
from collections.abc import Callable

from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request

logger = logging.getLogger("halimede")

LINES = 5
"""So many denied requests are logged within `INTERVAL_S`; the others are counted."""

INTERVAL_S = 1.0

_MAX_PATH = 128
_MAX_REASON = 400


class Denials:
    """Logs requests that were denied. Lives on the event loop."""

    def __init__(
        self, later: Callable[[float, Callable[[], None]], asyncio.TimerHandle] | None = None
    ) -> None:
        """A log; `later` calls a function after so many seconds."""
        self._later = later or asyncio.get_running_loop().call_later
        self._timer: asyncio.TimerHandle | None = None
        self._logged = 0
        self._left_out = 0

    def note(self, request: Request, error: ApiError) -> None:
        """Log a request, or count it."""
        if self._timer is None:
            self._timer = self._later(INTERVAL_S, self._begin_anew)
        if self._logged == LINES:
            self._left_out += 1
            return
        self._logged += 1
        head = request.head
        what = f"{head.method} {head.path[:_MAX_PATH]}"  # without the query, in which signatures are
        target = head.headers.get("x-amz-target")
        if target is not None:
            what += f" {target[:_MAX_PATH]}"
        reason = f"{error.code}: {error.message}"[:_MAX_REASON]
        logger.warning("denied: %s of %s: %s", what, request.client or "a local socket", reason)

    def _begin_anew(self) -> None:
        self._timer = None
        self._logged = 0
        left_out, self._left_out = self._left_out, 0
        if left_out:
            logger.warning("denied: %d more requests within the last second", left_out)

    def close(self) -> None:
        """Log what is left to say."""
        if self._timer is not None:
            self._timer.cancel()
            self._begin_anew()
