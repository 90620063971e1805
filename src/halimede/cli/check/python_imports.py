"""Running a Python model's file as a server would before it loads: in a process of its own, for a limited time.

The file is imported and its `auto_complete_config` is called, with the environment that the model brings. No instance
is made, so `initialize` does not run.
"""

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any

from halimede.backends.base import BackendOptions, ModelSource
from halimede.core.clock import LoopClock
from halimede.core.errors import UnavailableError
from halimede.workers.call_server import ModelCall
from halimede.workers.channel import Channel, Message
from halimede.workers.host import Result, WorkerHost, WorkerName
from halimede.workers.memory import PeerMemory
from halimede.workers.python_model import PythonModel

_FINALIZE_SECONDS = 5.0


class PythonImports:
    """Where models are imported; nothing is started before the first one.

    Args:
        timeout_s: how long one model may take; 0 to import none.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._host: _LimitedHost | None = None

    @property
    def wanted(self) -> bool:
        """Whether models are to be imported."""
        return self._timeout_s > 0

    def complete_config(self, source: ModelSource, options: BackendOptions) -> None:
        """Import the model and let it complete its configuration, in place.

        Raises:
            HalimedeError: it cannot be imported, its function fails, or it takes too long.
        """
        model = PythonModel(source, options, self._started())
        try:
            model.complete_config()
        finally:
            model.close()

    def close(self) -> None:
        """End what was started."""
        if self._host is None or self._loop is None or self._thread is None:
            return
        self._host.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _started(self) -> "_LimitedHost":
        if self._host is None:
            self._loop = loop = asyncio.new_event_loop()
            self._thread = Thread(target=loop.run_forever, name="halimede-check", daemon=True)
            self._thread.start()
            self._host = _LimitedHost(loop, self._timeout_s)
        return self._host


class _LimitedHost(WorkerHost):
    """A host that waits for nothing longer than allowed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        super().__init__(loop, LoopClock(loop), _NoServices(), _FINALIZE_SECONDS)
        self._timeout_s = timeout_s

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it on the event loop, from a thread that waits for the result.

        Raises:
            UnavailableError: it took too long, and was given up.
        """
        return asyncio.run_coroutine_threadsafe(self._limited(work), self.loop).result()

    async def _limited(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            msg = (
                f"importing the model's file and calling its auto_complete_config took longer than "
                f"{self._timeout_s:g} s, and was ended"
            )
            raise UnavailableError(msg) from None


class _NoServices:
    """There is no server: what a model asks of one while it is imported is not answered."""

    def attach(
        self, name: WorkerName, memory: PeerMemory, control: Channel, on_call: Callable[[], None]
    ) -> "_NoService":
        """A worker process begins."""
        return _NoService()


class _NoService:
    """Ignores what one process says beside its work."""

    def message(self, message: Message) -> None:
        """About calls, metrics and logs."""

    def begun(self, pid: int) -> None:
        """The process is known."""

    def serving(self) -> None:
        """Its model has been loaded, which does not happen here."""

    def infer(self, call: ModelCall) -> None:
        """Its model has been loaded, which does not happen here."""

    def handle(self, message: Message) -> None:
        """Its model has been loaded, which does not happen here."""

    def answer_here(self, targets: object) -> bool:
        """Its model has been loaded, which does not happen here."""
        return False

    def printed(self, data: bytes, error: bool) -> None:
        """What it prints is not a problem."""

    def close(self) -> None:
        """The process is gone."""
