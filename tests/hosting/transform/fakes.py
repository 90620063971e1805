"""Transform jobs in a test: their state is on disk, time is virtual, objects and instances are made up."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec, cast

import pytest

from benchmarks.cluster.virtual_loop import VirtualLoop, run
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller
from halimede.hosting.routing.table import Target, VariantRoute
from halimede.hosting.specs import Container, Variant
from halimede.hosting.store.places import ListedObject
from halimede.hosting.store.source import ObjectInfo
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.transform.dependencies import JobDependencies
from halimede.hosting.transform.job_record import JobRecord
from halimede.hosting.transform.lanes import Lane, Lanes
from halimede.hosting.transform.spec import TransformSpec
from halimede.hosting.transform.state import TransformState
from halimede.hosting.transform.transforms import Transforms
from halimede.http1.client import CallError, RefusedError
from halimede.http1.upstream import UpstreamPool

P = ParamSpec("P")

CALLER = Caller()
IN, OUT = "s3://in/data", "s3://out/results"
ROUTE = VariantRoute(Variant("j", "m", Container("image"), "ml.local.cpu"), 1.0)


class FakeObjects:
    """The objects of an account.

    Attributes:
        objects: URL → content.
        writes: the URLs that were written, in order.
        refusal: what writing fails with.
        broken: so many of the next writes fail.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.writes: list[str] = []
        self.refusal: ApiError | None = None
        self.broken = 0

    async def read(self, url: str, limit: int) -> bytes:
        await asyncio.sleep(0.01)  # sleeps: in virtual time
        if url not in self.objects:
            raise invalid(f"Failed to read the object {url}: there is no such key")
        assert len(self.objects[url]) <= limit
        return self.objects[url]

    async def list(self, url: str) -> Sequence[ListedObject]:
        await asyncio.sleep(0.01)  # sleeps: in virtual time
        if not any(each.startswith("/".join(url.split("/")[:3]) + "/") for each in self.objects):
            raise invalid("there is no such bucket")
        now = datetime.now(UTC)
        names = sorted(name for name in self.objects if name.startswith(url))
        return [ListedObject(name, len(self.objects[name]), "e", now) for name in names]

    async def describe(self, url: str) -> ObjectInfo:
        content = await self.read(url, 1 << 30)
        return ObjectInfo(len(content), hashlib.sha256(content).hexdigest())

    @asynccontextmanager
    async def file(self, url: str, directory: Path) -> AsyncIterator[Path]:
        path = directory / f"in-{abs(hash(url))}"
        path.write_bytes(await self.read(url, 1 << 30))
        try:
            yield path
        finally:
            path.unlink()

    async def write(self, url: str, content: Path) -> None:
        await asyncio.sleep(0.05)  # sleeps: in virtual time
        if self.broken:
            self.broken -= 1
            raise invalid(f"Failed to write the object {url}: the network is down")
        if self.refusal is not None:
            raise self.refusal
        self.objects[url] = content.read_bytes()  # noqa: ASYNC240 - of a test
        self.writes.append(url)

    @property
    def outputs(self) -> dict[str, bytes]:
        """What has been written, by what follows the output path."""
        return {
            url.removeprefix(f"{OUT}/"): content
            for url, content in self.objects.items()
            if url.startswith(OUT)
        }


