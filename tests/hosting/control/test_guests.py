"""Others than endpoints that have fleets find their instances again after a restart, and are told of their ends."""

from collections.abc import Collection, Mapping
from pathlib import Path

from halimede.hosting.control.guests import Guest
from halimede.hosting.identity import Scope
from halimede.hosting.substrates.base import InstanceRequest, RunningInstance
from tests.hosting.control.fakes import CALLER, MACHINE, World, on_loop
from tests.support.waiting import wait_until_async

ARN = "arn:aws:sagemaker:us-east-1:000000000000:transform-job/j"


class FakeGuest:
    """Has the fleet ``f-guest``."""

    def __init__(self) -> None:
        self.adopted: list[str] = []
        self.asked: list[str] = []
        self.told: list[str] = []

    def fleets(self) -> Collection[str]:
        return ["f-guest"]

    def adopt(self, instances: Mapping[str, RunningInstance]) -> None:
        self.adopted += [name for name, each in instances.items() if each.request.fleet == "f-guest"]

    def ended(self, instance_id: str, reason: str) -> bool:
        self.asked.append(instance_id)
        if instance_id in self.adopted:
            self.told.append(f"{instance_id}: {reason}")
        return instance_id in self.adopted

    async def has_made(self, arn: str, scope: Scope) -> bool:
        return (arn, scope) == (ARN, CALLER.scope)


_: type[Guest] = FakeGuest


def request(name: str, fleet: str) -> InstanceRequest:
    return InstanceRequest(name, *CALLER.scope, "x", "j", fleet, "image", {}, None, False, MACHINE)


@on_loop
async def test_instances_of_a_guest_are_its_own(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.serve()
        await world.controller.stop(leave=True)
        for name, fleet in (("i-guest", "f-guest"), ("i-strange", "f-strange")):
            await world.substrate.launch(request(name, fleet))
            (tmp_path / "fleets" / fleet).mkdir(parents=True, exist_ok=True)
        guest = FakeGuest()
        world.guest = guest
        await world.start()
        assert guest.adopted == ["i-guest"]
        assert "i-strange" not in world.substrate.instances
        assert sorted(path.name for path in (tmp_path / "fleets").iterdir() if "f-s" in path.name) == []
        assert (tmp_path / "fleets" / "f-guest").is_dir()
        assert await world.status() == "InService"

        world.substrate.kill("i-guest", "it was killed")
        assert guest.told == ["i-guest: it was killed"]
        [instance] = world.substrate.of("A")
        world.substrate.kill(instance)
        await wait_until_async(lambda: bool(world.targets()))
        assert guest.asked == ["i-guest"], "it is not asked about instances of endpoints"


@on_loop
async def test_what_a_guest_has_made_has_tags(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        assert "Could not find resource" in await world.refused("ListTags", ResourceArn=ARN)
        world.controller.attach(FakeGuest())
        await world.controller.put_tags(ARN, {"team": "x"})
        await world.call("AddTags", ResourceArn=ARN, Tags=[{"Key": "stage", "Value": "y"}])
        tags = (await world.call("ListTags", ResourceArn=ARN))["Tags"]
        assert tags == [{"Key": "stage", "Value": "y"}, {"Key": "team", "Value": "x"}]
