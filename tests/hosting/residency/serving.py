"""A multi-model variant before instances that tests play, and a place where its archives come from."""

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Scope
from halimede.hosting.routing.residency.entry import Entry, State, hash_of
from halimede.hosting.routing.residency.holder import Holder
from halimede.hosting.routing.residency.residency import MultiModelResidency
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.routing.table import Target
from halimede.hosting.specs import Container
from halimede.hosting.store.source import ObjectInfo, Offer, OnProgress
from halimede.hosting.substrates.base import InstanceRequest, ModelFiles, Resources, RunningInstance
from halimede.hosting.substrates.model_files import LocalModelFiles
from tests.hosting.instances import FakeInstance
from tests.hosting.routing.serving import Runtime, instances, runtime, variant_route

PREFIX = "s3://bucket/models"
MB = 1_000_000


@dataclass
class Source:
    """Archives (`ModelSource`).

    Attributes:
        sizes: model → what it takes; 1 MB if it says nothing.
        etags: model → its etag.
        missing: models of which there is no archive.
        broken: model → the error of fetching it.
        delay_s: how long a download takes.
        gate: no download ends before it is set, which it is from the beginning.
        fetched: what was fetched, in order.
        files: what every archive holds; a file with the model's name if it is None.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    broken: dict[str, Exception] = field(default_factory=dict)
    delay_s: float = 0.0
    gate: threading.Event = field(default_factory=threading.Event)
    fetched: list[str] = field(default_factory=list)
    files: Path | None = None

    def __post_init__(self) -> None:
        self.gate.set()

    async def describe(self, url: str) -> ObjectInfo:
        model = _model(url)
        if model in self.missing:
            raise invalid(f"Could not find model data at {url}")
        return ObjectInfo(self.sizes.get(model, MB), self.etags.get(model, "etag"))

    async def offer(self, url: str) -> Offer:
        info = await self.describe(url)
        return Offer("http://127.0.0.1:1/", info.size, info.etag, url)

    async def fetch_model(self, url: str, directory: Path, timeout_s: float, on_progress: OnProgress) -> int:
        model = _model(url)
        self.fetched.append(model)
        await asyncio.to_thread(self._extract, model, directory)
        try:
            await asyncio.sleep(self.delay_s)  # sleeps: the download
            if not self.gate.is_set():
                assert await asyncio.to_thread(self.gate.wait, 60)
            if model in self.broken:
                raise self.broken[model]
        except BaseException:
            shutil.rmtree(directory)
            raise
        return self.sizes.get(model, MB)

    def _extract(self, model: str, directory: Path) -> None:
        if self.files is not None:
            shutil.copytree(self.files, directory)
        else:
            directory.mkdir()
            (directory / "name").write_text(model)


@dataclass
class Models:
    """Counts what becomes of models (`ModelMeter`)."""

    downloads: int = 0
    loads: int = 0
    unloads: int = 0

    def downloaded(self, duration_ns: int) -> None:
        self.downloads += 1

    def loaded(self, duration_ns: int) -> None:
        self.loads += 1

    def unloaded(self, duration_ns: int) -> None:
        self.unloads += 1


class Rig:
    """A runtime with one multi-model variant."""

    def __init__(self, host: Runtime, source: Source, fakes: Sequence[FakeInstance]) -> None:
        self.host = host
        self.source = source
        self.fakes = fakes
        self.models = Models()
        self.client = host.client()

    @property
    def residency(self) -> MultiModelResidency:
        residency = self.host.variant.residency
        assert isinstance(residency, MultiModelResidency)
        return residency

    @property
    def holders(self) -> list[Holder]:
        return list(self.residency._holders.values())  # noqa: SLF001 - their states are what tests are about

    def entry(self, model: str, holder: int = 0) -> Entry:
        return self.holders[holder].entries[model]

    def loaded(self, holder: int = 0) -> set[str]:
        """The models that an instance holds, as the host believes."""
        entries = self.host.loop.call(lambda: list(self.holders[holder].entries.values()))
        return {entry.model for entry in entries if entry.state is State.LOADED}

    def calls(self, method: str, holder: int = 0) -> list[str]:
        """Loads (POST) or unloads (DELETE) that an instance got, as hashes."""
        fake = self.fakes[holder]
        if method == "DELETE":
            return [path.removeprefix("/models/") for path in fake.paths("DELETE")]
        return [each.body.decode() for each in fake.seen if (each.method, each.path) == ("POST", "/models")]

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way and nothing is pinned, waited for or left of what was."""

        def settled() -> bool:
            entries = [entry for holder in self.holders for entry in holder.entries.values()]
            return not any(
                entry.pins or entry.waiting or entry.load_pending or entry.freeing_memory for entry in entries
            ) and not any(holder._tasks for holder in self.holders)  # noqa: SLF001 - none may be left

        return self.host.is_idle and self.host.loop.call(settled)


def running_instance(fake: FakeInstance, number: int, directory: Path, memory: int) -> RunningInstance:
    """What the substrate would say of a fake."""
    request = InstanceRequest(
        f"AllTraffic-{number}",
        *Scope(),
        "e",
        "AllTraffic",
        "f",
        "image",
        {},
        None,
        True,
        Resources(1, memory),
    )
    return RunningInstance(request, "127.0.0.1", fake.port, 0, directory / str(number))


@contextmanager
def multi_model(
    directory: Path,
    count: int = 1,
    *,
    room: int = 1000,
    settings: ResidencySettings | None = None,
    invocation: InvocationSettings | None = None,
    source: Source | None = None,
    model_cache: bool = True,
    files: Callable[[RunningInstance], ModelFiles] = LocalModelFiles,
    **spec: Any,
) -> Iterator[Rig]:
    """A multi-model variant of so many instances, each with memory for `room` models of 1 MB.

    At the end nothing may be left under way, pinned or waited for, and no rule may have been broken.
    """
    settings = settings or ResidencySettings()
    memory = int((room + 0.5) * MB * settings.footprint_factor / settings.memory_share)
    container = Container("image", PREFIX + "/", multi_model=True, model_cache=model_cache)
    source = source or Source()
    with instances(count) as fakes:
        route = variant_route("AllTraffic", fakes, container=container, **spec)
        with runtime(route, settings=invocation) as host:
            rig = Rig(host, source, fakes)

            def join() -> None:
                route.residency = MultiModelResidency(route, source, rig.models, settings, files)
                for number, (fake, target) in enumerate(zip(fakes, route.targets, strict=True)):
                    route.residency.joined(target, running_instance(fake, number, directory, memory))

            host.loop.call(join)
            try:
                yield rig
            finally:
                host.loop.run(rig.residency.close())
            assert not any(fake.broken_rules for fake in fakes)


def leave(rig: Rig, number: int) -> Target:
    """An instance takes no more requests."""
    target = rig.host.variant.targets[number]

    def go() -> None:
        rig.host.variant.targets.remove(target)
        rig.residency.left(target)

    rig.host.loop.call(go)
    return target


def failure(code: str = "ValidationException") -> ApiError:
    """An error of fetching."""
    return ApiError(code, "the archive is broken")


def _model(url: str) -> str:
    assert url.startswith(f"{PREFIX}/")
    return url.removeprefix(f"{PREFIX}/")


__all__ = ["MB", "Entry", "Rig", "Source", "State", "failure", "hash_of", "leave", "multi_model"]
