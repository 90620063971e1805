"""What containers print: lines of the instance's log, each behind its container's name, as ``container-2 | text``."""

import asyncio
import os
from collections import deque
from contextlib import suppress

from halimede.hosting.substrates.base import line_lead

_LINE_BYTES = 65_536
"""A longer line is broken."""

_KEPT_LINES = 400
_KEPT_CHARACTERS = 4_000


class Output(asyncio.Protocol):
    """Takes what one container prints.

    Attributes:
        tail: its last lines.
        ended: set when nothing more can come.
    """

    def __init__(self, name: str, log: int) -> None:
        """What the container `name` prints goes to the descriptor `log`."""
        self.tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self.ended = asyncio.Event()
        self._prefix = line_lead(name).encode()
        self._log = log
        self._held = b""

    def data_received(self, data: bytes) -> None:
        """Some of it has come."""
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) > _LINE_BYTES:
            lines.append(self._held)
            self._held = b""
        self._print(lines)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever could print has ended."""
        if self._held:
            self._print([self._held])
            self._held = b""
        self.ended.set()

    def _print(self, lines: list[bytes]) -> None:
        for line in lines:
            self.tail.append(line[:_KEPT_CHARACTERS].decode(errors="replace"))
        data = b"".join(b"%b%b\n" % (self._prefix, line) for line in lines)
        with suppress(OSError):  # the disk may be full, which is no reason to stop serving
            os.write(self._log, data)
