"""Whatever happens to an update in whatever order, on a clock that goes straight to what is due next.

Controller, endpoints, fleets and slots are the real ones; instances are not.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cluster.virtual_loop import VirtualLoop, run
from halimede.hosting.control.records import SETTLED, Status
from halimede.hosting.control.settings import ControlSettings, Dependencies
from halimede.hosting.errors import ApiError
from halimede.hosting.metering.alarms.states import AlarmState
from halimede.hosting.routing.selection import choose_variant
from halimede.hosting.substrates.base import InstanceRequest, ModelArchive, OnExit, RunningInstance
from tests.hosting.control.deployments.test_policies import blue_green, instances, percent, rolling
from tests.hosting.control.fakes import FakeInstance, FakeSubstrate, World, variant
from tests.support.memory import directory_in_memory

SETTINGS = ControlSettings(
    ping_s=1.0, failed_pings=2, drain_s=3.0, grace_s=1.0, backoff_s=0.5, longest_backoff_s=2.0, look_s=0.25
)  # fmt: skip
ALARM = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]}}
TIMEOUT = {"MaximumExecutionTimeoutInSeconds": 600}
POLICIES: list[dict[str, Any]] = [
    {},
    {**blue_green("ALL_AT_ONCE", 5, {"TerminationWaitInSeconds": 3}), **ALARM},
    {**blue_green("CANARY", 4, {"TerminationWaitInSeconds": 2, **TIMEOUT}, CanarySize=percent(10)), **ALARM},
    {**blue_green("LINEAR", 2, TIMEOUT, LinearStepSize=percent(30)), **ALARM},
    {**rolling(percent(50), 3, **TIMEOUT), **ALARM},
    {**rolling(percent(34), 2, RollbackMaximumBatchSize=percent(34)), **ALARM},
    rolling(instances(1), 1, RollbackMaximumBatchSize=instances(1)),
]
GENTLE = ["nothing", "alarm", "flap", "alarm ends", "kill new", "update", "slow", "broken", "dying", "mended"]
ROUGH = ["kill old", "restart", "kill host", "no room", "room", "delete"]
STEPS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.3, 1.0, 4.0]), st.sampled_from(GENTLE + ROUGH)), max_size=12
)


class Program(FakeInstance):
    """An instance that is nothing but an answer to pings."""

    def __init__(self, request: InstanceRequest, port: int, ready_at: float) -> None:
        self.ping = 200
        self.running = RunningInstance(request, "127.0.0.1", port)
        self.ready_at = ready_at

    def close(self) -> None:
        """It has no connections."""


class Programs(FakeSubstrate):
    """Instances that take no time but the loop's.

    Attributes:
        start_s: how long instances take until they answer.
        is_broken: new instances never answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.start_s = 0.5
        self.is_broken = False
        self._ports = 0

    async def start(self, on_exit: OnExit) -> list[RunningInstance]:
        return list(await super().start(on_exit))

    async def launch(
        self,
        request: InstanceRequest,
        variables: Mapping[str, str] | None = None,
        archives: Mapping[str, ModelArchive] | None = None,
    ) -> RunningInstance:
        await asyncio.sleep(0.05)  # sleeps: in virtual time
        if self.refusal is not None:
            raise self.refusal
        self._ports += 1
        loop = asyncio.get_running_loop()
        instance = Program(request, self._ports, loop.time() + self.start_s)
        instance.ping = 503 if self.is_broken else 200
        self.instances[request.id] = instance
        if self.die > 0:
            self.die -= 1
            loop.call_later(0.2, self.kill, request.id, "it ended with status 3")
        return instance.running

    async def answer_ping(self, host: str, port: int, timeout_s: float) -> str:
        await asyncio.sleep(0.001)  # sleeps: in virtual time
        now = asyncio.get_running_loop().time()
        for instance in self.instances.values():
            assert isinstance(instance, Program)
            if instance.running.port == port:
                return "" if instance.ping == 200 and now >= instance.ready_at else "it is not ready"
        return "it accepts no connection"


