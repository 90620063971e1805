"""Pictures of distributions, as SVG: the baseline's beside what is there now."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from halimede.core.tensors import Array
from halimede.hosting.monitoring.features import Feature, InferredType, Numbers

_WIDTH, _HEIGHT = 560, 150
_TOP, _BOTTOM = 6, 24
_BINS = 30
_TAIL = 0.002
"""What lies beyond this share of both ends is drawn into the last bins."""

_SMALLEST, _ALIKE = 1e-290, 1e-9
"""Smaller numbers are zeros, and closer ones are one, as far as an eye can see."""

_MOST_TEXTS = 10
_LABEL_CHARACTERS = 22
_ROW = 30
_LABELS, _BARS = 150, 290


def chart(then: Feature | None, now: Feature | None) -> str:
    """A picture of a column then and now; "" if there is nothing to be seen."""
    features = [feature for feature in (then, now) if feature is not None]
    if any(feature.type is InferredType.STRING for feature in features):
        return _texts([_counts(then), _counts(now)])
    pair = [None if feature is None else feature.numbers for feature in (then, now)]
    known = [numbers for numbers in pair if numbers is not None]
    if not known:
        return ""
    is_whole = all(feature.type is InferredType.INTEGRAL for feature in features)
    if is_whole and all(numbers.is_sketch for numbers in known):
        values = np.unique(np.concatenate([numbers.points for numbers in known]))
        if len(values) <= _MOST_TEXTS:
            return _bars([(short(value), [_share(numbers, value) for numbers in pair]) for value in values])
    edges = _edges(known, is_whole=is_whole)
    return _steps([None if numbers is None else _shares(numbers, edges) for numbers in pair], edges)


def short(value: float) -> str:
    """A number as it is shown."""
    if not math.isfinite(value):
        return "–"
    if value == round(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:.4g}"


# numbers


def _edges(numbers: Sequence[Numbers], *, is_whole: bool) -> Array:
    ends = [_quantiles(each) for each in numbers]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if is_whole and high - low < _BINS:
        return np.arange(math.floor(low), math.floor(high) + 2) - 0.5
    size = max(abs(low), abs(high))
    if size < _SMALLEST:
        low, high = -1.0, 1.0
    elif high - low < size * _ALIKE:
        spread = size * 0.1
        low, high = low - spread, high + spread
    return np.linspace(low, high, _BINS + 1)


def _quantiles(numbers: Numbers) -> tuple[float, float]:
    """What all but the rarest of the numbers lie between."""
    ranks = np.cumsum(numbers.weights) / numbers.count
    low = numbers.points[np.searchsorted(ranks, _TAIL)]
    last = min(int(np.searchsorted(ranks, 1 - _TAIL)), len(numbers.points) - 1)
    high = numbers.points[last]
    if not numbers.is_sketch and math.isfinite(numbers.least):
        low = numbers.least
    return float(low), float(high)


def _share(numbers: Numbers | None, value: float) -> float | None:
    """Which share of the numbers is one value."""
    if numbers is None:
        return None
    return float(numbers.weights[numbers.points == value].sum() / numbers.count)


def _shares(numbers: Numbers, edges: Array) -> list[float]:
    """Which share of the numbers is in each bin; the first and the last one have what lies beyond."""
    if numbers.is_sketch:
        bins = np.clip(np.searchsorted(edges, numbers.points, side="right") - 1, 0, len(edges) - 2)
        counts = np.bincount(bins, numbers.weights, len(edges) - 1)
    else:
        begin = numbers.least if math.isfinite(numbers.least) else numbers.points[0]
        sums = np.concatenate([[0.0], np.cumsum(numbers.weights)])
        below = np.interp(edges, np.concatenate([[begin], numbers.points]), sums)
        below[0], below[-1] = 0.0, sums[-1]
        counts = np.diff(below)
    shares: list[float] = (counts / counts.sum()).tolist()
    return shares


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two others, four or five of them."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    margin = (high - low) * 0.03
    first, last = math.ceil((low + margin) / step), math.floor((high - margin) / step)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _steps(pair: Sequence[list[float] | None], edges: Array) -> str:
    most = max(max(shares) for shares in pair if shares is not None) or 1.0
    ground, width = _HEIGHT - _BOTTOM, _WIDTH / (len(edges) - 1)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Distribution">']
    for name, shares in zip(("then", "now"), pair, strict=True):
        if shares is None:
            continue
        path = [f"M0 {ground}"]
        for index, share in enumerate(shares):
            top = ground - share / most * (ground - _TOP)
            path.append(f"L{index * width:.1f} {top:.1f}L{(index + 1) * width:.1f} {top:.1f}")
        path.append(f"L{_WIDTH} {ground}Z")
        parts.append(f'<path class="{name}" d="{"".join(path)}"/>')
    parts.append(f'<line class="axis" x1="0" y1="{ground}" x2="{_WIDTH}" y2="{ground}"/>')
    span = edges[-1] - edges[0]
    for tick in _ticks(float(edges[0]), float(edges[-1])):
        position = (tick - edges[0]) / span * _WIDTH
        parts.append(
            f'<line class="axis" x1="{position:.1f}" y1="{ground}" x2="{position:.1f}" y2="{ground + 4}"/>'
            f'<text x="{position:.0f}" y="{_HEIGHT - 3}" text-anchor="middle">{short(tick)}</text>'
        )
    for index in range(len(edges) - 1):
        said = [
            f"{name} {share[index] * 100:.1f} %"
            for name, share in zip(("baseline", "now"), pair, strict=True)
            if share is not None
        ]
        parts.append(
            f'<rect class="hover" x="{index * width:.1f}" y="0" width="{width:.1f}" height="{ground}"><title>'
            f"{short(edges[index])} to {short(edges[index + 1])}: {', '.join(said)}</title></rect>"
        )
    return "".join([*parts, "</svg>"])


# texts


def _counts(feature: Feature | None) -> dict[str, float] | None:
    """Text → its share of those that are there."""
    if feature is None or not feature.present:
        return None
    return {text: count / feature.present for text, count in feature.categories.items()}


def _texts(pair: Sequence[dict[str, float] | None]) -> str:
    known = [shares for shares in pair if shares]
    if not known:
        return ""
    names = sorted(
        {name for shares in known for name in shares},
        key=lambda name: (-max(shares.get(name, 0.0) for shares in known), name),
    )
    rows: list[tuple[str, list[float | None]]] = [
        (name, [None if shares is None else shares.get(name, 0.0) for shares in pair])
        for name in names[:_MOST_TEXTS]
    ]
    if len(names) > _MOST_TEXTS:
        others = [
            None
            if shares is None
            else max(0.0, 1 - sum(shares.get(name, 0.0) for name in names[:_MOST_TEXTS]))
            for shares in pair
        ]
        rows.append((f"{len(names) - _MOST_TEXTS} others", others))
    return _bars(rows)


def _bars(rows: Sequence[tuple[str, Sequence[float | None]]]) -> str:
    """Two bars for each value: the share that it had, and the one that it has."""
    most = max(share for _, shares in rows for share in shares if share is not None) or 1.0
    parts = [f'<svg viewBox="0 0 {_WIDTH} {len(rows) * _ROW}" role="img" aria-label="Shares of values">']
    for index, (name, shares) in enumerate(rows):
        top = index * _ROW
        label = name if len(name) <= _LABEL_CHARACTERS else f"{name[:_LABEL_CHARACTERS]}…"
        parts.append(
            f'<text x="{_LABELS - 10}" y="{top + 19}" text-anchor="end">{escape(label) or "(empty)"}'
            f"<title>{escape(name)}</title></text>"
        )
        longest = 0.0
        for line, (kind, share) in enumerate(zip(("then", "now"), shares, strict=True)):
            if share is not None:
                length = share / most * _BARS
                longest = max(longest, length)
                parts.append(
                    f'<rect class="{kind}" x="{_LABELS}" y="{top + 4 + line * 11}" width="{length:.1f}" '
                    f'height="10" rx="1"/>'
                )
        said = " → ".join(f"{share * 100:.1f}" for share in shares if share is not None)
        parts.append(f'<text x="{_LABELS + longest + 8:.1f}" y="{top + 19}">{said} %</text>')
    return "".join([*parts, "</svg>"])
