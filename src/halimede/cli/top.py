"""`halimede top`: the figures of a running server or host in a terminal."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halimede.bench.address import parse
from halimede.bench.errors import BenchError
from halimede.cli.bench.values import Duration, headers
from halimede.top.signing import Signer
from halimede.top.source import find_source

if TYPE_CHECKING:  # it needs rich
    from halimede.top.screens import Screen

_PORT = 8000
_REGION = "us-east-1"
_WIDE = 160


@click.command("top", short_help="Show what a running server or host does.")
@click.option(
    "-u",
    "--url",
    default=f"127.0.0.1:{_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="The HTTP port of a server, or the port of a host.",
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
@click.option(
    "--region", envvar="AWS_DEFAULT_REGION", help="Of a host: which to show.  [default: the host's]"
)
@click.option("-n", "--count", type=click.IntRange(min=1), help="Show it so many times, and exit.")
def command(
    url: str,
    header: tuple[str, ...],
    ca_file: Path | None,
    interval: float,
    region: str | None,
    count: int | None,
) -> int:
    """Show what a server's models or a host's endpoints do, those with the most load first.

    Of a server: rates, latencies, queues, batches and errors of its models. Of a host: traffic, latencies and errors of
    the variants of its endpoints, deployments, shadows and instances. The command detects which of the two it is.

    In a terminal the tables are drawn anew at each look, until Ctrl-C; elsewhere they are printed each time. The
    figures come from the route of the console; servers without it, as tritonserver, show what their statistics have.
    If a host verifies signatures, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    """
    try:
        from halimede.top.screens import screen_of
    except ImportError:
        raise click.ClickException("halimede top needs rich: pip install 'halimede[top]'") from None
    if interval <= 0:
        raise click.UsageError("--interval must be above 0")
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which shells ignore in what they run in the background
    try:
        address = parse(url, _PORT, ca_file)
        source = find_source(address, headers(header), Signer(region or _REGION), signs=region is not None)
        _show(screen_of(address.authority, source), interval, count)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        return 0
    return 0


def _show(screen: "Screen[Any]", interval: float, count: int | None) -> None:
    """Look and draw, until it was drawn often enough.

    Raises:
        BenchError: the server or host cannot be reached any more, and there is no terminal that could say so.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console() if sys.stdout.isatty() else Console(width=_WIDE)
    with Live(console=console, auto_refresh=False, screen=console.is_terminal and count is None) as live:
        shown = 0
        while count is None or shown < count:
            time.sleep(interval)
            try:
                screen.look()
            except BenchError as error:
                if not console.is_terminal or count is not None:
                    raise
                live.update(Text(str(error), style="red"), refresh=True)
                continue
            most = max(1, console.height - 8) if console.is_terminal else None
            drawn = screen.drawn(most)
            if console.is_terminal:
                live.update(drawn, refresh=True)
            else:
                console.print(drawn)
            shown += 1
