from collections.abc import Sequence

import pytest

from halimede.core.clock import VirtualClock
from halimede.core.errors import InvalidArgumentError
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.scheduling.rate_limits.pools import Pools, Resource
from halimede.engine.settings import ResourceLimit
from halimede.workers.host import WorkerName
from tests.engine.scheduling.rate_limits.declarations import needing

GLOBAL = Resource("G")
ON_0, ON_1 = Resource("R", 0), Resource("R", 1)


def limits(*entries: str) -> Sequence[ResourceLimit]:
    parts = (entry.split(":") for entry in entries)
    return [ResourceLimit(p[0], int(p[1]), int(p[2]) if p[2:] else None) for p in parts]


def test_a_pool_is_as_large_as_the_largest_declaration() -> None:
    pools = Pools([])
    pools.resize([{GLOBAL: 2, ON_0: 1}, {GLOBAL: 3}, {ON_1: 7}])
    assert [pools.size(each) for each in (GLOBAL, ON_0, ON_1)] == [3, 1, 7]


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (["R:4", "G:3"], {ON_0: 4, ON_1: 4, GLOBAL: 3}),
        (["R:3", "R:9:0", "G:9"], {ON_0: 9, ON_1: 3, GLOBAL: 9}),
        (["R:9", "R:3:0", "G:2"], {ON_0: 9, ON_1: 9, GLOBAL: 2}),
        (["R:2:0", "R:1:1", "G:2:7"], {ON_0: 2, ON_1: 1, GLOBAL: 2}),
        (["R:2", "G:9", "G:5:0", "G:2"], {ON_0: 2, ON_1: 2, GLOBAL: 5}),
    ],
)
def test_flags_say_how_large_pools_are(given: list[str], sizes: dict[Resource, int]) -> None:
    pools = Pools(limits(*given))
    pools.resize([{ON_0: 1, ON_1: 1, GLOBAL: 2}])
    assert {each: pools.size(each) for each in sizes} == sizes


@pytest.mark.parametrize(
    ("given", "name", "limit", "needed"),
    [
        (["R:4"], "G", 0, 3),
        (["R:3", "G:3"], "R", 3, 4),
        (["R:4:1", "G:3"], "R", 0, 4),
        (["R:4", "R:2", "G:3"], "R", 2, 4),
        (["R:4", "G:2:0"], "G", 2, 3),
    ],
)
def test_what_exceeds_the_flags_is_refused(given: list[str], name: str, limit: int, needed: int) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        Pools(limits(*given)).resize([{ON_0: 4, GLOBAL: 3}])
    assert error.value.message == (
        f'Resource count for "{name}" is limited to {limit} which will prevent scheduling of one or more model '
        f"instances, the minimum required count is {needed}"
    )


def test_a_resource_is_global_or_of_devices() -> None:
    with pytest.raises(InvalidArgumentError) as error:
        Pools([]).resize([{Resource("R"): 2}, {ON_1: 4}])
    assert error.value.message == (
        'Resource "R" is present as both global and device-specific resource in the model configuration.'
    )


def test_an_instance_that_is_refused_leaves_the_pools_as_they_were() -> None:
    limiter = RateLimiter(limits("R:2"), VirtualClock().call_soon)
    name = WorkerName("m", 1, "i")
    assert limiter.add("first", name, needing("R:2"), 0)
    with pytest.raises(InvalidArgumentError):
        limiter.add("second", name, needing("R:3"), 0)
    with pytest.raises(InvalidArgumentError):
        limiter.check(needing("R:2:global"), 0)
    assert limiter.acquire("first", print)


def test_of_a_resource_that_is_declared_twice_the_last_counts() -> None:
    limiter = RateLimiter(limits("R:2"), VirtualClock().call_soon)
    assert limiter.add("first", WorkerName("m", 1, "i"), needing("R:9", "R:2"), 0)


def test_an_instance_that_needs_nothing_always_runs() -> None:
    limiter = RateLimiter([], VirtualClock().call_soon)
    assert not limiter.add("none", WorkerName("m", 1, "i"), needing(priority=3), 0)
    assert not limiter.add("zero", WorkerName("m", 1, "j"), needing("R:0"), 0)
    assert limiter.acquire("none", print)
    assert limiter.acquire("zero", print)
    assert limiter.acquire("zero", print)
