"""Simulate the host with a thousand instances and a hundred thousand models, and print what came of it.

`keeping` plays traces of requests to the host's residency: which models stay loaded. `choices` does so with other
settings. `day` lets one endpoint live through a day with a peak, spikes and nodes that fail, scaled by target tracking.
"""

import argparse
import logging
from array import array

import numpy as np

from benchmarks.cluster.cluster import Hardware
from benchmarks.cluster.day import Day, Report, Spike, live
from benchmarks.cluster.keeping import Kept, Size, keep
from benchmarks.cluster.traces import STATIC, TRACES
from halimede.cli.tuning import tune_garbage_collector
from halimede.hosting.metering.pace import Pace
from halimede.hosting.routing.residency.settings import ResidencySettings

PARTS = ("keeping", "choices", "day")

SIZE = Size(instances=50, each=20, per_node=10, models=10_000, requests=100_000)
QUICK_SIZE = Size(instances=20, each=20, per_node=5, models=4_000, requests=12_000)
QUICK_TRACES = ("Zipf 0.9", "bursts")


def _settings(half_life: float, recent: float) -> ResidencySettings:
    return ResidencySettings(half_life=half_life, least_recent=recent, most_recent=recent)


CHOICE_SIZE = Size(instances=20, each=20, per_node=5, models=4_000, requests=20_000)
QUICK_CHOICE_SIZE = Size(instances=10, each=20, per_node=5, models=2_000, requests=4_000)
CHOICE_TRACES = ("Zipf 0.7", "drifting", "scanned", "bursts")
CHOICES = {
    "LRU": _settings(0.001, 0.0),
    "8, 0 %": _settings(8, 0.0),
    "32, 0 %": _settings(32, 0.0),
    "32, 10 %": _settings(32, 0.1),
    "32, 50 %": _settings(32, 0.5),
    "32, learned": ResidencySettings(),
}
"""Half-lives of counts, and shares of models that are left alone."""

TURN_GOAL_MS = 100.0
STATIC_GOAL = 0.95


