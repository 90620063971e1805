"""A measurement as one HTML page, which needs no other file."""

from collections.abc import Sequence
from html import escape

import numpy as np

from halimede.bench.plots import Axis, Series, html_table, page, plot
from halimede.bench.results import LevelResult, Result
from halimede.bench.tables import latencies, remarks, server_sides

_MOST_SERIES = 4
_CURVE = (0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99)


def html(result: Result) -> str:
    """The page."""
    sections = [("Latency and throughput", html_table(*latencies(result)))]
    if told := remarks(result):
        sections.append(("Remarks", "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in told) + "</ul>"))
    if len(result.levels) > 1:
        sections.append(("Over the load", _over_load(result)))
    shown = _chosen(result.levels)
    sections.append(("Distribution of latency", _distribution(shown)))
    sections.append(("Over time", _over_time(shown)))
    headings, rows = server_sides(result)
    if rows:
        sections.append(("In the server", html_table(headings, rows)))
    settings = html_table(["setting", "value"], [[name, value] for name, value in result.settings.items()])
    sections.append(("How it was measured", settings))
    return page(result.title, sections)


def _chosen(levels: Sequence[LevelResult]) -> list[LevelResult]:
    """At most four levels, spread over all."""
    places = np.unique(np.linspace(0, len(levels) - 1, min(len(levels), _MOST_SERIES)).round().astype(int))
    return [levels[place] for place in places]


def _over_load(result: Result) -> str:
    levels = result.levels
    axis = Axis("requests/s that were sent" if levels[0].open_loop else "requests under way at a time")
    rates = Series("requests/s", [(level.figure, level.throughput) for level in levels])
    times = [
        Series(f"p{percent:g}", [(level.figure, level.latency.percentile(percent) / 1e6) for level in levels])
        for percent in (50, 90, 99)
    ]
    against = Series(
        "p99",
        [(level.throughput, level.latency.percentile(99) / 1e6) for level in levels],
        labels=[level.name for level in levels],
    )
    return "\n".join(
        (
            plot("Throughput over the load", axis, Axis("requests/s"), [rates]),
            plot("Latency over the load", axis, Axis("ms"), times),
            plot("Latency over throughput", Axis("requests/s"), Axis("p99 in ms"), [against]),
        )
    )


def _distribution(levels: Sequence[LevelResult]) -> str:
    names = [(100 / (100 - percent), f"{percent:g}%") for percent in (50, 90, 99, 99.9, 99.99)]
    series = [
        Series(
            level.name,
            [(100 / (100 - percent), level.latency.percentile(percent) / 1e6) for percent in _CURVE],
        )
        for level in levels
    ]
    x = Axis("share of requests that took no longer", logarithmic=True, names=[(1, "0%"), *names])
    return plot("Latency by percentile", x, Axis("ms"), series)


def _over_time(levels: Sequence[LevelResult]) -> str:
    rates, times = [], []
    for level in levels:
        ends = np.cumsum([block.seconds for block in level.blocks])
        rate = [block.latency.count / block.seconds for block in level.blocks]
        p99 = [block.latency.percentile(99) / 1e6 for block in level.blocks]
        rates.append(Series(level.name, list(zip(ends.tolist(), rate, strict=True))))
        times.append(Series(level.name, list(zip(ends.tolist(), p99, strict=True))))
    axis = Axis("seconds")
    return "\n".join(
        (
            plot("Throughput over time", axis, Axis("requests/s"), rates),
            plot("p99 over time", axis, Axis("p99 in ms"), times),
        )
    )
