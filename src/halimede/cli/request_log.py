"""The log of requests that the flags ask for."""

from pathlib import Path

import click

from halimede.cli.options import ServeOptions
from halimede.frontends.request_log.log import RequestLog


def open_request_log(options: ServeOptions) -> RequestLog | None:
    """The log of requests; None where none is asked for.

    Raises:
        click.UsageError: the file cannot be written, or is given without a form.
    """
    if options.access_log_file and options.access_log == "none":
        msg = "--access-log-file needs --access-log=text or --access-log=json"
        raise click.UsageError(msg)
    if options.access_log == "none" and not options.slow_request_ms:
        return None
    path = Path(options.access_log_file) if options.access_log_file else None
    try:
        return RequestLog(options.access_log, path, options.slow_request_ms)
    except OSError as error:
        msg = f"--access-log-file: cannot write '{path}': {error.strerror}"
        raise click.UsageError(msg) from None