def a_day(instances: int, models: int, seconds: float) -> Day:
    """A day of up to so many instances, most of which serve at the peak; AWS's minute takes 3 seconds."""
    target = 0.35
    peak = 0.85 * target * instances
    return Day(
        seconds=seconds,
        pace=Pace(3),
        hardware=Hardware(nodes=instances // 20 + 2, per_node=20),
        models=models,
        exponent=0.9,
        low=peak / 6,
        peak=peak,
        request_s=0.294,
        target=target,
        minimum=max(2, instances // 10),
        maximum=instances,
        spikes=(Spike(0.25, 0.02, 3.0), Spike(0.85, 0.02, 3.0)),
        failures=(0.3, 0.6, 0.61, 0.7),
    )


DAY = a_day(1000, 100_000, 4320.0)
QUICK_DAY = a_day(40, 4_000, 900.0)


def main() -> None:
    """Run what was chosen, and print a table for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small cluster and few requests")
    parser.add_argument("--only", choices=PARTS, help="one part")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    tune_garbage_collector()
    if arguments.only in ("keeping", None):
        tell_kept(QUICK_SIZE if arguments.quick else SIZE, QUICK_TRACES if arguments.quick else tuple(TRACES))
    if arguments.only in ("choices", None):
        tell_choices(
            QUICK_CHOICE_SIZE if arguments.quick else CHOICE_SIZE,
            QUICK_TRACES if arguments.quick else CHOICE_TRACES,
        )
    if arguments.only in ("day", None):
        tell_day(QUICK_DAY if arguments.quick else DAY)


# which models stay


def tell_kept(size: Size, names: tuple[str, ...]) -> None:
    """Play traces, and print a table of hit ratios."""
    print(
        f"{size.instances:,} instances with room for {size.each} models each, {size.models:,} models, "
        f"{size.requests:,} requests a trace\n"
    )
    print("| Trace | Hits | LRU | Perfect LFU | Belady | Hits/LRU | Hits/LFU | Hits/Belady | Goals |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        print(row_of_kept(name, keep(name, size)), flush=True)


def tell_choices(size: Size, names: tuple[str, ...]) -> None:
    """Play traces with other settings, and print a table of hit ratios."""
    print(
        f"\n{size.instances:,} instances with room for {size.each} models each, {size.models:,} models, "
        f"{size.requests:,} requests a trace\n"
    )
    print(" | ".join(["| Trace", *CHOICES]) + " |")
    print("|---" * (len(CHOICES) + 1) + "|")
    for name in names:
        hits = [f"{keep(name, size, settings).hits:.1%}" for settings in CHOICES.values()]
        print(" | ".join(["| " + name, *hits]) + " |", flush=True)


def row_of_kept(name: str, kept: Kept) -> str:
    """A line of the table."""
    ratios = [kept.hits / other for other in (kept.lru, kept.lfu, kept.belady)]
    reached = round(ratios[0], 3) >= 1 and (name not in STATIC or ratios[1] >= STATIC_GOAL)
    cells = [f"{value:.1%}" for value in (kept.hits, kept.lru, kept.lfu, kept.belady)]
    cells += [f"{ratio:.3f}" for ratio in ratios]
    return " | ".join(["| " + name, *cells, "reached" if reached else "missed"]) + " |"


# the day


def tell_day(day: Day) -> None:
    """Live through a day, and print what came of it."""
    print(
        f"\nUp to {day.maximum:,} instances on {day.hardware.nodes} nodes, {day.models:,} models of popularity "
        f"1/rank^{day.exponent:g}, a day in {day.seconds:,.0f} s, {day.low:.0f} to {day.peak:.0f} requests/s\n"
    )
    print("| | |\n|---|---|")
    for name, value in rows_of_day(live(day), day):
        print(f"| {name} | {value} |")


def rows_of_day(report: Report, day: Day) -> list[tuple[str, str]]:
    """The table: names and values."""
    outcomes = report.outcomes
    latencies = np.percentile(outcomes.latencies, [50, 99, 99.9])
    waits = np.percentile(outcomes.waits, [50, 99])
    sent = outcomes.sent
    refused = ", ".join(f"{count:,} × {code}" for code, count in sorted(outcomes.refused.items())) or "none"
    turns = report.turns_us
    seconds, best = report.instance_s, report.optimal_s
    return [
        ("requests", f"{sent:,}"),
        ("answered", f"{outcomes.answered:,}"),
        ("lost with the nodes that they were running on", f"{outcomes.lost:,}"),
        ("sent to a node that had failed, and then to another instance", f"{outcomes.sent_again:,}"),
        ("answered with an error", refused),
        ("instances lost with nodes", f"{report.lost_instances:,}"),
        ("hits", f"{report.hits:.1%}"),
        (f"LRU, one cache of {report.room:,} models", f"{report.lru:.1%}"),
        ("perfect LFU", f"{report.lfu:.1%}"),
        ("Belady", f"{report.belady:.1%}"),
        ("requests that waited for a model", f"{len(outcomes.waits):,}"),
        ("loads; archives fetched", f"{report.loads:,}; {report.fetches:,}"),
        ("wait for a model, p50 and p99", f"{waits[0]:.2f} s, {waits[1]:.2f} s"),
        ("latency, p50, p99, p99.9", ", ".join(f"{value:.2f} s" for value in latencies)),
        ("fewest and most instances", f"{min(report.counts):,}, {max(report.counts):,}"),
        ("hours of instances (of this day)", f"{seconds / 3600:,.1f}"),
        ("the same if there were always as many as needed", f"{best / 3600:,.1f}; {seconds / best:.2f}×"),
        ("share of the time with fewer than needed", f"{report.short:.1%}"),
        ("changes of direction of the number of instances", f"{report.turnarounds}"),
        ("processor time to find a loaded model, p50 and p99", microseconds(outcomes.hit_ns)),
        ("the same for a model that none has", microseconds(outcomes.miss_ns)),
        ("turns of the event loop, median", f"{len(turns):,}, {np.median(turns):.0f} µs"),
        ("longest turn; its goal", f"{turns.max() / 1e3:.1f} ms; ≤ {TURN_GOAL_MS:.0f} ms"),
        ("turns of 10 ms and more", f"{np.count_nonzero(turns >= 1e4):,}"),
        ("real time", f"{report.took_s:.0f} s for {day.seconds:,.0f} s"),
    ]


def microseconds(times_ns: "array[int]") -> str:
    """The 50th and the 99th percentile."""
    half, most = np.percentile(times_ns, [50, 99]) / 1e3
    return f"{half:.0f} µs, {most:.0f} µs"


if __name__ == "__main__":
    main()
