"""Plots as SVG text, which a page shows without any script. Colours come from the page, light or dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 24, 32, 44
_DIGITS = 4
_CHARACTER = 6.5  # about as wide as a character is

STYLE = """
svg.plot { width: 100%; max-width: 44rem; height: auto; font: 12px system-ui, sans-serif; }
svg.plot text { fill: var(--ink); }
svg.plot .grid { stroke: var(--rule); stroke-width: 1; }
svg.plot polyline { fill: none; stroke-width: 2; }
svg.plot .s0 { stroke: var(--s0); fill: var(--s0); } svg.plot .s1 { stroke: var(--s1); fill: var(--s1); }
svg.plot .s2 { stroke: var(--s2); fill: var(--s2); } svg.plot .s3 { stroke: var(--s3); fill: var(--s3); }
svg.plot polyline.s0, svg.plot polyline.s1, svg.plot polyline.s2, svg.plot polyline.s3 { fill: none; }
"""
"""Style of plots: the page defines `--ink`, `--rule` and `--s0` to `--s3`."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line or cloud of a plot.

    Attributes:
        name: what the legend calls it.
        points: x and y.
        line: the points are joined.
        labels: shown when the pointer rests on each point; none or one a point.
    """

    name: str
    points: Sequence[tuple[float, float]]
    line: bool = True
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        title: with the unit.
        logarithmic: equal distances are equal ratios.
        names: texts at certain values, in place of numbers.
        from_zero: it begins with 0, unless it is logarithmic.
    """

    title: str
    logarithmic: bool = False
    names: Sequence[tuple[float, str]] = ()
    from_zero: bool = True


class _Scale:
    def __init__(self, axis: Axis, values: Sequence[float], low_at: float, high_at: float) -> None:
        self.axis = axis
        usable = [value for value in values if value > 0 or not axis.logarithmic] or [1.0]
        low, high = min(usable), max(usable)
        if not axis.logarithmic and axis.from_zero:
            low = min(0.0, low)
        if low == high:
            low, high = (low / 2, high * 2) if axis.logarithmic else (low - (low != 0), high + 1)
        self.low, self.high, self._low_at, self._high_at = low, high, low_at, high_at

    def at(self, value: float) -> float:
        """The place of a value, in the picture's units."""
        if self.axis.logarithmic:
            value = max(value, self.low)
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self._low_at + part * (self._high_at - self._low_at)

    def ticks(self) -> list[tuple[float, str]]:
        """Values that have a line and a text."""
        if self.axis.names:
            return [(value, text) for value, text in self.axis.names if self.low <= value <= self.high]
        if self.axis.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1, 2, 5) if last - first <= 3 else (1,)
            values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        else:
            rough = (self.high - self.low) / 5
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
            values = [math.ceil(self.low / step) * step + step * index for index in range(7)]
        return [(value, number(value)) for value in values if self.low <= value <= self.high * 1.000001]


def number(value: float) -> str:
    """A number as people read it: four digits, none of them wasted."""
    if value == 0:
        return "0"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plot(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """A picture of at most four series."""
    points = [point for each in series for point in each.points]
    across = _Scale(x, [point[0] for point in points], _LEFT, WIDTH - _RIGHT)
    up = _Scale(y, [point[1] for point in points], HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for value, text in across.ticks():
        at = across.at(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(text)}</text>'
        )
    for value, text in up.ticks():
        at = up.at(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.title)}</text>')
    parts.append(
        f'<text transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y.title)}</text>'
    )
    for place, each in enumerate(series):
        parts += _drawn(place, each, across, up)
    parts += _legend(series)
    return "\n".join([*parts, "</svg>"])


def _drawn(place: int, series: Series, across: _Scale, up: _Scale) -> list[str]:
    spots = [(across.at(x), up.at(y)) for x, y in series.points]
    parts = []
    if series.line:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline class="s{place}" points="{line}"/>')
    if not series.line or len(spots) <= 60:
        for number_, (x, y) in enumerate(spots):
            label = f"<title>{escape(series.labels[number_])}</title>" if series.labels else ""
            parts.append(f'<circle class="s{place}" cx="{x:.1f}" cy="{y:.1f}" r="3">{label}</circle>')
    return parts


def _legend(series: Sequence[Series]) -> list[str]:
    """The names of the series, side by side above the picture."""
    parts, at = [], float(_LEFT)
    for place, each in enumerate(series):
        parts.append(f'<rect class="s{place}" x="{at:.0f}" y="12" width="14" height="4"/>')
        parts.append(f'<text x="{at + 20:.0f}" y="18">{escape(each.name)}</text>')
        at += 44 + _CHARACTER * len(each.name)
    return parts


def page(title: str, sections: Sequence[tuple[str, str]], introduction: str = "") -> str:
    """A whole page of sections, each a heading and HTML; the introduction is HTML, too."""
    body = "\n".join(
        f"<section><h2>{escape(heading)}</h2>\n{content}</section>" for heading, content in sections
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1c2330; --paper: #fff; --rule: #d9dee7;
  --s0: #1f6feb; --s1: #c2410c; --s2: #15803d; --s3: #7e22ce; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6e9ef; --paper: #12161d; --rule: #303845;
  --s0: #79b8ff; --s1: #ffab70; --s2: #7ee787; --s3: #d2a8ff; }} }}
body {{ background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }}
th, td {{ border-bottom: 1px solid var(--rule); padding: .3rem .7rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
pre {{ border: 1px solid var(--rule); padding: .7rem; overflow-x: auto; }}
{STYLE}
</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{introduction}
{body}
</main>
</body>
</html>
"""


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in headings)
    lines = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n" + "\n".join(lines) + "</tbody></table>"
