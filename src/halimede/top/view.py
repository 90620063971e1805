"""What `halimede top` shows, drawn by rich."""

from collections.abc import Sequence
from datetime import timedelta

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from halimede.top.rates import ModelRates, answers, processor_share, rates
from halimede.top.snapshot import Snapshot

_MIB = 1 << 20
_STATES = {"READY": "green", "LOADING": "yellow", "UNLOADING": "yellow", "UNAVAILABLE": "red"}


def view(
    address: str, before: Snapshot, after: Snapshot, *, complete: bool, most: int | None = None
) -> RenderableType:
    """The server in a line, and its models in a table of at most so many rows."""
    rows = rates(before, after)
    shown = rows if most is None else rows[:most]
    parts: list[RenderableType] = [_server(address, before, after), _models(shown, complete=complete)]
    if len(shown) < len(rows):
        parts.append(Text(f"{len(rows) - len(shown)} more models", style="dim"))
    failed = [row.figures for row in rows if row.figures.reason]
    parts += [Text(f"{_name(each.key)}: {each.reason}", style="red") for each in failed[:5]]
    if not complete:
        parts.append(
            Text(
                "The server has no /v2/console/snapshot: no queues, instances, percentiles and memory.",
                style="dim",
            )
        )
    return Group(*parts)


def _server(address: str, before: Snapshot, after: Snapshot) -> Text:
    text = Text(f"{after.server} at {address}", style="bold")
    text.append("  ready" if after.ready else "  not ready", style="green" if after.ready else "red")
    told = []
    if after.started is not None:
        told.append(f"up {timedelta(seconds=round(max(0.0, after.time - after.started)))}")
    share = processor_share(before, after)
    if share is not None:
        told.append(f"CPU {share:.0%}")
    if after.resident is not None:
        told.append(f"memory {after.resident / _MIB:,.0f} MiB")
    if after.budget is not None:
        held = sum(model.memory or 0 for model in after.models.values())
        told.append(f"models {held / _MIB:,.0f} of {after.budget / _MIB:,.0f} MiB")
    told += [f"{protocol}: {count} connections" for protocol, count in after.connections.items()]
    told += [f"{name} {_number(rate)}/s" for name, rate in answers(before, after).items()]
    return text.append("".join(f"  {each}" for each in told), style="not bold")


def _models(rows: Sequence[ModelRates], *, complete: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("model", overflow="fold", min_width=12)
    table.add_column("state")
    headings = ["req/s", "mean ms"]
    headings += ["p50 ms", "p99 ms"] if complete else []
    headings += ["queue ms", "comp. ms", "batch"]
    headings += ["waiting", "in flight", "busy", "MiB"] if complete else []
    for heading in [*headings, "hits", "fail/s"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        figures = row.figures
        cells = [_number(row.requests), _number(row.mean_ms)]
        cells += [_number(row.p50_ms), _number(row.p99_ms)] if complete else []
        cells += [_number(row.queue_ms), _number(row.compute_ms), _number(row.batch)]
        if complete:
            busy = "-" if figures.instances is None else f"{figures.busy}/{figures.instances}"
            memory = None if figures.memory is None else figures.memory / _MIB
            cells += [_number(figures.pending), _number(figures.inflight), busy, _number(memory)]
        hits = "-" if not row.hits else f"{row.hits:.0%}"
        table.add_row(
            Text(_name(figures.key)),
            Text(figures.state or "-", style=_STATES.get(figures.state, "")),
            *cells,
            hits,
            Text(_number(row.failures), style="red" if row.failures else ""),
        )
    return table


def _name(key: tuple[str, str, str]) -> str:
    namespace, name, version = key
    return f"{namespace}/{name} {version}".strip() if namespace else f"{name} {version}".strip()


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
