"""One worker process as the server sees it: started, spoken to, ended. Lives on the event loop."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from halimede.core.errors import HalimedeError, InternalError
from halimede.workers.channel import Channel, Message
from halimede.workers.error_numbers import ERRORS
from halimede.workers.exit_reason import unhealthy
from halimede.workers.host import Launch, WorkerHost, WorkerName
from halimede.workers.memory import PeerMemory, ServerOutgoing
from halimede.workers.probes import ReadinessProbe
from halimede.workers.process import WorkerProcess
from halimede_worker.messages import wire

logger = logging.getLogger("halimede")

STACK_SECONDS = 2.0
"""A process that does not say within that time where its Python code is cannot."""


class Worker:
    """A process that runs one instance of a Python model.

    Attributes:
        memory: what it shares with the server.
        work: the socket on which it is told what to run.
        control: the socket for what may be said at any time.
        exited: why it ended, once it has.
        probe: asks the model's `is_ready`.
    """

    def __init__(
        self,
        host: WorkerHost,
        name: WorkerName,
        process: WorkerProcess,
        on_work: Callable[[Message], None],
        on_exit: Callable[[str], None],
        on_call: Callable[[], None],
    ) -> None:
        """Speak to a process: `on_work` gets its messages about work, `on_exit` is told once why it ended.

        `on_call` is told whenever the loaded model calls the server.
        """
        self.memory = PeerMemory()
        self.memory.on_forgettable = self.tidy_later
        self.exited: str | None = None
        self._host = host
        self._name = name
        self._process = process
        self._on_work = on_work
        self._on_exit = on_exit
        self._answer: asyncio.Future[Any] | None = None
        self._stack: asyncio.Future[str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.work = Channel(host.loop, process.work, self.memory, self._work_message, self._work_closed)
        self.control = Channel(host.loop, process.control, self.memory, self._control_message, _nothing)
        self.probe = ReadinessProbe(self.control.send)
        self._services = host.attach(name, self.memory, self.control, on_call)
        self._services.begun(process.pid)
        process.on_exit(self._process_exited)
        process.on_output(self._services.printed)

    @classmethod
    async def start(
        cls,
        host: WorkerHost,
        name: WorkerName,
        launch: Launch,
        on_work: Callable[[Message], None],
        on_exit: Callable[[str], None],
        on_call: Callable[[], None],
    ) -> "Worker":
        """A process that is ready to be told what to do.

        Raises:
            HalimedeError: it cannot be started.
        """
        spawning = host.loop.run_in_executor(host.threads, host.spawn, launch, name)
        try:
            process = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            spawning.add_done_callback(_kill)
            raise
        return cls(host, name, process, on_work, on_exit, on_call)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def adopt(self, on_work: Callable[[Message], None], on_exit: Callable[[str], None]) -> None:
        """Tell somebody else from now on. The process still runs, and its model has never called the server."""
        self._on_work = on_work
        self._on_exit = on_exit

    def serving(self) -> None:
        """The model has been loaded, with its warm-up."""
        self._services.serving()

    async def ask(self, message: Message, outgoing: ServerOutgoing | None = None) -> Any:
        """Send a message that is answered by one value, and wait for it.

        Raises:
            HalimedeError: the model failed at it, or the process ended.
        """
        if self.exited is not None:
            raise InternalError(self.exited)
        self._answer = self._host.loop.create_future()
        self.work.send(message, outgoing)
        try:
            return await self._answer
        finally:
            self._answer = None

    async def stop(self, graceful: bool) -> None:
        """End the process and give everything back.

        Args:
            graceful: let the model `finalize` first, for as long as it may.
        """
        if self.exited is None and graceful:
            try:
                async with asyncio.timeout(self._host.finalize_seconds):
                    await self.ask((wire.FINALIZE,))
            except HalimedeError as error:
                logger.error("'%s' failed to finalize: %s", self._name.instance, error)
            except TimeoutError:
                seconds = self._host.finalize_seconds
                instance = self._name.instance
                logger.error("'%s' did not finalize within %g s; its process is killed", instance, seconds)
                graceful = False
        await self._process.end(kill=not graceful, within_s=self._host.finalize_seconds)

    async def stack(self) -> str:
        """Where the model's Python code is; "" if native code holds the interpreter's lock.

        In that case the process writes the stacks of its threads to its standard error.
        """
        if self._stack is None or self._stack.done():
            self._stack = self._host.loop.create_future()
            self.control.send((wire.STACK,))
        try:
            return await asyncio.wait_for(asyncio.shield(self._stack), STACK_SECONDS)
        except TimeoutError:
            self._process.write_stacks()
            return ""

    def kill(self) -> None:
        """End the process at once; `on_exit` will be told."""
        self._process.kill()

    def tidy_later(self) -> None:
        """Return shared memory that is not needed, when there was time for it to become so."""
        if self._timer is None:
            self._timer = self._host.loop.call_later(1.0, self._tidy)

    def _tidy(self) -> None:
        self._timer = None
        if self.exited is not None:
            return
        if unused := self.memory.unused():
            self.control.send((wire.GIVE_BACK, unused))
        if numbers := self.memory.forgettable():
            self.work.send((wire.FORGET, numbers))
        if self.memory.untidy:
            self.tidy_later()

    def _work_message(self, message: Message) -> None:
        if message[0] > wire.FAILED:
            self._on_work(message)
        elif self._answer is not None and not self._answer.done():
            if message[0] == wire.DONE:
                self._answer.set_result(message[1])
            else:
                self._answer.set_exception(ERRORS[message[2]](message[1]))

    def _control_message(self, message: Message) -> None:
        if message[0] == wire.GONE:
            self.memory.gone(message[1])
        elif message[0] == wire.IS_READY:
            self.probe.answered(*message[1:])
        elif message[0] == wire.STACK_IS:
            self._settle_stack(message[1])
        else:
            self._services.message(message)

    def _settle_stack(self, text: str) -> None:
        if self._stack is not None and not self._stack.done():
            self._stack.set_result(text)

    def _work_closed(self) -> None:
        """In a moment it will be known why; and a process that only closed its socket is of no use."""
        if self.exited is None:
            self._process.kill_soon()

    def _process_exited(self, reason: str) -> None:
        self.exited = reason
        self.control.drain()
        self.work.drain()
        self._close()
        text = unhealthy(self._name.instance, reason)
        self.probe.exited(text)
        self._settle_stack("")
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(InternalError(text))
        self._on_exit(reason)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.work.close()
        self.control.close()
        self._services.close()
        self.memory.close()  # at once: what refers to it may be left to the garbage collector


def _kill(spawning: asyncio.Future[WorkerProcess]) -> None:
    """End a process that nobody waits for any more."""
    if not spawning.cancelled() and spawning.exception() is None:
        spawning.result().kill()


def _nothing() -> None:
    """The control socket closes with the process; the work socket tells."""
