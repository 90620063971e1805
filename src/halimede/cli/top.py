"""`halimede top`: a running server's figures in a terminal."""

import signal
import sys
import time
from pathlib import Path

import click

from halimede.bench.address import parse
from halimede.bench.errors import BenchError
from halimede.cli.bench.values import Duration, headers
from halimede.top.snapshot import Snapshot
from halimede.top.source import Source

_PORT = 8000
_WIDE = 160


@click.command("top", short_help="Show what a running server does.")
@click.option(
    "-u", "--url", default=f"127.0.0.1:{_PORT}", show_default=True, metavar="HOST:PORT", help="Its HTTP port."
)
@click.option(
    "-H", "header", multiple=True, metavar="NAME:VALUE", help="A header, such as Authorization:Bearer ..."
)
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Certificates to trust in place of the system's.",
)
@click.option(
    "-d", "--interval", type=Duration("s"), default="1s", show_default=True, help="Time between two looks."
)
@click.option("-n", "--count", type=click.IntRange(min=1), help="Show it so many times, and exit.")
def command(
    url: str, header: tuple[str, ...], ca_file: Path | None, interval: float, count: int | None
) -> int:
    """Show rates, latencies, queues, batches and errors of a server's models, those with the most load first.

    In a terminal the table is drawn anew at each look, until Ctrl-C; elsewhere it is printed each time. The figures
    come from /v2/console/snapshot; servers without it, as tritonserver, show what their statistics have.
    """
    try:
        from rich.console import Console  # noqa: F401
    except ImportError:
        raise click.ClickException("halimede top needs rich: pip install 'halimede[top]'") from None
    if interval <= 0:
        raise click.UsageError("--interval must be above 0")
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which shells ignore in what they run in the background
    try:
        address = parse(url, _PORT, ca_file)
        source = Source(address, headers(header))
        first = source.snapshot()
        _show(source, address.authority, first, interval, count)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        return 0
    return 0


def _show(source: Source, address: str, before: Snapshot, interval: float, count: int | None) -> None:
    """Look and draw, until it was drawn often enough.

    Raises:
        BenchError: the server could not be reached when nothing had been drawn yet.
    """
    from rich.console import Console
    from rich.live import Live

    from halimede.top.view import view

    console = Console() if sys.stdout.isatty() else Console(width=_WIDE)
    with Live(console=console, auto_refresh=False, screen=console.is_terminal and count is None) as live:
        shown = 0
        while count is None or shown < count:
            time.sleep(interval)
            try:
                after = source.snapshot()
            except BenchError as error:
                if not console.is_terminal or count is not None:
                    raise
                live.update(f"[red]{error}[/red]", refresh=True)
                continue
            most = max(1, console.height - 8) if console.is_terminal else None
            drawn = view(address, before, after, complete=source.complete, most=most)
            if console.is_terminal:
                live.update(drawn, refresh=True)
            else:
                console.print(drawn)
            before, shown = after, shown + 1
