"""What `halimede top` shows of a host, drawn by rich."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from halimede.top.cells import FittingTable, Row, number, share
from halimede.top.host_rates import VariantRates, variant_rates
from halimede.top.host_snapshot import Endpoint, HostSnapshot, Instance, Variant

_STATUSES = {"InService": "green", "Failed": "red", "UpdateRollbackFailed": "red", "OutOfService": "red"}
_OTHERS = "yellow"
"""Statuses of endpoints that are being changed."""

_SPARE = ("hits", "host ms", "mean ms", "disk %", "models", "waiting", "share", "in flight")
"""Figures that narrow terminals do not show, the first one first."""

_SHOWN = 5
"""Of reasons and alarms."""

_Row = tuple[Endpoint, Variant, VariantRates]


def host_view(
    address: str, before: HostSnapshot, after: HostSnapshot, *, most: int | None = None
) -> RenderableType:
    """The host in a line, and tables of variants, deployments, shadows and instances with at most so many rows."""
    rows = _rows(before, after)
    deployed = [each for each in after.endpoints.values() if each.deployed and each.status != "Creating"]
    shadows = [row for row in rows if row[1].shadow]
    left = None if most is None else most - sum(map(_changing, deployed)) - 3 * bool(deployed)
    left = None if left is None else left - len(shadows) - 3 * bool(shadows)
    shown = rows if left is None else rows[: max(3, left * 3 // 5)]
    parts: list[RenderableType] = [_host(address, after), _variants(shown)]
    if len(shown) < len(rows):
        parts.append(Text(f"{len(rows) - len(shown)} more variants", style="dim"))
    if deployed:
        parts.append(_deployments(after.time, deployed))
    if shadows:
        parts.append(_shadows(shadows))
    order = {endpoint.name: place for place, (endpoint, _, _) in reversed([*enumerate(rows)])}
    instances = sorted(after.instances, key=lambda each: (order.get(each.endpoint, len(rows)), each.variant))
    room = len(instances) if left is None else max(1, left - len(shown) - 3)
    if instances:
        parts.append(_instances(instances[:room]))
    if room < len(instances):
        parts.append(Text(f"{len(instances) - room} more instances", style="dim"))
    return Group(*parts, *_troubles(after))


def _rows(before: HostSnapshot, after: HostSnapshot) -> list[_Row]:
    """The variants; endpoints with the most load come first, then by name."""
    rows = [
        (endpoint, variant, variant_rates(before, after, endpoint, variant.name))
        for endpoint in after.endpoints.values()
        for variant in endpoint.variants or endpoint.deployed or [_NO_VARIANT]
    ]
    load: dict[str, float] = {}
    for endpoint, _, each in rows:
        load[endpoint.name] = load.get(endpoint.name, 0) + each.requests * (each.mean_ms or 0)
    return sorted(rows, key=lambda row: (-load.get(row[0].name, 0), row[0].name))


_NO_VARIANT = Variant("", "", shadow=False, share=None, instances=0, wanted=0)
"""In the row of an endpoint that has none yet, or none any more."""


def _host(address: str, after: HostSnapshot) -> Text:
    text = Text(f"halimede host {after.version} at {address}", style="bold")
    in_service = sum(each.status == "InService" for each in after.endpoints.values())
    told = [
        f"account {after.account}",
        after.region,
        f"up {_span(after.time - after.started)}",
        f"{in_service} of {len(after.endpoints)} endpoints in service",
        f"{sum(each.in_service for each in after.instances)} of {len(after.instances)} instances in service",
    ]
    return text.append("".join(f"  {each}" for each in told), style="not bold")


def _variants(rows: Sequence[_Row]) -> RenderableType:
    if not rows:
        return Text("\nThere are no endpoints.", style="dim")
    shown = []
    latest = ""
    for endpoint, variant, rates in rows:
        counts = endpoint.counted.get(variant.name)
        first, latest = endpoint.name != latest, endpoint.name
        waiting = counts.copies if variant.shadow and counts else endpoint.backlog if first else None
        names = (
            Text(endpoint.name if first else ""),
            Text(endpoint.status if first else "", style=_STATUSES.get(endpoint.status, _OTHERS)),
            Text(f"{variant.name} (shadow)" if variant.shadow else variant.name or "-"),
        )
        figures: dict[str, RenderableType] = {
            "share": "copies" if variant.shadow else share(variant.share),
            "req/s": number(rates.requests),
            "mean ms": number(rates.mean_ms),
            "p50 ms": number(rates.p50_ms),
            "p99 ms": number(rates.p99_ms),
            "host ms": number(rates.overhead_ms),
            "in flight": "-" if counts is None else number(counts.in_flight),
            "waiting": number(waiting),
            "instances": f"{variant.instances}/{variant.wanted}",
            "hits": share(rates.hits),
            "4xx/s": _errors(rates.client_errors),
            "5xx/s": _errors(rates.server_errors),
        }
        shown.append(Row(names, figures))
    return FittingTable(("endpoint", "status", "variant"), shown, _SPARE)


def _errors(rate: float) -> Text:
    return Text(number(rate), style="red" if rate else "")


def _changing(endpoint: Endpoint) -> int:
    return len(endpoint.variants) + len(endpoint.deployed)


def _deployments(now: float, endpoints: Sequence[Endpoint]) -> RenderableType:
    """Both fleets of endpoints that are being updated, with the parts of the requests that they take."""
    rows = [
        Row(
            (Text(endpoint.name if not place else ""), Text(each.config), Text(each.name)),
            {
                "share": "copies" if each.shadow else share(each.share),
                "instances": f"{each.instances}/{each.wanted}",
                "for": "-" if each.since is None else _span(now - each.since),
            },
            {"stage": Text(each.stage or "-"), "progress": Text(each.message)},
        )
        for endpoint in endpoints
        for place, each in enumerate((*endpoint.variants, *endpoint.deployed))
    ]
    return FittingTable(("updating", "configuration", "variant"), rows, ("for",))


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(max(0.0, seconds))))


def _shadows(rows: Sequence[_Row]) -> RenderableType:
    shown = [
        Row(
            (Text(endpoint.name), Text(variant.name)),
            {
                "copies/s": number(rates.requests),
                "lost/s": _errors(rates.lost),
                "compared/s": number(rates.compared),
                "same status": share(rates.same_status),
                "same answer": share(rates.agreement),
            },
        )
        for endpoint, variant, rates in rows
    ]
    return FittingTable(("shadow of", "variant"), shown)


def _instances(instances: Sequence[Instance]) -> RenderableType:
    rows = [
        Row(
            (Text(each.id), Text(each.endpoint), Text(each.variant), Text(each.node or "-")),
            {
                "pid": str(each.pid),
                "in service": Text("yes", style="green") if each.in_service else Text("no", style="yellow"),
                "in flight": number(each.in_flight),
                "models": number(each.models),
                "CPU %": number(each.cpu),
                "memory %": number(each.memory),
                "disk %": number(each.disk),
            },
        )
        for each in instances
    ]
    return FittingTable(("instance", "endpoint", "variant", "node"), rows, _SPARE)


def _troubles(after: HostSnapshot) -> Iterator[Text]:
    """Why endpoints failed, and alarms."""
    failed = [each for each in after.endpoints.values() if each.reason]
    for each in failed[:_SHOWN]:
        yield Text(f"{each.name}: {each.reason}", style="red")
    for name, reason in after.alarms[:_SHOWN]:
        yield Text(f"alarm {name}: {reason}", style="red")
