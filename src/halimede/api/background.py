"""A server on a thread of a program that has more to do, such as a notebook."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import click

from halimede.cli import serve as serve_command
from halimede.cli.check.checks import check
from halimede.cli.options import ServeOptions
from halimede.cli.process import Process
from halimede.cli.process import serve as serve_until_stopped
from halimede.cli.signals import StopSignals
from halimede.engine.engine import Engine
from halimede.files.repository import given_repository
from halimede.frontends.log_settings import LogControl

logger = logging.getLogger("halimede")

_READY_SECONDS: Final = 600.0


class BackgroundServer:
    """A server on a thread of this process.

    Attributes:
        http: where it serves HTTP, as `host:port`; "" if it does not.
        grpc: where it serves gRPC, likewise.
        metrics: where it serves metrics, likewise.
    """

    def __init__(self, models: Sequence[str | Path | Callable[..., Any]], options: ServeOptions) -> None:
        """Start it, and wait until its models are ready."""
        self._stack = ExitStack()
        repository = self._stack.enter_context(given_repository(models))
        self._options = replace(
            options, model_repository=(str(repository.directory), *options.model_repository)
        )
        self._process = _Application()
        self._thread = threading.Thread(target=self._run, name="halimede-server", daemon=True)
        self.http = self.grpc = self.metrics = ""
        try:
            check(self._options)
            self._thread.start()
            self._process.ready.result(_READY_SECONDS)
        except click.ClickException as error:
            self.stop()
            raise ValueError(error.format_message()) from None
        except BaseException:
            self.stop()
            raise
        ports = self._process.ports
        self.http = _address(self._options.http_address, ports.get("HTTPService"))
        self.grpc = _address(self._options.grpc_address, ports.get("GRPCInferenceService"))
        self.metrics = _address(self._options.metrics_address, ports.get("Metrics Service"))

    @property
    def url(self) -> str:
        """Where it serves HTTP, as `http://host:port`."""
        return f"http://{self.http}"

    def stop(self) -> None:
        """Answer what is under way, and end the server. Does nothing if it has ended."""
        self._process.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._stack.close()

    def __enter__(self) -> "BackgroundServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<halimede server at {self.url}>" if self._thread.is_alive() else "<halimede server, stopped>"

    def _run(self) -> None:
        import uvloop

        ready = self._process.ready
        log = LogControl(serve_command.log_settings(self._options), _leave_as_it_is)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve_until_stopped(self._options, log, self._process))
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            else:
                logger.exception("the server has failed")
        if not ready.done():
            ready.set_exception(RuntimeError("the server has not started; its log says why"))


class _Application(Process):
    """A program that is more than the server.

    Attributes:
        ready: has a result when the models are ready, or says why they are not.
        ports: where the endpoints listen, by their names.
    """

    is_own = False

    def __init__(self) -> None:
        self.ready: Future[None] = Future()
        self.ports: Mapping[str, int] = {}
        self._signals: tuple[asyncio.AbstractEventLoop, StopSignals] | None = None

    def signals(self, loop: asyncio.AbstractEventLoop, *, delay: bool) -> StopSignals:
        """What `stop` sets."""
        signals = StopSignals(loop, delay=delay, listen=False)
        self._signals = loop, signals
        return signals

    def opened(self, ports: Mapping[str, int]) -> None:
        """Note the ports."""
        self.ports = ports

    def loaded(self, engine: Engine, *, all_ready: bool) -> None:
        """Tell whoever waits."""
        if all_ready or not engine.settings.exit_on_error:
            self.ready.set_result(None)
            return
        reasons = [f"'{row.name}': {row.reason}" for row in engine.lifecycle.index() if row.reason]
        self.ready.set_exception(RuntimeError("; ".join(reasons) or "the models could not be loaded"))

    def stop(self) -> None:
        """Have the server stop."""
        if self._signals is None:
            return
        loop, signals = self._signals
        try:
            loop.call_soon_threadsafe(signals.stop.set)
            loop.call_soon_threadsafe(signals.hurry.set)
        except RuntimeError:  # the loop is closed: it has stopped
            pass


def _address(host: str, port: int | None) -> str:
    shown = "127.0.0.1" if host in ("", "0.0.0.0") else host  # noqa: S104 - what it is called from here
    return "" if port is None else f"{shown}:{port}"


def _leave_as_it_is(_: object) -> None:
    """The program's log is not the server's to change."""
