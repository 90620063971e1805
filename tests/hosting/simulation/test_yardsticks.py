"""The caches that the host's residency is compared with."""

import random
from itertools import product

from benchmarks.cluster.yardsticks import belady, lru, perfect_lfu


def most_hits(trace: list[int], room: int) -> int:
    """The most hits that any choice of victims gives, by trying all of them."""
    held = {frozenset[int](): 0}
    for model in trace:
        following: dict[frozenset[int], int] = {}
        for there, hits in held.items():
            if model in there:
                choices = [(there, hits + 1)]
            elif len(there) < room:
                choices = [(there | {model}, hits)]
            else:
                choices = [((there - {victim}) | {model}, hits) for victim in there]
            for choice, count in choices:
                following[choice] = max(count, following.get(choice, 0))
        held = following
    return max(held.values())


def test_least_recently_used() -> None:
    assert lru([1, 2, 3, 1, 2, 3], 2) == 0
    assert lru([1, 2, 1, 3, 1, 2], 2) == 2


def test_least_frequently_used_remembers_what_is_gone() -> None:
    # 1 was asked for three times: neither 3 nor 4 drives it out
    assert perfect_lfu([1, 1, 1, 2, 3, 4, 1], 2) == 3
    # 2 comes back with its count, and drives out 3, then 1
    assert perfect_lfu([1, 1, 2, 3, 2, 2, 3, 2], 2) == 3


def test_nothing_is_better_than_belady() -> None:
    draw = random.Random(0)
    for length, room in product((8, 14), (2, 3)):
        for _ in range(20):
            trace = [draw.randrange(6) for _ in range(length)]
            best = belady(trace, room)
            assert best == most_hits(trace, room)
            assert lru(trace, room) <= best
            assert perfect_lfu(trace, room) <= best