class FakeFleet:
    """The instances of a job, which come up after some seconds and are replaced when they have gone.

    Attributes:
        adopted: instances that ran already.
    """

    def __init__(
        self, world: "World", spec: TransformSpec, lanes: Lanes, adopted: Sequence[RunningInstance]
    ) -> None:
        self._world = world
        self._count = spec.count
        self._lanes = lanes
        self._tasks: set[asyncio.Task[None]] = set()
        self.adopted = adopted

    @property
    def waiting(self) -> str:
        return self._world.shortage

    async def start(self) -> None:
        await asyncio.sleep(5)  # sleeps: in virtual time
        if self._world.refusal is not None:
            raise self._world.refusal
        for _ in range(self._count):
            self._join()

    def _join(self) -> None:
        target = Target(f"i-{self._world.launches}", UpstreamPool("127.0.0.1", 1))
        self._world.launches += 1
        self._world.targets[target] = self
        self._lanes.joined(ROUTE, target)

    def kill(self, target: Target, *, replaced: bool = True) -> None:
        """An instance ends, and another one takes its place later."""
        del self._world.targets[target]
        self._lanes.left(ROUTE, target)
        if replaced:
            task = asyncio.ensure_future(self._replace())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _replace(self) -> None:
        await asyncio.sleep(7)  # sleeps: in virtual time
        self._join()

    def ended(self, instance_id: str, reason: str) -> bool:
        return False

    async def retire(self) -> None:
        await asyncio.sleep(1)  # sleeps: in virtual time
        await self.forget()

    async def forget(self) -> None:
        for task in self._tasks:
            task.cancel()
        for target in [target for target, fleet in self._world.targets.items() if fleet is self]:
            del self._world.targets[target]
            self._lanes.left(ROUTE, target)


