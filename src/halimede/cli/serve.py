"""`halimede serve`: serve model repositories until a signal says to stop."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halimede.cli import logs, tuning
from halimede.cli.check.access import access_remarks
from halimede.cli.check.checks import check
from halimede.cli.check.rate_limits import resource_remarks
from halimede.cli.flags import serve_command
from halimede.cli.options import ServeOptions
from halimede.frontends.log_settings import LogSettings

if TYPE_CHECKING:
    from halimede.cli.process import Process

Given = str | Path | Callable[..., Any]

logger = logging.getLogger("halimede")


def run(
    options: ServeOptions, remarks: list[str], announcement: str = "", process: "Process | None" = None
) -> int:
    """Serve; the result is the exit status.

    Args:
        options: what the flags say.
        remarks: what to warn of.
        announcement: what to log first; "" for nothing.
        process: is told how far the server is; None for nobody.

    Raises:
        click.ClickException: the server cannot be started like this.
    """
    check(options)
    try:
        log = logs.configure(log_settings(options))
    except OSError as error:
        msg = f"--log-file: cannot write '{options.log_file}': {error.strerror}"
        raise click.UsageError(msg) from None
    if announcement:
        logger.info("%s", announcement)
    for remark in [*remarks, *access_remarks(options), *resource_remarks(options)]:
        logger.warning("%s", remark)
    tuning.keep_freed_memory()
    tuning.allow_open_files()
    # numpy and the frameworks take a third of a second to import; a wrong flag is told before that
    with tuning.importing() if process is None or process.is_own else nullcontext():
        import uvloop

        from halimede.cli.process import serve

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(options, log, process))


def run_given(given: Sequence[Given], options: ServeOptions, remarks: list[str]) -> int:
    """Serve models that are given one by one, beside those of the repositories; the result is the exit status.

    Raises:
        click.ClickException: one of them cannot be served, or the server cannot be started like this.
    """
    from halimede.cli.given_models import Reporter
    from halimede.files.repository import given_repository
    from halimede.files.targets import TargetError
    from halimede.functions.declaration import DeclarationError

    try:
        with given_repository(given) as repository:
            repositories = (str(repository.directory), *options.model_repository)
            return run(
                replace(options, model_repository=repositories),
                remarks,
                process=Reporter(repository.models),
            )
    except (TargetError, DeclarationError) as error:
        raise click.UsageError(str(error)) from None


def log_settings(options: ServeOptions) -> LogSettings:
    """What the options say of the log."""
    return LogSettings(
        info=options.log_info,
        warning=options.log_warning,
        error=options.log_error,
        verbose=options.log_verbose,
        format=options.log_format,
        file=Path(options.log_file) if options.log_file else None,
    )


command = serve_command(run, run_given)
