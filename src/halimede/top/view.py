"""What `halimede top` shows, drawn by rich."""

from collections.abc import Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from halimede.top.cells import FittingTable, Row, number, share
from halimede.top.rates import ModelRates, answers, processor_share, rates
from halimede.top.snapshot import Snapshot

_MIB = 1 << 20
_STATES = {"READY": "green", "LOADING": "yellow", "UNLOADING": "yellow", "UNAVAILABLE": "red"}
_SPARE = ("hits", "canc/s", "comp. ms", "queue ms", "mean ms", "MiB", "batch")
"""Figures that narrow terminals do not show, the first one first."""


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
    cores = processor_share(before, after)
    if cores is not None:
        told.append(f"CPU {cores:.0%}")
    if after.resident is not None:
        told.append(f"memory {after.resident / _MIB:,.0f} MiB")
    if after.budget is not None:
        held = sum(model.memory or 0 for model in after.models.values())
        told.append(f"models {held / _MIB:,.0f} of {after.budget / _MIB:,.0f} MiB")
    told += [f"{protocol}: {count} connections" for protocol, count in after.connections.items()]
    told += [f"{name} {number(rate)}/s" for name, rate in answers(before, after).items()]
    return text.append("".join(f"  {each}" for each in told), style="not bold")


def _models(rows: Sequence[ModelRates], *, complete: bool) -> RenderableType:
    if not rows:
        return Text("\nThere are no models.", style="dim")
    shown = [
        Row(
            (
                Text(_name(row.figures.key)),
                Text(row.figures.state or "-", style=_STATES.get(row.figures.state, "")),
            ),
            _figures(row, complete=complete),
        )
        for row in rows
    ]
    return FittingTable(("model", "state"), shown, _SPARE)


def _figures(row: ModelRates, *, complete: bool) -> dict[str, RenderableType]:
    model = row.figures
    figures: dict[str, RenderableType] = {"req/s": number(row.requests), "mean ms": number(row.mean_ms)}
    if complete:
        figures |= {"p50 ms": number(row.p50_ms), "p99 ms": number(row.p99_ms)}
    figures |= {
        "queue ms": number(row.queue_ms),
        "comp. ms": number(row.compute_ms),
        "batch": number(row.batch),
    }
    if complete:
        figures |= {
            "waiting": number(model.pending),
            "in flight": number(model.inflight),
            "busy": "-" if model.instances is None else f"{model.busy}/{model.instances}",
            "MiB": number(None if model.memory is None else model.memory / _MIB),
        }
    figures["hits"] = share(row.hits or None)
    figures["fail/s"] = Text(number(row.failures), style="red" if row.failures else "")
    if complete:
        figures["canc/s"] = number(row.cancelled)
    return figures


def _name(key: tuple[str, str, str]) -> str:
    namespace, name, version = key
    return f"{namespace}/{name} {version}".strip() if namespace else f"{name} {version}".strip()
