"""What an instance in the server's process knows of itself, and how it calls the server."""

import asyncio
import inspect
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from halimede.core.clock import Clock
from halimede.core.errors import HalimedeError
from halimede.core.tasks import Tasks
from halimede.workers.channel import Message
from halimede.workers.host import Attached, Target
from halimede.workers.in_server.inbox import Inbox
from halimede.workers.in_server.interpreter import TimedCoroutine
from halimede.workers.in_server.mailbox import Mailbox
from halimede.workers.in_server.memory import ModelMemory
from halimede_worker.calls.calls import closed
from halimede_worker.errors import TritonModelException
from halimede_worker.messages.wire import ClosedError
from halimede_worker.runtime import Runtime

logger = logging.getLogger("halimede")

_ON_LOOP = (
    "the call would hold up the server: it runs on its event loop, which is to answer it. Make it in a function that "
    "`execute` calls directly, or run the model in a process of its own"
)


class ServerRuntime(Runtime):
    """An instance in the server's process.

    Attributes:
        loop: the server's.
        inbox: what the loop is to do.
        clock: the server's.
        thread: that of the instance, on which `execute` runs but for what runs on the loop.
        targets: the models that it has called.
        calls_made: how many calls it has made.
        strayed: nothing may run on the loop, as a call from there was not answered before it returned.
        services: what the engine does for the instance; None once it is gone.
    """

    def __init__(self, loop: AbstractEventLoop, inbox: Inbox, clock: Clock) -> None:
        super().__init__(ModelMemory())
        self.loop = loop
        self.inbox = inbox
        self.thread = 0
        self.clock = clock
        self.services: Attached | None = None
        self.targets: set[Target] = set()
        self.calls_made = 0
        self.strayed = False
        self.call = self._call
        self._tasks = Tasks()

    @property
    def on_loop(self) -> bool:
        """Whether the calling thread is that of the server's loop."""
        return self.inbox.on_loop

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Let a coroutine run: on the server's loop if no thread waits for coroutines, else on one of its own."""
        if self.waits:
            return super().spawn(coroutine)
        if not self.on_loop:
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._tasks.submit(TimedCoroutine(self.model_name, coroutine))
        return Future()  # nobody waits

    def post(self, function: Any, *arguments: Any) -> None:
        """Have the loop call a function, later if this is its thread.

        Raises:
            TritonModelException: the server is gone.
        """
        if self.on_loop:
            self.loop.call_soon(function, *arguments)
            return
        try:
            self.inbox.post(function, *arguments)
        except ClosedError:
            raise closed() from None

    def run_soon(self, condition: Callable[[], bool]) -> None:
        """Run what the loop would run soon, on the loop, until something is so.

        Raises:
            TritonModelException: it takes more than that.
        """
        if not self.clock.run_until(condition):
            self.strayed = True
            raise TritonModelException(_ON_LOOP)

    def close(self) -> None:
        """The instance is gone: it can call no more."""
        self.services = None
        self.control = None

    def _call(self, message: Message) -> Any:
        """Have the server do something, and wait for what comes of it."""
        if self.on_loop:
            value = self._handle(message)
            if inspect.iscoroutine(value):
                value.close()
                raise TritonModelException(_ON_LOOP)
            return value
        done: Future[Any] = Future()
        self.post(self._start, message, done)
        return done.result()

    def _start(self, message: Message, done: "Future[Any]") -> None:
        try:
            value = self._handle(message)
        except TritonModelException as error:
            done.set_exception(error)
            return
        except Exception as error:  # the thread waits
            logger.exception("a call of model '%s' failed", self.model_name)
            done.set_exception(TritonModelException(f"{type(error).__name__}: {error}"))
            return
        if not inspect.isawaitable(value):
            done.set_result(value)
            return
        self._tasks.submit(self._finish(value, done))

    async def _finish(self, work: Any, done: "Future[Any]") -> None:
        try:
            done.set_result(await work)
        except HalimedeError as error:
            done.set_exception(TritonModelException(error.message))
        except BaseException as error:
            done.set_exception(TritonModelException(f"{type(error).__name__}: {error}"))

    def _handle(self, message: Message) -> Any:
        """What the engine makes of a message; on the loop."""
        services = self.services
        if services is None:
            raise closed()
        control = self.control
        if isinstance(control, Mailbox):
            control.poll()  # changes of metrics that were made before
        try:
            return services.handle(message)
        except HalimedeError as error:
            raise TritonModelException(error.message) from None
