"""Random models that call each other and need resources of a limiter, in random interleavings.

The small model of it: whatever they call, all executions end, and nothing is in use when they have. An execution that
waits for a call uses nothing; of each resource, those that compute use no more than there is.
"""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.calls.limited_world import World
from tests.engine.scheduling.rate_limits.declarations import needing

NAMES = "abcdef"
RESOURCES = "RST"


def random_world(random: Random, *, chains: bool = False) -> World:
    """Models of which each calls only such as come after it, so that none waits for itself.

    In chains, each has one instance, and makes one call at a time, of the next model; all share one resource.
    """
    world = World()
    resources = RESOURCES[: 1 if chains else None]
    kinds = {name: random.choice(["", ":global"]) for name in resources}
    for index, name in enumerate(NAMES):
        needs = random.sample(resources, min(random.choice([0, 1, 1, 1, 2]), len(resources)))
        declared = [f"{each}:{random.randint(1, 3)}{kinds[each]}" for each in needs]
        later = NAMES[index + 1 :][: 1 if chains else None]
        if chains and index == 2:
            later = ""
        groups = random.choice([0, 1, 1, 2]) if later else 0
        width = [1] if chains else [1, 1, 2, 3]
        script = [[random.choice(later) for _ in range(random.choice(width))] for _ in range(groups)]
        instances = 1 if chains else random.choice([1, 1, 2, 3])
        limits = needing(*declared, priority=random.randint(0, 3))
        world.model(name, limits, script, instances, random.choice([0, 4]))
    return world


def check_use(world: World) -> None:
    """Whether those that compute use no more than there is."""
    used: Counter[object] = Counter()
    for claim in world.claims():
        if claim.runner.computes:
            used.update(claim.needs)
    for resource, count in used.items():
        assert count <= world.limiter._pools.size(resource)  # type: ignore[arg-type]  # noqa: SLF001 - how much there is


def run(
    world: World,
    random: Random,
    requests: int,
    *,
    crashes: int = 0,
    cancellations: int = 0,
    chains: bool = False,
) -> None:
    """Send so many requests, and let executions go on, one after the other, until all are answered."""
    sent = []
    for _ in range(requests):
        sent.append(world.send(random.choice(NAMES)))
        if random.random() < 0.3:
            world.clock.run()
            world.check_accounts()
    steps = 0
    while len(world.answered) < requests or any(worker.batch for worker in world.workers):
        world.clock.run()
        world.check_accounts()
        if chains:
            check_use(world)
        computing = [worker for worker in world.workers if worker.computes]
        assert computing or len(world.answered) == requests, "everything waits for something"
        if computing:
            random.choice(computing).go_on()
        if random.random() < crashes / 20:
            random.choice(world.workers).crash()
        if random.random() < cancellations / 20:
            random.choice(sent).cancel()
        steps += 1
        assert steps < 20_000


def check_idle(world: World) -> None:
    """Whether everything was given back, and may be had again."""
    world.clock.run()
    world.check_accounts()
    assert world.limiter._pools.used == {}  # noqa: SLF001 - what is left is seen only inside
    assert not world.limiter.waiting
    assert not world.loans._calls  # noqa: SLF001 - what is left is seen only inside


@given(st.integers(0, 2**32), st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_whatever_calls_whatever_all_are_answered(seed: int, requests: int) -> None:
    random = Random(seed)
    world = random_world(random)
    run(world, random, requests)
    assert all(world.answered.values())
    check_idle(world)


@given(st.integers(0, 2**32), st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_those_that_compute_never_use_more_than_there_is(seed: int, requests: int) -> None:
    random = Random(seed)
    world = random_world(random, chains=True)
    run(world, random, requests, chains=True)
    assert all(world.answered.values())
    check_idle(world)


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=50, deadline=None)
def test_crashes_and_cancellations_leave_nothing_behind(
    seed: int, requests: int, crashes: int, cancellations: int
) -> None:
    random = Random(seed)
    world = random_world(random)
    run(world, random, requests, crashes=crashes, cancellations=cancellations)
    check_idle(world)


@given(st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_models_that_leave_take_what_they_hold_with_them(seed: int) -> None:
    random = Random(seed)
    world = random_world(random)
    for _ in range(20):
        world.send(random.choice(NAMES))
    for name in random.sample(NAMES, 6):
        world.clock.run()
        computing = [worker for worker in world.workers if worker.computes]
        for worker in random.sample(computing, min(3, len(computing))):
            if worker.computes:
                worker.go_on()
        world.models[name].leave_limiter()
        assert all(count > 0 for count in world.limiter._pools.used.values())  # noqa: SLF001 - what is left is seen only inside
    assert world.limiter._pools.used == {}  # noqa: SLF001 - what is left is seen only inside
    assert not world.limiter.waiting