class FakeExchanges:
    """A model that answers each line with it and an exclamation mark."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def payload(self, lane: Lane, body: bytes) -> tuple[int, bytes]:
        world = self._world
        world.payloads.append(body)
        world.most = max(world.most, lane.target.inflight)
        if lane.target in world.refusing:
            raise RefusedError("Connection refused")
        answering = asyncio.ensure_future(asyncio.sleep(world.latency_s))  # sleeps: in virtual time
        await asyncio.wait({answering, lane.lost}, return_when=asyncio.FIRST_COMPLETED)
        answering.cancel()
        if lane.lost.done():
            raise CallError("the instance has ended")
        return world.model(body)

    async def stream(self, lane: Lane, read: Callable[[int], bytes], out: BinaryIO) -> tuple[int, bytes]:
        body = b""
        while data := read(1 << 20):
            body += data
        status, answer = await self.payload(lane, body)
        if status == 200:
            out.write(answer)
        return status, answer


def shout(body: bytes) -> tuple[int, bytes]:
    """The usual model: each line with an exclamation mark."""
    return 200, b"\n".join(line + b"!" for line in body.split(b"\n") if line)


class World:
    """Transform jobs, and what they are given.

    Attributes:
        objects: the objects.
        targets: the instances that run.
        launches: how many instances there have ever been.
        refusal: why instances do not come up.
        payloads: what the model was asked.
        most: how many requests an instance has had at a time.
        shortage: why there is no room for instances.
        latency_s: how long the model takes.
        model: answers with a status and a body.
        parameters: what the model says of how it likes its requests.
        told: what jobs have told.
        refusing: instances that accept no connection.
    """

    def __init__(self, loop: VirtualLoop, directory: Path) -> None:
        self.loop = loop
        self.directory = directory
        self.objects = FakeObjects()
        self.targets: dict[Target, FakeFleet] = {}
        self.launches = 0
        self.refusal: ApiError | None = None
        self.payloads: list[bytes] = []
        self.most = 0
        self.shortage = ""
        self.latency_s = 1.0
        self.model: Callable[[bytes], tuple[int, bytes]] = shout
        self.parameters: dict[str, Any] = {}
        self.told: list[str] = []
        self.refusing: set[Target] = set()
        self.tags: dict[str, Mapping[str, str]] = {}
        self.models: dict[str, dict[str, Any]] = {"m": {"PrimaryContainer": {"Image": "x"}}}
        self.transforms: Transforms

    async def start(self) -> None:
        """Begin, or go on with what is on disk."""
        dependencies = JobDependencies(
            TransformState(self.directory / "transform.db"),
            lambda _: self.objects,
            lambda _, spec, lanes, adopted: FakeFleet(self, spec, lanes, adopted),
            self.directory / "transform",
            self._tell,
            self.loop.wall_time,
            lambda _: FakeExchanges(self),
            self._parameters,
        )
        self.transforms = Transforms(
            dependencies, self._find_model, lambda _: None, self._put_tags, hold_s=20.0
        )
        await self.transforms.open()
        self.transforms.start()

    def _tell(self, _: JobRecord, line: str) -> None:
        self.told.append(line)

    async def _parameters(self, _: Lanes) -> Mapping[str, Any]:
        return self.parameters

    def _find_model(self, name: str, _: Caller) -> Mapping[str, Any]:
        if name not in self.models:
            raise invalid(f'Could not find model "{name}".')
        return self.models[name]

    async def _put_tags(self, arn: str, tags: Mapping[str, str]) -> None:
        self.tags[arn] = tags

    async def restart(self) -> None:
        """The host ends, and another one goes on."""
        await self.transforms.stop()
        assert not self.targets
        await self.start()

    async def call(self, operation: str, **request: Any) -> Mapping[str, Any]:
        return await self.transforms.operations()[operation](request, CALLER)

    async def create(self, name: str = "j", **members: Any) -> Mapping[str, Any]:
        return await self.call("CreateTransformJob", **request(name, **members))

    async def describe(self, name: str = "j") -> Mapping[str, Any]:
        return await self.call("DescribeTransformJob", TransformJobName=name)

    async def settled(self, name: str = "j") -> Mapping[str, Any]:
        """The description of a job, once it is settled."""
        async with asyncio.timeout(100_000):
            while True:
                described = await self.describe(name)
                if described["TransformJobStatus"] in ("Completed", "Failed", "Stopped"):
                    return described

    async def until(self, condition: Callable[[], object]) -> None:
        """Let virtual time pass until the condition holds."""
        async with asyncio.timeout(1000):
            while not condition():  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(0.1)  # sleeps: in virtual time

    async def failed(self, **members: Any) -> str:
        """Why a job fails."""
        await self.create(**members)
        described = await self.settled()
        assert described["TransformJobStatus"] == "Failed"
        assert not self.targets
        reason: str = described["FailureReason"]
        return reason

    async def refused(self, name: str = "j", **members: Any) -> str:
        """The text with which a job is refused."""
        with pytest.raises(ApiError) as raised:
            await self.create(name, **members)
        assert raised.value.code == "ValidationException"
        return raised.value.message


def request(name: str = "j", **members: Any) -> dict[str, Any]:
    """A request for a job whose lines are sent one by one; members of the parts may be given without those."""
    document: dict[str, Any] = {
        "TransformJobName": name,
        "ModelName": "m",
        "BatchStrategy": "SingleRecord",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": IN}},
            "SplitType": "Line",
        },
        "TransformOutput": {"S3OutputPath": OUT, "AssembleWith": "Line"},
        "TransformResources": {"InstanceType": "ml.local.cpu", "InstanceCount": 1},
    }
    parts = {
        "TransformInput": ("ContentType", "SplitType", "CompressionType"),
        "TransformOutput": ("S3OutputPath", "Accept", "AssembleWith"),
        "TransformResources": ("InstanceCount",),
    }
    for member, value in members.items():
        place = next((document[part] for part, names in parts.items() if member in names), document)
        if member in ("S3Uri", "S3DataType"):
            place = document["TransformInput"]["DataSource"]["S3DataSource"]
        place[member] = value
    return {member: value for member, value in document.items() if value is not None}


def in_world(
    test: Callable[Concatenate[World, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Path, P], None]:
    """The test, run in a world whose time is virtual, until it ends; no job is left under way."""

    async def live(loop: VirtualLoop, directory: Path, *args: P.args, **kwargs: P.kwargs) -> None:
        world = World(loop, directory)
        await world.start()
        await test(world, *args, **kwargs)
        await world.transforms.stop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in left if not task.done()]

    def wrapper(tmp_path: Path, *args: P.args, **kwargs: P.kwargs) -> None:
        run(lambda loop: live(loop, tmp_path, *args, **kwargs))

    wrapper.__name__ = test.__name__
    return cast("Callable[Concatenate[Path, P], None]", wrapper)
