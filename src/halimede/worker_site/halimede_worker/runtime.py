"""What a worker's process knows of itself: its sockets, its model and how far it is."""

import asyncio
import threading
from concurrent.futures import Future
from enum import Enum
from typing import Any, Callable, Coroutine, Dict, Optional

from .messages.memory import Memory
from .messages.wire import Channel, Message


class Stage(Enum):
    """How far the model is."""

    LOADING = "loading"
    """Completing its configuration, being imported, or in `initialize`."""

    READY = "ready"
    """`initialize` is over."""

    FINALIZING = "finalizing"
    """In `finalize`."""


class Runtime:
    """An instance of a model. A worker has one, `runtime`; a process that is no worker leaves that as it is.

    Attributes:
        work: the socket on which the server says what to run; None in a process that is no worker.
        control: the socket for what may be said at any time.
        memory: what is shared with the server.
        stage: how far the model is.
        initializing: `initialize` has begun, or is over.
        args: what `initialize` is given.
        instance_name: the instance.
        model_name: the model.
        model_directory: the model's directory.
        version_directory: the directory of its version, which holds the model's file.
        decoupled: any number of responses may answer a request.
        iterative: a request may come again.
        waits: the thread that runs `execute` may wait for coroutines.
        call: has the server do something, and waits for what comes of it: see `halimede_worker.calls.calls.call`.
    """

    def __init__(self, memory: Optional[Memory] = None) -> None:
        self.work: Optional[Channel] = None
        self.control: Optional[Channel] = None
        self.memory = Memory() if memory is None else memory
        self.stage = Stage.LOADING
        self.initializing = False
        self.args: Dict[str, str] = {}
        self.instance_name = ""
        self.model_name = ""
        self.model_directory = ""
        self.version_directory = ""
        self.decoupled = False
        self.iterative = False
        self.waits = True
        self.call: Callable[[Message], Any] = _no_server
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._loop_lock = threading.Lock()

    @property
    def coroutine_loop(self) -> Optional[asyncio.AbstractEventLoop]:
        """The event loop of the instance's coroutines, if it was ever asked for."""
        return self._loop

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the instance's coroutines; its thread is started when it is first asked for."""
        with self._loop_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._run_loop, name="halimede-asyncio", daemon=True).start()
            return self._loop

    def spawn(self, coroutine: "Coroutine[Any, Any, Any]") -> "Future[Any]":
        """Let a coroutine run on the instance's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.event_loop())

    def stop_event_loop(self) -> None:
        """Tell the event loop to stop; what runs on it is abandoned."""
        with self._loop_lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _run_loop(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


def _no_server(_: Message) -> Any:
    raise AssertionError("no model runs here")


runtime = Runtime()
