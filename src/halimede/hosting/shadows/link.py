"""The process that sends copies, as the one knows it that has them sent."""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from halimede.core import tasks
from halimede.hosting.shadows.frames import Begin, Frames
from halimede.hosting.shadows.settings import ShadowSettings

logger = logging.getLogger("halimede")

_PROGRAM = "halimede.hosting.shadows.process"

_BUFFER_BYTES = 2 << 20
"""Of the socket: a large body crosses in fewer steps than with the system's usual 208 KiB."""


class SenderLink:
    """A process that sends copies. Lives on the event loop.

    Attributes:
        frames: what it is told; None while there is no process.
    """

    def __init__(
        self,
        settings: ShadowSettings,
        on_message: Callable[[Any, bytes], None],
        on_ready: Callable[[], None],
        on_gone: Callable[[], None],
    ) -> None:
        """No process is started before `want`.

        Args:
            settings: limits of copies.
            on_message: called with what it tells, and the bytes behind that.
            on_ready: called when it may be told something.
            on_gone: called when it has ended, with all that it was told.
        """
        self.frames: Frames | None = None
        self._settings = settings
        self._on_message = on_message
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._starting: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._may_start = 0.0

    @property
    def pid(self) -> int:
        """The process; 0 for none."""
        return 0 if self._process is None else self._process.pid

    def want(self) -> None:
        """Have a process; one that has just been started is not started again at once."""
        loop = asyncio.get_running_loop()
        if self.frames is None and self._starting is None and loop.time() >= self._may_start:
            self._may_start = loop.time() + self._settings.restart_s
            what = "starting the process that sends copies to shadow variants"
            self._starting = tasks.start(what, self._start())

    async def _start(self) -> None:
        near, far = socket.socketpair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        try:
            with far:
                await self._bury()
                self._process = await asyncio.to_thread(
                    subprocess.Popen,
                    [sys.executable, "-P", "-m", _PROGRAM, str(far.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[far.fileno()],
                )
            frames = Frames(self._on_message, self._closed)
            await asyncio.get_running_loop().create_unix_connection(lambda: frames, sock=near)
        except OSError as error:
            near.close()
            logger.error("the process that sends copies to shadow variants cannot be started: %s", error)
            return
        except BaseException:
            near.close()
            raise
        finally:
            self._starting = None
        settings = self._settings
        frames.send(Begin(settings.answer_bytes, settings.concurrency, settings.tolerance))
        self.frames = frames
        self._on_ready()

    def _closed(self) -> None:
        if self.frames is not None:
            logger.error(
                "process %d, which sends copies to shadow variants, has ended; another one is started",
                self.pid,
            )
            self.frames = None
            self._on_gone()

    def end(self) -> None:
        """End the process at once; it is started again when it is wanted."""
        if self._process is not None:
            self._process.kill()
        if self.frames is not None:
            self.frames.abort()

    async def _bury(self) -> None:
        """Wait for a process that has ended, or is ended now."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)

    async def close(self) -> None:
        """End the process."""
        await tasks.cancel(self._starting)
        frames, self.frames = self.frames, None
        if frames is not None:
            frames.abort()
        await self._bury()
