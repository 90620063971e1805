"""Models without frameworks for tests of the lifecycle: each load waits, succeeds or fails as a test says."""

import asyncio
import tempfile
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from halimede.backends.base import ModelSource
from halimede.backends.states import SequenceStates
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core import memory
from halimede.core.clock import Clock, VirtualClock
from halimede.core.errors import HalimedeError
from halimede.engine.cache.access import CacheAccess
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.lifecycle import ensemble_loader, model_loader
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.memory.footprints import FILES_FACTOR
from halimede.engine.served_model import Find
from halimede.engine.settings import ControlMode, EngineSettings
from halimede.engine.statistics import ModelStatistics
from halimede.workers.host import WorkerHost

CONFIG = 'backend: "identity"\n'


class FakeVersion:
    """What `load_version` gives."""

    def __init__(self, source: ModelSource, world: "World") -> None:
        self.source = source
        self.files = sorted(p.name for p in source.version_directory.rglob("*") if p.is_file())
        self._world = world
        world.open.append(self)

    def processes(self) -> tuple[int, ...]:
        """Those that the test gives it."""
        return tuple(self._world.workers.get(self.source.name, {}))

    def reserved_bytes(self) -> int:
        """What the test says."""
        return self._world.reserved.get(self.source.name, 0)

    def sequence_states(self) -> tuple[SequenceStates, ...]:
        """Those that the test gives it."""
        return self._world.states.get(self.source.name, ())

    def close(self) -> None:
        """Forget it."""
        self._world.open.remove(self)


