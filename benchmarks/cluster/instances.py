"""Instances that are models of time: they take as long as real ones do, and compute nothing."""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.cluster.times import (
    ARCHIVE_BYTES,
    DESCRIBE_S,
    EXTRACT_S,
    FETCH_S,
    LOAD_S,
    MODEL_BYTES,
    NODE_BYTES_PER_S,
    UNLOAD_S,
)
from halimede.hosting.routing.residency.model_calls import ModelAnswer
from halimede.hosting.store.source import ModelSource, ObjectInfo, Offer, OnProgress
from halimede.http1.client import CallError

_OK, _CONFLICT, _NO_ROOM = 200, 409, 507

OnAnswered = Callable[[bool], None]
"""Told whether a request was answered; it was not if its instance failed. Each request has its own."""


@dataclass(eq=False)
class Node:
    """A machine of the cluster.

    Attributes:
        name: its name.
        room: how many instances it takes.
        cache_models: how many archives it keeps.
        instances: those that run there, by id.
        is_up: it runs.
        fetches: how many archives it has fetched.
        cached: the archives that it has, by URL.
    """

    name: str
    room: int
    cache_models: int
    instances: "dict[str, Instance]" = field(default_factory=dict)
    is_up: bool = True
    fetches: int = 0
    cached: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _free_at: float = 0.0
    _fetching: dict[str, float] = field(default_factory=dict)

    def available_at(self, url: str, now: float) -> float:
        """When it has an archive, which it fetches once for all its instances."""
        if url in self.cached:
            self.cached.move_to_end(url)
            return self._fetching.get(url, now)
        self.fetches += 1
        self._free_at = max(self._free_at, now) + ARCHIVE_BYTES / NODE_BYTES_PER_S
        self._fetching = {name: when for name, when in self._fetching.items() if when > now}
        self._fetching[url] = self._free_at + FETCH_S
        self.cached[url] = None
        if len(self.cached) > self.cache_models:
            self.cached.popitem(last=False)
        return self._fetching[url]

    def forget(self) -> None:
        """It has failed, and comes back empty."""
        self.cached.clear()
        self._fetching.clear()


class Instance:
    """One instance: requests of all its models are run in turn, as many at a time as it has processors.

    Attributes:
        id: its id.
        node: where it runs.
        models: what is loaded, by what it calls them.
        is_up: it runs.
    """

    def __init__(self, instance_id: str, node: Node, processors: int, memory_bytes: int) -> None:
        """An instance that runs nothing."""
        self.id = instance_id
        self.node = node
        self.models: set[str] = set()
        self.is_up = True
        self._memory_bytes = memory_bytes
        self._loop = asyncio.get_running_loop()
        self._free_at = [0.0] * processors
        self._running: dict[OnAnswered, asyncio.TimerHandle] = {}

    def submit(self, takes_s: float, on_answered: OnAnswered) -> None:
        """Run a request of so many seconds when a processor is free."""
        if not self.is_up:
            self._loop.call_soon(on_answered, False)
            return
        ends = max(self._free_at[0], self._loop.time()) + takes_s
        heapq.heapreplace(self._free_at, ends)
        self._running[on_answered] = self._loop.call_at(ends, self._answer, on_answered)

    def _answer(self, on_answered: OnAnswered) -> None:
        del self._running[on_answered]
        on_answered(True)

    def fail(self) -> None:
        """It ends, and nothing that it has is answered."""
        self.is_up = False
        running, self._running = self._running, {}
        for on_answered, timer in running.items():
            timer.cancel()
            on_answered(False)

    # ModelCalls

    async def load(self, model: str, name: str) -> ModelAnswer:
        """Load a model; 507 if it has no memory for it."""
        await asyncio.sleep(LOAD_S)
        self._check()
        if name in self.models:
            return ModelAnswer(_CONFLICT, "")
        if (len(self.models) + 1) * MODEL_BYTES > self._memory_bytes:
            return ModelAnswer(_NO_ROOM, f"there is no memory for {model}")
        self.models.add(name)
        return ModelAnswer(_OK, "")

    async def unload(self, model: str, name: str) -> ModelAnswer:
        """Unload a model."""
        await asyncio.sleep(UNLOAD_S)
        self._check()
        self.models.discard(name)
        return ModelAnswer(_OK, "")

    def _check(self) -> None:
        if not self.is_up:
            raise CallError("the connection was closed before the response was complete")


class Files:
    """The extracted archives of an instance (`ModelFiles`)."""

    def __init__(self, instance: Instance) -> None:
        """There are none yet."""
        self._instance = instance
        self._loop = asyncio.get_running_loop()

    @property
    def node(self) -> str:
        """The machine."""
        return self._instance.node.name

    async def fetch(self, name: str, url: str, source: ModelSource, timeout_s: float) -> int:
        """Have the archive on the node, then extract it."""
        now = self._loop.time()
        await asyncio.sleep(self._instance.node.available_at(url, now) - now + EXTRACT_S)
        return ARCHIVE_BYTES

    async def remove(self, name: str) -> None:
        """Takes no time."""

    async def memory(self) -> int:
        """What its models take."""
        return len(self._instance.models) * MODEL_BYTES


class Archives:
    """Where archives come from (`ModelSource`): all have the same size, and never change."""

    async def describe(self, url: str) -> ObjectInfo:
        """What is known of one."""
        await asyncio.sleep(DESCRIBE_S)
        return ObjectInfo(ARCHIVE_BYTES, "etag")

    async def offer(self, url: str) -> Offer:
        """Where nodes fetch one from."""
        return Offer(url, ARCHIVE_BYTES, "etag", url)

    async def fetch_model(
        self, url: str, directory: object, timeout_s: float, on_progress: OnProgress
    ) -> int:
        """Nodes fetch by themselves."""
        raise NotImplementedError
