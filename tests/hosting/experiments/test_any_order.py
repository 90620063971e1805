"""Experiments after anything in any order, with a host that ends or cannot write at any moment."""

# ruff: noqa: SLF001 - what is written down is watched, and fails

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.experiments.records import OVER, ExperimentRecord, Status
from tests.hosting.control.fakes import on_loop
from tests.hosting.experiments.fakes import CALLER, World, experiment, model_variant, moment, shadow_mode

MOVES = {
    Status.CREATING: {Status.CREATED, Status.STARTING, *OVER},
    Status.CREATED: {Status.STARTING, *OVER},
    Status.STARTING: {Status.RUNNING, Status.CANCELLED},
    Status.RUNNING: {Status.UPDATING, Status.STOPPING, *OVER},
    Status.UPDATING: {Status.RUNNING, Status.CANCELLED},
    Status.STOPPING: set(OVER),
    Status.COMPLETED: set(),
    Status.CANCELLED: set(),
}


REFUSALS = (
    "ValidationException",
    "ConflictException",
    "ResourceInUse",
    "ResourceNotFound",
    "InternalFailure",
)


class Chaos:
    """An experiment to which anything may happen."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.status: Status | None = None
        self.failing = 0.0
        self.follow()

    def follow(self) -> None:
        """Watch what is written, and let some of it fail."""
        state = self.world.experiments._state
        put = state._database.put

        async def sometimes(key: Any, document: Any) -> None:
            if self.random.random() < self.failing:
                raise ApiError("InternalFailure", "the disk is full", 500)
            await put(key, document)

        state._database.put = sometimes  # type: ignore[method-assign]

    async def attempt(self, operation: str, **request: Any) -> None:
        try:
            await self.world.call(f"{operation}InferenceExperiment", Name="x", **request)
        except ApiError as error:
            if error.code not in REFUSALS:
                raise

    # what may happen

    async def create(self) -> None:
        begin = self.random.choice([0, 0, 60, 3600])
        now = self.world.now - moment(0).timestamp()
        schedule = {"StartTime": moment(now + begin), "EndTime": moment(now + begin + 5000)}
        request = {key: value for key, value in experiment(Schedule=schedule).items() if key != "Name"}
        await self.attempt("Create", **request)

    async def start(self) -> None:
        await self.attempt("Start")

    async def stop(self) -> None:
        actions = self.random.choice(
            [
                {"B": "Remove"},
                {"A": "Remove", "B": "Promote"},
                {"A": "Retain", "B": "Retain"},
                {"A": "Remove"},
            ]
        )
        await self.attempt("Stop", ModelVariantActions=actions)

    async def update(self) -> None:
        further: dict[str, Any] = self.random.choice(
            [
                {"Description": "other"},
                {"ShadowModeConfig": shadow_mode(self.random.randrange(101))},
                {"ModelVariants": [model_variant("B", "n", self.random.randint(1, 3))]},
            ]
        )
        await self.attempt("Update", **further)

    async def delete(self) -> None:
        await self.attempt("Delete")

    async def tick(self) -> None:
        await self.world.tick(seconds=self.random.choice([1, 1, 1, 30, 600]))

    async def settle(self) -> None:
        self.world.endpoints.settle("no room" if self.random.random() < 0.2 else "")

    async def user(self) -> None:
        """Somebody else changes the endpoint."""
        found = self.world.endpoints.e
        if found.status == "InService":
            found.status, found.pending, found.reason = (
                "Updating",
                self.random.choice(["c", found.config_name]),
                "",
            )

    async def end(self) -> None:
        """The host ends, and is started again."""
        await self.world.restart()
        self.follow()

    # what must hold

    def record(self) -> ExperimentRecord | None:
        return self.world.experiments._state.find(CALLER.scope, "x")

    def check(self) -> None:
        record = self.record()
        now = None if record is None else record.status
        if record is not None:
            assert (record.deployment is not None) == (
                record.status in (Status.STARTING, Status.UPDATING, Status.STOPPING)
            )
            assert (record.completed > 0) == (record.status in OVER)
            assert (record.before is not None) == (record.status is Status.UPDATING)
        if self.status is not None and now is not None and now is not self.status:
            assert self._reaches(self.status, now), (self.status, now)
        self.status = now

    @staticmethod
    def _reaches(before: Status, now: Status) -> bool:
        """Whether a tick may have gone from one state to another: several steps are none."""
        return now in MOVES[before]


@pytest.mark.parametrize("seed", range(40))
def test_an_experiment_comes_to_its_end_and_takes_its_shadow_with_it(tmp_path: Path, seed: int) -> None:
    @on_loop
    async def test() -> None:
        async with World(tmp_path) as world:
            chaos = Chaos(world, seed)
            actions: list[tuple[Callable[[], Awaitable[None]], int]] = [
                (chaos.create, 3),
                (chaos.start, 2),
                (chaos.stop, 1),
                (chaos.update, 2),
                (chaos.delete, 1),
                (chaos.tick, 12),
                (chaos.settle, 6),
                (chaos.user, 1),
                (chaos.end, 1),
            ]
            for number in range(150):
                chaos.failing = 0.2 if number % 3 == 0 else 0.0
                [action] = chaos.random.choices(*zip(*actions, strict=True))
                await action()
                chaos.check()
            chaos.failing = 0.0
            for _ in range(20):
                world.endpoints.settle()
                await world.tick(seconds=1000)
                chaos.check()
            record = chaos.record()
            assert record is None or record.status in OVER
            assert world.endpoints.e.status == "InService"
            if record is not None and record.status is Status.COMPLETED and record.removed == ["B"]:
                config = world.endpoints.configs[world.endpoints.e.config_name]
                assert (
                    "ShadowProductionVariants" not in config
                    or record.config_name != config["EndpointConfigName"]
                )

    test()


@pytest.mark.parametrize("before", ["created", "asked", "deployed"])
def test_a_host_that_ends_goes_on_where_it_was(tmp_path: Path, before: str) -> None:
    @on_loop
    async def test() -> None:
        async with World(tmp_path) as world:
            await world.create()
            await world.tick(1 if before == "created" else 3)
            if before == "deployed":
                world.endpoints.settle()
            await world.restart()
            await world.tick(3)
            world.endpoints.settle()
            await world.tick()
            assert await world.status() == "Running"
            assert len(world.endpoints.deploys) == 1

    test()


@on_loop
async def test_a_change_that_was_asked_for_and_not_noted_is_asked_for_again_at_most_once(
    tmp_path: Path,
) -> None:
    async with World(tmp_path) as world:
        await world.create()
        await world.tick(2)
        state = world.experiments._state
        put = state._database.put

        async def fail(key: Any, document: Any) -> None:
            raise ApiError("InternalFailure", "the disk is full", 500)

        state._database.put = fail  # type: ignore[method-assign]
        await world.tick()
        assert len(world.endpoints.deploys) == 1
        state._database.put = put  # type: ignore[method-assign]
        world.endpoints.settle("no room")
        await world.tick()
        assert len(world.endpoints.deploys) == 2
        world.endpoints.settle()
        await world.tick()
        assert await world.status() == "Running"
