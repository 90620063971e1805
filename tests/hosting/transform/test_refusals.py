"""Jobs whose instances accept no connection, which it takes a while to notice."""

import json

from tests.hosting.transform.fakes import IN, World, in_world

NOTICED_S = 11.0
"""So long it takes until an instance whose machine is gone is known to be gone."""


@in_world
async def test_an_instance_that_refuses_is_not_preferred_as_it_has_the_fewest_requests(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n" * 40
    await world.create(InstanceCount=2, MaxConcurrentTransforms=2)
    await world.until(lambda: len(world.targets) == 2)
    gone = next(iter(world.targets))
    world.refusing.add(gone)
    world.loop.call_later(NOTICED_S, lambda: world.targets[gone].kill(gone))
    described = await world.settled()
    assert described["TransformJobStatus"] == "Completed", described
    assert len(world.objects.outputs["a.out"]) == 40 * 3
    # both of its places once a second
    assert len(world.payloads) <= 40 + 4 * NOTICED_S


@in_world
async def test_the_only_instance_that_refuses_is_waited_for_until_another_takes_its_place(
    world: World,
) -> None:
    world.objects.objects |= {f"{IN}/{name}": b"1\n" * 20 for name in "abcdefghijklmn"}
    await world.create()
    await world.until(lambda: world.payloads)
    gone = next(iter(world.targets))
    world.refusing.add(gone)
    world.loop.call_later(NOTICED_S, lambda: world.targets[gone].kill(gone))
    described = await world.settled()
    assert described["TransformJobStatus"] == "Completed", described


@in_world
async def test_a_job_fails_with_the_reason_if_its_only_instance_refuses_all_the_time(world: World) -> None:
    world.objects.objects[f"{IN}/a"] = b"1\n" * 10
    await world.create()
    await world.until(lambda: world.payloads)
    world.refusing |= world.targets.keys()
    described = await world.settled()
    assert described["TransformJobStatus"] == "Failed"
    assert (
        "the model gave no answer: it accepts no connection (Connection refused)"
        in described["FailureReason"]
    )
    last = json.loads(next(line for line in reversed(world.told) if line.startswith("{")))
    assert last["failed"] == 1