class VirtualWorld(World):
    """A controller on a virtual loop."""

    substrate: Programs

    def __init__(self, directory: Path, loop: VirtualLoop) -> None:
        super().__init__(directory, SETTINGS)
        self.substrate = Programs()
        self.loop = loop
        self.gentle = True

    def dependencies(self) -> Dependencies:
        return replace(super().dependencies(), ping=self.substrate.answer_ping, now=self.loop.wall_time)

    async def kill(self) -> None:
        """The host ends at once, and another one begins with what was on disk."""
        kept = self.directory / "kept"
        kept.mkdir()
        for path in self.directory.glob("state.db*"):
            shutil.copy(path, kept)
        await self.controller.stop(leave=True)
        for path in kept.iterdir():
            shutil.copy(path, self.directory / path.name)
        for path in self.directory.glob("state.db*"):
            if not (kept / path.name).exists():
                path.unlink()
        shutil.rmtree(kept)
        await self.start()

    # what happens

    async def do(self, event: str) -> None:
        if event in ROUGH:
            self.gentle = False
        if event in ("restart", "kill host"):
            await (self.restart() if event == "restart" else self.kill())
        elif event in ("alarm", "flap", "alarm ends"):
            alarm = self.put_alarm("errors", AlarmState.OK if event == "alarm ends" else AlarmState.ALARM)
            if event == "flap":
                alarm.state = AlarmState.OK
        elif event in ("kill new", "kill old", "update", "delete"):
            if self.endpoints:
                await self._do_to_endpoint(event)
        else:
            self._do_to_instances(event)

    async def _do_to_endpoint(self, event: str) -> None:
        record = self.endpoint().record
        if event == "update":
            self.put_alarm("errors")
            changeable = record.status in (Status.IN_SERVICE, Status.UPDATE_ROLLBACK_FAILED)
            with suppress(ApiError) if not changeable else nullcontext():
                await self.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c3")
        elif event == "delete":
            if record.status is not Status.DELETING:
                await self.call("DeleteEndpoint", EndpointName="e")
        elif (fleet := record.pending if event == "kill new" else record.current) is not None:
            self._kill(fleet.id)

    def _do_to_instances(self, event: str) -> None:
        substrate = self.substrate
        if event == "no room":
            substrate.refusal = ApiError("ResourceLimitExceeded", "no room for another instance")
        elif event == "room":
            substrate.refusal = None
        elif event == "slow":
            substrate.start_s = 30.0
        elif event == "broken":
            substrate.is_broken = True
        elif event == "dying":
            substrate.die = 2
        elif event == "mended":
            self.mend()

    def _kill(self, fleet: str) -> None:
        of = [name for name, each in self.substrate.instances.items() if each.running.request.fleet == fleet]
        if of:
            self.substrate.kill(of[0])

    def mend(self) -> None:
        """Nothing stands in the way any more."""
        self.substrate.refusal, self.substrate.is_broken = None, False
        self.substrate.start_s, self.substrate.die = 0.5, 0
        for instance in self.substrate.instances.values():
            assert isinstance(instance, Program)
            instance.ping, instance.ready_at = 200, 0.0

    # what always holds

    def check(self) -> None:
        route = self.route()
        if route is None:
            assert not self.gentle or self.now() == "Creating"
            return
        shares = [fleet.share for fleet in route.beside]
        assert all(0 <= share <= 1 for share in shares)
        assert sum(shares) <= 1 + 1e-9
        if self.gentle:  # some instance answers each request
            assert choose_variant(route, None).is_able
            assert choose_variant(route, "A").is_able

    async def pass_time(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            self.check()
            await asyncio.sleep(0.1)  # sleeps: in virtual time

    async def settle(self) -> None:
        """Have everything come to its end."""
        self.mend()
        self.put_alarm("errors")
        for _ in range(4000):
            if not self.endpoints:
                break
            endpoint = self.endpoint()
            if endpoint.record.status in SETTLED and not endpoint.fleets._leaving:  # noqa: SLF001 - the last that is done
                break
            await self.pass_time(0.5)
        else:
            raise AssertionError(f"it does not settle: {self.endpoint().record}")
        await self.pass_time(10)  # whatever was replaced is there again

    def check_settled(self) -> None:
        running = [each.running.request.fleet for each in self.substrate.instances.values()]
        if not self.endpoints:
            assert not running
            return
        record, route = self.endpoint().record, self.route()
        assert route is not None
        assert record.status in (Status.IN_SERVICE, Status.UPDATE_ROLLBACK_FAILED)
        assert record.current is not None
        assert (record.pending, record.progress) == (None, None)
        assert bool(record.mixed) == (record.status is Status.UPDATE_ROLLBACK_FAILED)
        assert len(route.beside) == bool(record.mixed)
        wanted = {fleet.id: sum(fleet.counts.values()) for fleet in record.fleets}
        assert {fleet: running.count(fleet) for fleet in running} == wanted
        assert sum(len(each.targets) for each in route.every_variant()) == sum(wanted.values())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(POLICIES), st.integers(1, 4), st.integers(2, 4), STEPS)
def test_an_update_always_ends_with_one_fleet(
    policy: dict[str, Any], old: int, new: int, steps: list[tuple[float, str]]
) -> None:
    async def work(loop: VirtualLoop) -> None:
        with tempfile.TemporaryDirectory(dir=directory_in_memory()) as directory:
            world = VirtualWorld(Path(directory), loop)
            async with world:
                await world.create_model(ModelDataUrl="")
                await world.create_config("c", variant(count=old))
                await world.create_config("c2", variant(count=new))
                await world.create_config("c3", variant(count=2))
                await world.create_endpoint()
                await world.settle()
                world.put_alarm("errors")
                further = {"DeploymentConfig": policy} if policy else {}
                await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", **further)
                for seconds, event in steps:
                    await world.pass_time(seconds)
                    await world.do(event)
                await world.settle()
                world.check_settled()

    run(work)
