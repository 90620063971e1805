"""Whatever happens in whatever order: jobs settle, and each output is exactly what one clean run would give."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cluster.virtual_loop import VirtualLoop, run
from halimede.hosting.errors import ApiError, invalid
from tests.hosting.transform.fakes import IN, World

STEPS = st.one_of(
    st.tuples(st.just("time"), st.floats(0.01, 20)),
    st.tuples(st.just("instance dies"), st.integers(0, 5)),
    st.tuples(st.just("host is killed"), st.none()),
    st.tuples(st.just("model fails"), st.integers(1, 2)),
    st.tuples(st.just("bucket is away"), st.integers(1, 2)),
    st.tuples(st.just("database fails"), st.none()),
    st.tuples(st.just("stop"), st.none()),
)

FILES = st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=12), min_size=1, max_size=6)


class Machine:
    """A job, and what happens to it."""

    def __init__(self, loop: VirtualLoop, directory: Path, files: list[list[int]], single: bool) -> None:
        self.world = World(loop, directory)
        self.failing = 0
        self.stopped = False
        self.world.model = self._answer
        self.expected = {}
        for number, values in enumerate(files):
            lines = [b"%d" % value for value in values]
            self.world.objects.objects[f"{IN}/{number}"] = b"\n".join(lines) + b"\n"
            self.expected[f"{number}.out"] = b"".join(line + b"!\n" for line in lines)
        self.strategy = "SingleRecord" if single else "MultiRecord"

    def _answer(self, body: bytes) -> tuple[int, bytes]:
        if self.failing:
            self.failing -= 1
            return 500, b"for once"
        return 200, b"\n".join(line + b"!" for line in body.split())

    async def begin(self, count: int, concurrent: int) -> None:
        await self.world.start()
        await self.world.create(
            BatchStrategy=self.strategy, InstanceCount=count, MaxConcurrentTransforms=concurrent
        )

    async def do(self, step: str, value: Any) -> None:
        world = self.world
        if step == "time":
            await asyncio.sleep(value)  # sleeps: in virtual time
        elif step == "instance dies":
            targets = list(world.targets)
            if targets:
                target = targets[value % len(targets)]
                world.targets[target].kill(target)
        elif step == "host is killed":
            await world.restart()
        elif step == "model fails":
            self.failing = value  # fewer times than a request is tried again
        elif step == "bucket is away":
            world.objects.broken = value
        elif step == "database fails":
            self._break_database()
        else:
            with suppress(ApiError):  # it is settled, or that cannot be kept
                await world.call("StopTransformJob", TransformJobName="j")
                self.stopped = True

    def _break_database(self) -> None:
        """The next two writes fail."""
        database = self.world.transforms._state._database  # noqa: SLF001 - nothing else fails twice
        write, left = database._write, [2]  # noqa: SLF001

        async def failing(statements: Any) -> None:
            if left[0]:
                left[0] -= 1
                raise invalid("the disk is full")
            await write(statements)

        database._write = failing  # type: ignore[method-assign]  # noqa: SLF001

    async def check(self) -> None:
        """The outputs that are there are whole; when the job is settled, all that have to be are."""
        world = self.world
        described = await world.settled()
        outputs = world.objects.outputs
        assert not world.targets
        assert all(outputs[name] == self.expected[name] for name in outputs)
        status, reason = described["TransformJobStatus"], described.get("FailureReason", "")
        if status == "Failed":  # not because of the job itself
            outside = ("the disk is full", "for once", "the instance has ended", "the network is down")
            assert any(each in reason for each in outside)
        elif status == "Stopped":
            assert self.stopped
        else:
            assert outputs == self.expected
        before = dict(outputs)
        await world.restart()
        assert await world.describe() == described
        assert world.objects.outputs == before
        assert not list(world.directory.glob("transform/*"))


@settings(max_examples=50, deadline=None)
@given(FILES, st.booleans(), st.integers(1, 3), st.integers(1, 4), st.lists(STEPS, max_size=20))
def test_each_output_is_what_a_clean_run_gives(
    files: list[list[int]], single: bool, count: int, concurrent: int, steps: list[tuple[str, Any]]
) -> None:
    async def live(loop: VirtualLoop, directory: str) -> None:
        machine = Machine(loop, Path(directory), files, single)
        await machine.begin(count, concurrent)
        try:
            for step, value in steps:
                await machine.do(step, value)
            await machine.check()
        finally:
            await machine.world.transforms.stop()

    with tempfile.TemporaryDirectory() as directory:
        run(lambda loop: live(loop, directory))


@settings(max_examples=40, deadline=None)
@given(FILES, st.integers(1, 3), st.lists(st.floats(0.01, 15), max_size=8))
def test_kills_alone_fail_nothing_and_no_object_is_written_twice(
    files: list[list[int]], count: int, times: list[float]
) -> None:
    async def live(loop: VirtualLoop, directory: str) -> None:
        machine = Machine(loop, Path(directory), files, single=True)
        await machine.begin(count, 2)
        for seconds in times:
            await machine.do("time", seconds)
            await machine.do("host is killed", None)
        assert (await machine.world.settled())["TransformJobStatus"] == "Completed"
        assert machine.world.objects.outputs == machine.expected
        writes = machine.world.objects.writes
        assert sorted(writes) == sorted(set(writes))
        await machine.world.transforms.stop()

    with tempfile.TemporaryDirectory() as directory:
        run(lambda loop: live(loop, directory))
