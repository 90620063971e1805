"""What caches of models would do that know no instances, loads or time: one cache for the whole cluster."""

import heapq
from collections import OrderedDict
from collections.abc import Sequence


def lru(trace: Sequence[int], room: int) -> int:
    """Hits if the least recently used model goes."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for model in trace:
        if model in held:
            hits += 1
            held.move_to_end(model)
            continue
        if len(held) == room:
            held.popitem(last=False)
        held[model] = None
    return hits


def perfect_lfu(trace: Sequence[int], room: int) -> int:
    """Hits if the model goes that was asked for least often, whenever; none is ever forgotten."""
    counts: dict[int, int] = {}
    held: dict[int, tuple[int, int]] = {}
    heap: list[tuple[tuple[int, int], int]] = []
    hits = 0
    for number, model in enumerate(trace):
        counts[model] = counts.get(model, 0) + 1
        if model in held:
            hits += 1
        elif len(held) == room:
            _pop(heap, held)
        held[model] = (counts[model], number)
        heapq.heappush(heap, (held[model], model))
    return hits


def belady(trace: Sequence[int], room: int) -> int:
    """Hits if the model goes that is asked for again last: there cannot be more."""
    following = _following(trace)
    held: dict[int, tuple[int, int]] = {}
    heap: list[tuple[tuple[int, int], int]] = []
    hits = 0
    for number, model in enumerate(trace):
        if model in held:
            hits += 1
        elif len(held) == room:
            _pop(heap, held)
        held[model] = (-following[number], 0)
        heapq.heappush(heap, (held[model], model))
    return hits


def _pop(heap: list[tuple[tuple[int, int], int]], held: dict[int, tuple[int, int]]) -> None:
    """Remove the model of the smallest key; what is no more held so is skipped."""
    while True:
        key, model = heapq.heappop(heap)
        if held.get(model) == key:
            del held[model]
            return


def _following(trace: Sequence[int]) -> list[int]:
    """For each request, when its model is asked for again; later than all of them if it is not."""
    following = [0] * len(trace)
    seen: dict[int, int] = {}
    for number in range(len(trace) - 1, -1, -1):
        following[number] = seen.get(trace[number], len(trace) + number)
        seen[trace[number]] = number
    return following
