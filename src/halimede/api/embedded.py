"""A server on a thread of a program that has more to do: what `Server` and `BackgroundServer` have in common."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from halimede.cli import serve as serve_command
from halimede.cli.check.checks import check
from halimede.cli.options import ServeOptions
from halimede.cli.process import Process
from halimede.cli.process import serve as serve_until_stopped
from halimede.cli.signals import StopSignals
from halimede.core.errors import UnavailableError
from halimede.engine.engine import Engine
from halimede.files.repository import given_repository
from halimede.frontends.log_settings import LogControl

logger = logging.getLogger("halimede")

T = TypeVar("T")

Given = str | Path | Callable[..., Any]


class EmbeddedServer:
    """A server on a thread of its own, with an event loop of its own.

    Attributes:
        ports: where its endpoints listen, by their names.
    """

    def __init__(self, models: Sequence[Given], options: ServeOptions) -> None:
        """Start it; its models are loading when this returns.

        Raises:
            ValueError: it cannot be started with these options.
            RuntimeError: it has not started; the text says why.
            DeclarationError, TargetError: a model cannot be served.
        """
        self._stack = ExitStack()
        self._process = _Application()
        self._thread = threading.Thread(target=self._run, name="halimede-server", daemon=True)
        try:
            if models:
                repository = self._stack.enter_context(given_repository(models))
                options = replace(
                    options, model_repository=(str(repository.directory), *options.model_repository)
                )
            self.options = options
            check(options)
            self._thread.start()
            self._process.begun.result()
        except click.ClickException as error:
            self.stop()
            raise ValueError(error.format_message()) from None
        except BaseException:
            self.stop()
            raise
        self.ports = self._process.ports

    @property
    def engine(self) -> Engine:
        """The engine, which lives on the server's event loop."""
        engine = self._process.engine
        if engine is None or not self.is_running:
            msg = "the server does not run"
            raise UnavailableError(msg)
        return engine

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def wait_until_loaded(self) -> None:
        """Return when the models that load at start are ready.

        Raises:
            RuntimeError: one is not; the text says why. The server has stopped then.
        """
        try:
            self._process.ready.result()
        except BaseException:
            self.stop()
            raise

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call on the server's event loop.

        Raises:
            UnavailableError: the server does not run.
        """
        self.engine  # noqa: B018 - raises
        assert self._process.loop is not None, "it is there before the engine"
        self._process.loop.call_soon_threadsafe(callback, *arguments)

    def ask(self, coroutine: "Coroutine[Any, Any, T]") -> "Future[T]":
        """Run a coroutine on the server's event loop.

        Raises:
            UnavailableError: the server does not run.
        """
        try:
            self.engine  # noqa: B018 - raises
        except UnavailableError:
            coroutine.close()
            raise
        assert self._process.loop is not None, "it is there before the engine"
        return asyncio.run_coroutine_threadsafe(coroutine, self._process.loop)

    def stop(self) -> None:
        """Answer what is under way, and end. Does nothing if it has ended."""
        self._process.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._stack.close()

    def _run(self) -> None:
        import uvloop

        process = self._process
        log = LogControl(serve_command.log_settings(self.options), _leave_as_it_is)
        failure: BaseException = RuntimeError("the server has not started; its log says why")
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve_until_stopped(self.options, log, process))
        except BaseException as error:
            failure = error
            if process.ready.done():
                logger.exception("the server has failed")
        for future in (process.begun, process.ready):
            if not future.done():
                future.set_exception(failure)


class _Application(Process):
    """A program that is more than the server.

    Attributes:
        begun: has a result when the engine is there.
        ready: has a result when the models are ready, or says why they are not.
        engine: the engine.
        loop: its event loop.
        ports: where the endpoints listen, by their names.
    """

    is_own = False

    def __init__(self) -> None:
        self.begun: Future[None] = Future()
        self.ready: Future[None] = Future()
        self.engine: Engine | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ports: Mapping[str, int] = {}
        self._signals: StopSignals | None = None

    def signals(self, loop: asyncio.AbstractEventLoop, *, delay: bool) -> StopSignals:
        """What `stop` sets."""
        self.loop, self._signals = loop, StopSignals(loop, delay=delay, listen=False)
        return self._signals

    def started(self, engine: Engine, ports: Mapping[str, int]) -> None:
        """Note the engine and the ports."""
        self.engine, self.ports = engine, ports
        self.begun.set_result(None)

    def loaded(self, engine: Engine, *, all_ready: bool) -> None:
        """Tell whoever waits."""
        if all_ready or not engine.settings.exit_on_error:
            self.ready.set_result(None)
            return
        reasons = [f"'{row.name}': {row.reason}" for row in engine.lifecycle.index() if row.reason]
        self.ready.set_exception(RuntimeError("; ".join(reasons) or "the models could not be loaded"))

    def stop(self) -> None:
        """Have the server stop."""
        if self.loop is None or self._signals is None:
            return
        with suppress(RuntimeError):  # the loop is closed: it has stopped
            self.loop.call_soon_threadsafe(self._signals.stop.set)
            self.loop.call_soon_threadsafe(self._signals.hurry.set)


def _leave_as_it_is(_: object) -> None:
    """The program's log is not the server's to change."""
