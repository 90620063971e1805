"""Readiness depends on what is wanted now: what failed earlier and is not wanted any more holds nothing back."""

import asyncio
import shutil
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import CONFIG, World, gone, is_ready, make_world, rows

VERSIONS = (1, 2, 3)
LATEST = "version_policy { latest { num_versions: 1 } }"
ALL = "version_policy { all {} }"
SPOILED = "name: 'other'"

BAD, GOOD, REMOVE, CONFIGURE, REMOVE_ALL, LOAD, UNLOAD = [
    "bad",
    "good",
    "remove",
    "configure",
    "remove_all",
    "load",
    "unload",
]
version_changes = st.tuples(st.sampled_from((BAD, GOOD, REMOVE)), st.sampled_from(VERSIONS))
configurations = st.tuples(st.just(CONFIGURE), st.sampled_from((ALL, LATEST, SPOILED)))
others = st.tuples(st.sampled_from((REMOVE_ALL, LOAD, LOAD, UNLOAD)), st.none())
operations = st.lists(version_changes | configurations | others, max_size=12)


class Model:
    """A model on disk whose versions come and go, and what is to be expected of its readiness."""

    def __init__(self, world: World) -> None:
        self.config = ALL
        self.good: dict[int, bool] = {}
        self._world = world
        self._marks = count()
        self._write()

    @property
    def directory(self) -> Path:
        """Where it lies."""
        return self._world.repository / "m"

    def change(self, what: str, value: int | str | None) -> None:
        """Change it on disk."""
        if what == REMOVE_ALL:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.good = {}
            return
        if what == CONFIGURE:
            self.config = str(value)
            self._write()
            return
        version = int(value or 0)
        directory = self.directory / str(version)
        if what == REMOVE:
            shutil.rmtree(directory, ignore_errors=True)
            self.good.pop(version, None)
            return
        self._write()
        directory.mkdir(exist_ok=True)
        (directory / "weights").write_text(str(next(self._marks)))
        self.good[version] = what == GOOD
        self._world.fail("m", version, *[InternalError("bad")] * (0 if self.good[version] else 100))

    def _write(self) -> None:
        self.directory.mkdir(exist_ok=True)
        (self.directory / "config.pbtxt").write_text(CONFIG + self.config)

    def is_ready(self, serving: list[int]) -> bool:
        """Whether a server is ready that has tried to load it as it is now, and serves these versions of it."""
        if not self.directory.exists() or self.config == SPOILED:
            return True  # no model that readiness waits for
        selected = sorted(self.good)[-1:] if self.config == LATEST else sorted(self.good)
        return bool(serving) if not selected else all(version in serving for version in selected)


@pytest.mark.parametrize("mode", [ControlMode.EXPLICIT, ControlMode.POLL])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(operations=operations)
@example(operations=[(GOOD, 1), (LOAD, None), (BAD, 2), (LOAD, None), (REMOVE, 2), (LOAD, None)])
@example(operations=[(GOOD, 1), (LOAD, None), (BAD, 2), (LOAD, None), (UNLOAD, None), (LOAD, None)])
@example(operations=[(GOOD, 1), (LOAD, None), (BAD, 3), (LOAD, None), (REMOVE, 3), (GOOD, 2), (LOAD, None)])
@example(operations=[(BAD, 1), (LOAD, None), (REMOVE_ALL, None), (LOAD, None)])
@example(operations=[(BAD, 1), (LOAD, None), (REMOVE_ALL, None), (UNLOAD, None), (LOAD, None)])
def test_server_is_ready_if_all_that_is_wanted_now_serves(
    mode: ControlMode,
    operations: list[tuple[str, int | str | None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = make_world(Path(mkdtemp(dir=tmp_path)), monkeypatch)
    model = Model(world)

    async def act(lifecycle: Lifecycle, what: str) -> None:
        if mode is ControlMode.POLL:
            await lifecycle.poll()
            await lifecycle.poll()
        elif what == UNLOAD:
            await lifecycle.unload("m")
        elif what == LOAD:
            await asyncio.gather(lifecycle.load("m", {}), return_exceptions=True)
        await gone(lifecycle)

    async def test(lifecycle: Lifecycle) -> None:
        await act(lifecycle, LOAD)
        for what, value in operations:
            if what not in (LOAD, UNLOAD):
                model.change(what, value)
                continue
            await act(lifecycle, what)
            unloaded = what == UNLOAD and mode is ControlMode.EXPLICIT
            serving = serving_versions(lifecycle)
            assert is_ready(lifecycle) is (unloaded or model.is_ready(serving))
            failed = {int(number or 0) for _, number, _, reason in rows(lifecycle) if "bad" in reason}
            assert unloaded or failed <= model.good.keys()

    world.run(test, mode)


def serving_versions(lifecycle: Lifecycle) -> list[int]:
    """The versions of the model that answer requests."""
    try:
        return lifecycle.versions("m")
    except HalimedeError:
        return []


def test_ensemble_that_lacks_a_model_holds_nothing_back_whether_it_has_served_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, monkeypatch)
    world.add_steps("step")
    world.add_ensemble("has_served", "step")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("has_served", {})
        await lifecycle.unload("has_served")
        await lifecycle.unload("step")
        await gone(lifecycle)
        shutil.rmtree(world.repository / "step")
        world.add_ensemble("has_never_served", "step")
        for name in ("has_served", "has_never_served"):
            with pytest.raises(InvalidArgumentError, match="step"):
                await lifecycle.load(name, {})
            assert is_ready(lifecycle)

    world.run(test)
