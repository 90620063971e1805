import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, NotFoundError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.memory.footprints import FILES_FACTOR
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import (
    CONFIG,
    TENSORS,
    FakeModel,
    World,
    ensemble_config,
    gone,
    make_world,
    rows,
)
from tests.engine.lifecycle.ondemand import error_of, use


class Repositories(World):
    """Two repositories, `a` and `b`, and a third, `c`."""

    def __init__(self, world: World) -> None:
        self.__dict__.update(world.__dict__)
        self.places = {name: self.directory / name for name in "abc"}
        for place in self.places.values():
            place.mkdir()
        self.repository, *self.others = self.places.values()

    def put(self, repository: str, name: str, config: str = CONFIG + TENSORS) -> Path:
        """A model on disk."""
        directory = self.places[repository] / name
        (directory / "1").mkdir(parents=True, exist_ok=True)
        (directory / "config.pbtxt").write_text(config)
        return directory

    def put_ensemble(self, repository: str, name: str, *steps: str) -> Path:
        """An ensemble on disk."""
        return self.put(repository, name, ensemble_config(*steps))

    def called(self, repository: str, name: str) -> str:
        """The identifier of a model."""
        return f"{self.places[repository]}::{name}"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repositories:
    return Repositories(make_world(tmp_path, monkeypatch))


def run(world: World, test: Any, mode: ControlMode = ControlMode.EXPLICIT, **settings: Any) -> None:
    world.run(test, mode, model_namespacing=True, **settings)


def serves(lifecycle: Lifecycle, name: str) -> Path:
    """The repository of the model that requests for this name reach."""
    return cast(FakeModel, lifecycle.find(name)).loaded.source.directory.parent


def bound(lifecycle: Lifecycle, ensemble: str) -> Path:
    """The repository of the model that the only step of an ensemble reaches."""
    served: Any = lifecycle.find(ensemble)
    [step] = [serving.model for serving in served_uses(lifecycle, served)]
    return Path(step.loaded.source.directory.parent)


def served_uses(lifecycle: Lifecycle, model: Any) -> Any:
    record = lifecycle._table.records[model.identifier]  # noqa: SLF001 - what only the lifecycle does
    serving = record.versions[model.version].serving
    assert serving is not None
    return serving.uses


AMBIGUOUS = (
    "There are 2 identifiers of model 'same' in global map, "
    "model namespace must be provided to resolve ambiguity."
)


def test_a_name_that_two_models_have_reaches_neither(world: Repositories) -> None:
    world.put("a", "same")
    world.put("b", "same")
    world.put("a", "only_a")

    async def test(lifecycle: Lifecycle) -> None:
        for version in (-1, 1, 7):
            with pytest.raises(InvalidArgumentError) as caught:
                lifecycle.find("same", version)
            assert caught.value.message == AMBIGUOUS
        assert not await lifecycle.model_ready("same")
        with pytest.raises(NotFoundError, match="unknown model: 'nope' is not found"):
            lifecycle.find("nope")
        assert serves(lifecycle, "only_a") == world.places["a"]
        assert [model.name for model in lifecycle.loaded_models()] == ["only_a", "same", "same"]
        assert rows(lifecycle) == [
            ("only_a", "1", "READY", ""), ("same", "1", "READY", ""), ("same", "1", "READY", ""),
        ]  # fmt: skip
        assert [row.namespace for row in lifecycle.index()] == [str(world.places[each]) for each in "aab"]
        assert lifecycle.ready

    run(world, test, ControlMode.NONE)


def test_without_namespacing_neither_is_served(world: Repositories) -> None:
    world.put("a", "same")
    world.put("b", "same")

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(NotFoundError):
            lifecycle.find("same")
        assert rows(lifecycle) == [("same", None, "UNAVAILABLE", "model appears in two or more repositories")]

    world.run(test, ControlMode.NONE, exit_on_error=False)


def test_ensembles_reach_the_model_of_their_own_repository_first(world: Repositories) -> None:
    for repository in "ab":
        world.put(repository, "same")
        world.put_ensemble(repository, f"ensemble_{repository}", "same")
        world.put_ensemble(repository, "ensemble", "same")
    world.put("b", "only_b")
    world.put_ensemble("a", "far", "only_b")

    async def test(lifecycle: Lifecycle) -> None:
        assert bound(lifecycle, "ensemble_a") == world.places["a"]
        assert bound(lifecycle, "ensemble_b") == world.places["b"]
        assert bound(lifecycle, "far") == world.places["b"]
        with pytest.raises(InvalidArgumentError, match="There are 2 identifiers of model 'ensemble'"):
            lifecycle.find("ensemble")

    run(world, test, ControlMode.NONE)


