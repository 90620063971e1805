"""Names of models that lead out of the repository load nothing, whoever brings them."""

from pathlib import Path

import pytest

from halimede.core.errors import HalimedeError, NotFoundError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import World, make_world

OUTSIDE = "../outside"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", [OUTSIDE, "{}/outside", "m/../../outside", "..", "m/."])
def test_directory_outside_of_the_repository_is_never_loaded(world: World, name: str) -> None:
    outside = world.add(OUTSIDE)
    world.add("m")
    name = name.format(outside.resolve().parent)
    assert (world.repository / name).is_dir(), "there would be something to load"
    world.add_ensemble("e", name)

    async def test(lifecycle: Lifecycle) -> None:
        for each in (name, "e"):
            with pytest.raises(HalimedeError):
                await lifecycle.load(each, {})
        with pytest.raises(HalimedeError):
            await lifecycle.load(name, {"config": "{}"})
        assert world.loads == []
        assert lifecycle.loaded_models() == []

    world.run(test)
    world.run(test, load_models=(name,))


@pytest.mark.parametrize("name", [OUTSIDE, "..", "m/."])
def test_directory_outside_of_the_repository_is_never_loaded_on_demand(world: World, name: str) -> None:
    world.add(OUTSIDE)
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(NotFoundError):
            await lifecycle.demand(name)
        assert world.loads == []

    world.run(test, ControlMode.ON_DEMAND)