class FakeModel:
    """What `Model` is to the lifecycle."""

    healthy = True

    def __init__(
        self,
        loaded: FakeVersion,
        clock: Clock,
        loop: AbstractEventLoop,
        on_health: Callable[[], None],
        cache: CacheAccess | None,
        limiter: object = None,
    ) -> None:
        self.cache = cache
        self.loaded = loaded
        self.name = loaded.source.client_name
        self.identifier = loaded.source.name
        self.version = loaded.source.version
        self.config = loaded.source.config
        self.inflight = 0
        self.sequences = 0
        self.stopped = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def ready(self) -> tuple[bool, str]:
        """Whether it says that it is ready."""
        return True, ""

    def leave_limiter(self) -> None:
        """Need nothing of the limiter any more."""

    def begin(self) -> None:
        """A request arrives."""
        assert not self.stopped
        self.inflight += 1
        self._idle.clear()

    def end(self) -> None:
        """A request is answered."""
        self.inflight -= 1
        if not self.inflight:
            self._idle.set()

    def begin_sequence(self) -> None:
        """A sequence begins."""
        self.sequences += 1
        self._idle.clear()

    def end_sequence(self) -> None:
        """The only sequence is over."""
        self.sequences -= 1
        self._idle.set()

    def stop(self) -> None:
        self.stopped = True

    def succeed(self, predecessor: "FakeModel") -> None:
        """Sequences of another version would go on there."""

    def end_sequences(self) -> None:
        """There are none."""

    async def instances_ended(self) -> None:
        """It has no instances that could be taken away."""

    async def drained(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        assert not self.inflight
        await asyncio.get_running_loop().run_in_executor(None, self.loaded.close)


class FakeEnsemble(FakeModel):
    """What `EnsembleModel` is to the lifecycle.

    Attributes:
        plan: how its tensors flow.
        find: gives the models that it is bound to.
        statistics: where it is counted.
    """

    def __init__(
        self,
        source: ModelSource,
        plan: EnsemblePlan,
        find: Find,
        _clock: Clock,
        _loop: AbstractEventLoop,
        labels: Mapping[str, list[str]],
        statistics: ModelStatistics,
        cache: CacheAccess | None,
    ) -> None:
        self.cache = cache
        self.name = source.client_name
        self.identifier = source.name
        self.version = source.version
        self.config = ModelConfig()
        self.config.CopyFrom(source.config)
        self.plan = plan
        self.find: Callable[[str, int], Any] = find
        self.labels = labels
        self.statistics = statistics
        self.inflight = self.sequences = 0
        self.stopped = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def close(self) -> None:
        assert not self.inflight


TENSORS = """
input [{ name: "X", data_type: TYPE_FP32, dims: [4] }]
output [{ name: "Y", data_type: TYPE_FP32, dims: [4] }]
"""
"""Inputs and outputs of a model that can be a step of an ensemble, and of the ensemble."""


def ensemble_config(*steps: str, more: str = TENSORS) -> str:
    """The configuration of an ensemble that sends X through these models, which have `TENSORS`, to give Y.

    Args:
        steps: names of models; "name@3" for version 3 of a model.
        more: the rest of the configuration.
    """
    tensors = ["X", *(f"T{number}" for number in range(1, len(steps))), "Y"]
    entries = []
    for step, source, target in zip(steps, tensors, tensors[1:], strict=False):
        name, _, version = step.partition("@")
        entries.append(
            f'{{ model_name: "{name}" model_version: {version or -1} '
            f'input_map {{ key: "X" value: "{source}" }} output_map {{ key: "Y" value: "{target}" }} }}'
        )
    return f'platform: "ensemble"\n{more}\nensemble_scheduling {{ step [ {", ".join(entries)} ] }}'


class World:
    """A repository on disk and a loader that does as it is told.

    Attributes:
        repository: the first repository; `others` are more of them.
        loads: each load, as (model, version), in order.
        open: what is loaded and not closed.
        failures: (model, version) → why its loads fail.
        gates: (model, version) → what its loads wait for.
        long: models whose warm-up takes long.
        started: (model, version) of loads that have begun; use `begun` to wait for one.
        sizes: model → bytes by which the server's process grows while a version of it is loaded.
        workers: model → its worker processes, each with the bytes that it has for itself.
        reserved: model → bytes that its instances have reserved and not used when it is loaded.
        states: model → what its instances keep for sequences.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.repository = directory / "repository"
        self.repository.mkdir()
        self.others: list[Path] = []
        self.loads: list[tuple[str, int]] = []
        self.open: list[FakeVersion] = []
        self.failures: dict[tuple[str, int], list[HalimedeError]] = {}
        self.gates: dict[tuple[str, int], threading.Event] = {}
        self.long: set[str] = set()
        self.sizes: dict[str, int] = {}
        self.workers: dict[str, dict[int, int]] = {}
        self.reserved: dict[str, int] = {}
        self.states: dict[str, tuple[SequenceStates, ...]] = {}
        self._begun: dict[tuple[str, int], threading.Event] = {}
        self.clock = VirtualClock()
        self.progress: list[tuple[str, int | None, str, str]] = []

    def add(self, name: str, versions: tuple[int, ...] = (1,), config: str = "") -> Path:
        """A model on disk."""
        directory = self.repository / name
        for version in versions:
            (directory / str(version)).mkdir(parents=True, exist_ok=True)
        (directory / "config.pbtxt").write_text(CONFIG + config)
        return directory

    def add_sized(self, name: str, size: int, files: int | None = None, config: str = "") -> Path:
        """A model on disk that takes so many bytes of memory, as its files suggest, or so many bytes of files."""
        directory = self.add(name, config=config)
        self.sizes[name] = size
        with (directory / "1" / "weights").open("wb") as file:
            file.truncate(round(size / FILES_FACTOR) if files is None else files)
        return directory

    def private_bytes(self, pid: int = 0) -> int:
        """In the place of `halimede.core.memory.private_bytes`."""
        if pid:
            return next(workers[pid] for workers in self.workers.values() if pid in workers)
        return sum(self.sizes.get(version.source.name, 0) for version in list(self.open))

    def add_steps(self, *names: str, versions: tuple[int, ...] = (1,)) -> None:
        """Models on disk that can be steps of an ensemble."""
        for name in names:
            self.add(name, versions, TENSORS)

    def add_ensemble(self, name: str, *steps: str, more: str = TENSORS) -> Path:
        """An ensemble of these models on disk, see `ensemble_config`."""
        directory = self.repository / name
        (directory / "1").mkdir(parents=True, exist_ok=True)
        (directory / "config.pbtxt").write_text(ensemble_config(*steps, more=more))
        return directory

    def fail(self, name: str, version: int, *errors: HalimedeError) -> None:
        """The next loads of the version fail, each with one of the errors."""
        self.failures[name, version] = list(errors)

    def block(self, name: str, version: int = 1) -> Callable[[], None]:
        """Loads of the version wait until the returned function is called."""
        gate = self.gates[name, version] = threading.Event()
        self._begun[name, version] = threading.Event()
        return gate.set

    async def begun(self, name: str, version: int = 1) -> None:
        """Return when a blocked load has begun."""
        began = await asyncio.get_running_loop().run_in_executor(None, self._begun[name, version].wait, 10)
        assert began

    def load_version(
        self,
        source: ModelSource,
        settings: EngineSettings,
        _workers: WorkerHost,
        on_long: Callable[[], None],
    ) -> FakeVersion:
        """In the place of `halimede.engine.lifecycle.loading.load_version`."""
        key = (source.name, source.version)
        self.loads.append(key)
        if key in self.gates:
            self._begun[key].set()
            if source.name in self.long:
                on_long()
            assert self.gates[key].wait(10)
        if self.failures.get(key):
            raise self.failures[key].pop(0)
        return FakeVersion(source, self)

    def lifecycle(self, mode: ControlMode = ControlMode.EXPLICIT, **settings: Any) -> Lifecycle:
        """A lifecycle over the repositories; call it in a running loop."""
        lifecycle = Lifecycle(
            EngineSettings((self.repository, *self.others), mode, **settings),
            self.clock,
            asyncio.get_running_loop(),
        )
        lifecycle.on_progress.append(lambda *event: self.progress.append(event))
        return lifecycle

    def run(
        self,
        test: Callable[[Lifecycle], Coroutine[Any, Any, None]],
        mode: ControlMode = ControlMode.EXPLICIT,
        **settings: Any,
    ) -> None:
        """Run the test with a lifecycle that is started; then stop it and see that nothing is left."""

        async def run() -> None:
            lifecycle = self.lifecycle(mode, **settings)
            await lifecycle.start()
            await test(lifecycle)
            assert await lifecycle.stop(10)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        threads = threading.active_count()
        asyncio.run(run())
        assert threading.active_count() <= threads
        assert self.open == []
        assert self.temporary() == []

    def temporary(self) -> list[Path]:
        """Temporary directories that are there now."""
        return list((self.directory / "temporary").iterdir())


def make_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in `tmp_path`, in the place of the real loader."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    world = World(tmp_path)
    monkeypatch.setattr(model_loader, "load_version", world.load_version)
    monkeypatch.setattr(model_loader, "Model", FakeModel)
    monkeypatch.setattr(ensemble_loader, "EnsembleModel", FakeEnsemble)
    monkeypatch.setattr(memory, "private_bytes", world.private_bytes)
    monkeypatch.setattr(memory, "heap_bytes", lambda: 0)
    return world


def rows(lifecycle: Lifecycle) -> list[tuple[str, str | None, str, str]]:
    """The index as tuples."""
    return [(row.name, row.version, row.state, row.reason) for row in lifecycle.index()]


# Properties as functions, for a type checker that takes a property to stay as it was asserted to be.


def is_ready(lifecycle: Lifecycle) -> bool:
    """Whether the server is ready."""
    return lifecycle.ready


def is_live(lifecycle: Lifecycle) -> bool:
    """Whether the server is live."""
    return lifecycle.live


async def gone(lifecycle: Lifecycle) -> None:
    """Return when every version that was retired is closed."""
    await lifecycle._live.closed()  # noqa: SLF001 - nobody else waits for the end of all versions