def test_an_ensemble_whose_step_several_others_have_is_refused(world: Repositories) -> None:
    world.put("a", "same")
    world.put("b", "same")
    world.put_ensemble("c", "e", "same")

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(HalimedeError) as caught:
            await lifecycle.load("e", {})
        assert caught.value.message == (
            f"load failed for model '{world.called('c', 'e')}': "
            f"ensemble {world.called('c', 'e')} contains models that are not available or ambiguous: same\n"
        )

    run(world, test)


def test_an_ensemble_serves_when_the_missing_model_comes_to_its_repository(world: Repositories) -> None:
    world.put_ensemble("a", "e", "late")

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(
            HalimedeError, match=r"contains models that are not available or ambiguous: late\n"
        ):
            await lifecycle.load("e", {})
        world.put("a", "late")
        await lifecycle.load("late", {})
        assert bound(lifecycle, "e") == world.places["a"]

    run(world, test)


def test_a_load_request_is_for_all_models_of_the_name(world: Repositories) -> None:
    world.put("a", "same")
    world.put("b", "same")
    world.put_ensemble("a", "e", "same")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        assert world.loads == [(world.called("a", "same"), 1)]
        assert serves(lifecycle, "same") == world.places["a"]
        await lifecycle.load("same", {})
        assert sorted(world.loads) == [(world.called(each, "same"), 1) for each in "ab"]
        with pytest.raises(InvalidArgumentError) as caught:
            lifecycle.find("same")
        assert caught.value.message == AMBIGUOUS
        await lifecycle.unload("same")
        await gone(lifecycle)
        assert lifecycle.loaded_models() == []
        with pytest.raises(NotFoundError, match="Identifier of model 'same' is not found in global map"):
            lifecycle.find("same")
        with pytest.raises(NotFoundError, match="::e' has no available versions"):
            lifecycle.find("e")

    run(world, test)


def test_models_to_load_at_start_are_all_of_their_names(world: Repositories) -> None:
    world.put("a", "same")
    world.put("b", "same")
    world.put("b", "other")

    async def test(lifecycle: Lifecycle) -> None:
        assert sorted(world.loads) == [(world.called(each, "same"), 1) for each in "ab"]

    run(world, test, load_models=("same",))


def test_a_load_that_fails_in_one_repository_says_which(world: Repositories) -> None:
    world.put("a", "same")
    world.put("b", "same")
    world.fail(world.called("b", "same"), 1, InternalError("broken"))

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(HalimedeError, match=f"load failed for model '{world.called('b', 'same')}'"):
            await lifecycle.load("same", {})
        assert [model.identifier for model in lifecycle.loaded_models()] == [world.called("a", "same")]

    run(world, test)


def test_a_load_request_passes_over_repositories_that_have_the_model_no_more(world: Repositories) -> None:
    world.put("a", "same")
    second = world.put("b", "same")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("same", {})
        shutil.rmtree(second)
        await lifecycle.load("same", {})
        assert rows(lifecycle) == [("same", "1", "READY", "")]

    run(world, test)


def test_a_configuration_that_cannot_be_read_is_told_by_the_name_that_clients_know(
    world: Repositories,
) -> None:
    world.put("a", "same")
    world.put("b", "same", "nonsense {")

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(
            InternalError, match=r"^failed to load 'same', failed to poll from model repository: "
        ):
            await lifecycle.load("same", {})
        assert serves(lifecycle, "same") == world.places["a"]

    run(world, test)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("nope", InternalError, "failed to poll from model repository"),
        ("", InvalidArgumentError, "Model name cannot be empty"),
        ("..", InvalidArgumentError, "must not contain path traversal characters"),
        ("../a/same", InvalidArgumentError, "must not contain path traversal characters"),
        ("a/../b", InvalidArgumentError, "must not contain path traversal characters"),
    ],
)
def test_a_model_that_is_nowhere_cannot_be_loaded(
    world: Repositories, name: str, kind: type[HalimedeError], message: str
) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(kind, match=message):
            await lifecycle.load(name, {})
        await lifecycle.unload(name)

    run(world, test)


def test_files_of_a_load_request_need_no_repository(world: Repositories) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("new", {"config": '{"backend": "identity"}', "file:1/weights": b"w"})
        assert cast(FakeModel, lifecycle.find("new")).loaded.files == ["weights"]
        await lifecycle.unload("new")
        await gone(lifecycle)

    run(world, test)


