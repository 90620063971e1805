"""The server as all that a script still does."""

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from halimede.api.flags import options_from
from halimede.cli import serve as serve_command
from halimede.cli.given_models import Reporter
from halimede.files.repository import given_repository


def serve_until_stopped(models: Sequence[str | Path | Callable[..., Any]], flags: Mapping[str, Any]) -> None:
    """Serve models until the process gets SIGINT or SIGTERM: see `halimede.serve`."""
    if _loop_runs() or threading.current_thread() is not threading.main_thread():
        msg = (
            "serve() needs the main thread until a signal ends it, and cannot run inside an event loop, as in a "
            "notebook; use serve_in_background()"
        )
        raise RuntimeError(msg)
    options = options_from(flags)
    with given_repository(models) as repository:
        repositories = (str(repository.directory), *options.model_repository)
        try:
            status = serve_command.run(
                replace(options, model_repository=repositories), [], process=Reporter(repository.models)
            )
        except click.ClickException as error:
            raise ValueError(error.format_message()) from None
    if status:
        sys.exit(status)


def _loop_runs() -> bool:
    """Whether an event loop runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
