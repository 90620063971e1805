"""Which models are asked for, one after the other: traces on which keeping models is judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Trace = NDArray[np.int64]
"""[requests]: numbers of models."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a trace is.

    Attributes:
        models: how many there are.
        requests: how many there are.
        room: how many models the cluster holds.
    """

    models: int
    requests: int
    room: int


def zipf(scale: Scale, exponent: float, draw: np.random.Generator) -> Trace:
    """Popularity as 1/rank**exponent, which never changes."""
    weights = 1 / np.arange(1, scale.models + 1) ** exponent
    return np.searchsorted(np.cumsum(weights / weights.sum()), draw.random(scale.requests)).astype(np.int64)


def drifting(scale: Scale, draw: np.random.Generator) -> Trace:
    """Zipf, but every hundredth of the trace two of a hundred models change places with others."""
    ranks = zipf(scale, 0.9, draw)
    who = draw.permutation(scale.models)
    pieces = []
    for piece in np.array_split(ranks, 100):
        pieces.append(who[piece])
        moved = draw.choice(scale.models, scale.models // 50, replace=False)
        who[moved] = who[draw.permutation(moved)]
    return np.concatenate(pieces)


def alternating(scale: Scale, draw: np.random.Generator) -> Trace:
    """Two populations that take turns, six times, as two continents do."""
    ranks = zipf(scale, 0.9, draw)
    first, second = draw.permutation(scale.models), draw.permutation(scale.models)
    turn = np.arange(scale.requests) * 6 // scale.requests
    return np.where(turn % 2 == 0, first[ranks], second[ranks])


def scanned(scale: Scale, draw: np.random.Generator) -> Trace:
    """Zipf, and five times a job asks for each of a tenth of the models once, with every second request."""
    trace = zipf(scale, 0.9, draw)
    length = min(scale.models // 10, scale.requests // 20)
    for number in range(5):
        begin = scale.requests * (2 * number + 1) // 10
        trace[begin : begin + 2 * length : 2] = scale.models + number * length + np.arange(length)
    return trace


def bursts(scale: Scale, draw: np.random.Generator) -> Trace:
    """Models that are asked for 20 times within a short time, and then hardly ever again."""
    count = scale.requests // 20
    begins = np.sort(draw.random(count)) * scale.requests
    times = begins[:, None] + draw.random((count, 20)) * 2.5 * scale.room
    models = np.repeat(draw.integers(0, 3 * scale.models, count), 20)
    return models[np.argsort(times.ravel())].astype(np.int64)


def loops(scale: Scale, draw: np.random.Generator) -> Trace:
    """Every second request goes around in a circle of a third more models than there is room for; Zipf between."""
    trace = scale.models + zipf(scale, 0.9, draw)
    circle = np.arange(scale.requests) // 2 % (scale.room * 4 // 3)
    return np.where(np.arange(scale.requests) % 2 == 0, circle, trace)


TRACES: Mapping[str, Callable[[Scale, np.random.Generator], Trace]] = {
    "Zipf 0.7": lambda scale, draw: zipf(scale, 0.7, draw),
    "Zipf 0.9": lambda scale, draw: zipf(scale, 0.9, draw),
    "Zipf 1.1": lambda scale, draw: zipf(scale, 1.1, draw),
    "drifting": drifting,
    "alternating": alternating,
    "scanned": scanned,
    "bursts": bursts,
    "loops": loops,
}
"""Name → what makes it."""

STATIC = ("Zipf 0.7", "Zipf 0.9", "Zipf 1.1")
"""Those of which popularity never changes."""