def test_a_name_is_reached_again_when_the_other_model_has_gone(world: Repositories) -> None:
    world.put("a", "same")
    second = world.put("b", "same")

    async def test(lifecycle: Lifecycle) -> None:
        shutil.rmtree(second)
        await lifecycle.poll()
        await lifecycle.poll()
        await gone(lifecycle)
        assert serves(lifecycle, "same") == world.places["a"]
        assert lifecycle.versions("same") == [1]
        world.put("b", "same")
        await lifecycle.poll()
        await lifecycle.poll()
        with pytest.raises(InvalidArgumentError):
            lifecycle.find("same")
        assert len(world.loads) == 3

    run(world, test, ControlMode.POLL)


def test_models_that_call_others_reach_those_of_their_own_repository_first(world: Repositories) -> None:
    for repository in "ab":
        world.put(repository, "same")
    world.put("a", "caller")
    world.put("b", "only_b")

    async def test(lifecycle: Lifecycle) -> None:
        caller = world.called("a", "caller")
        assert lifecycle.name_in_server("same", caller) == world.called("a", "same")
        assert serves(lifecycle, lifecycle.name_in_server("only_b", caller)) == world.places["b"]

    run(world, test, ControlMode.NONE)


def test_stopping_takes_the_names_away(world: Repositories) -> None:
    world.put("a", "m")

    async def test(lifecycle: Lifecycle) -> None:
        model = cast(FakeModel, lifecycle.find("m"))
        model.begin()
        lifecycle._table.hide(lifecycle.find("m"))  # noqa: SLF001 - what only the lifecycle does
        with pytest.raises(HalimedeError):
            lifecycle.find("m")
        model.end()

    run(world, test, ControlMode.NONE)


def test_on_demand_a_request_loads_the_only_model_of_its_name(world: Repositories) -> None:
    world.put("a", "only_a")
    world.put("b", "only_b")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "only_b", "only_a")
        assert serves(lifecycle, "only_b") == world.places["b"]
        await use(lifecycle, world.called("b", "only_b"))
        assert sorted(world.loads) == [(world.called("a", "only_a"), 1), (world.called("b", "only_b"), 1)]
        assert (await error_of(use(lifecycle, "nowhere"))).message.endswith("'nowhere' is not found")

    run(world, test, ControlMode.ON_DEMAND)


def test_on_demand_a_name_that_two_models_have_loads_neither(world: Repositories) -> None:
    world.put("a", "same")
    second = world.put("b", "same")

    async def test(lifecycle: Lifecycle) -> None:
        assert (await error_of(use(lifecycle, "same"))).message == AMBIGUOUS
        assert not await lifecycle.model_ready("same")
        assert world.loads == []
        await use(lifecycle, world.called("a", "same"))
        assert (await error_of(use(lifecycle, "same"))).message == AMBIGUOUS
        shutil.rmtree(second)
        await use(lifecycle, "same")
        assert serves(lifecycle, "same") == world.places["a"]
        world.put("b", "later")
        await use(lifecycle, "later")
        assert serves(lifecycle, "later") == world.places["b"]

    run(world, test, ControlMode.ON_DEMAND)


def test_on_demand_models_of_several_repositories_make_room_for_each_other(world: Repositories) -> None:
    for repository in "ab":
        for name in ("x", "y"):
            directory = world.put(repository, f"{name}{repository}")
            (directory / "1" / "weights").write_bytes(bytes(round(100 / FILES_FACTOR)))
            world.sizes[world.called(repository, directory.name)] = 100

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "xa", "yb", "xa", "xb")
        await gone(lifecycle)
        assert [model.identifier for model in lifecycle.loaded_models()] == [
            world.called("a", "xa"), world.called("b", "xb"),
        ]  # fmt: skip
        await use(lifecycle, "yb")
        assert serves(lifecycle, "yb") == world.places["b"]

    run(world, test, ControlMode.ON_DEMAND, model_memory_budget=250)


def test_on_demand_ensembles_and_calls_reach_their_own_repository_first(world: Repositories) -> None:
    for repository in "ab":
        world.put(repository, "same")
        world.put_ensemble(repository, f"ensemble_{repository}", "same")
    world.put("b", "caller")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "ensemble_b")
        assert bound(lifecycle, "ensemble_b") == world.places["b"]
        assert world.loads == [(world.called("b", "same"), 1)]
        caller = world.called("a", "caller")
        assert lifecycle.name_in_server("same", caller) == world.called("a", "same")
        called = await use(lifecycle, lifecycle.name_in_server("same", caller))
        assert called.loaded.source.directory.parent == world.places["a"]

    run(world, test, ControlMode.ON_DEMAND)
