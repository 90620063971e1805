"""Ensembles come after the models that they need, and go when those go."""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import cast

import pytest

from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import (
    CONFIG,
    TENSORS,
    FakeEnsemble,
    FakeModel,
    World,
    gone,
    is_ready,
    make_world,
    rows,
)

_TENSOR = '[{"name": "NAME", "data_type": "TYPE_INT32", "dims": [4]}]'
INTEGERS = (
    f'{{"backend": "identity", "input": {_TENSOR.replace("NAME", "X")}, '
    f'"output": {_TENSOR.replace("NAME", "Y")}}}'
)
"""A configuration that does not fit where `TENSORS` does."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


def found(lifecycle: Lifecycle, name: str, version: int = -1) -> FakeModel:
    return cast(FakeModel, lifecycle.find(name, version))


def ensemble(lifecycle: Lifecycle, name: str = "e") -> FakeEnsemble:
    return cast(FakeEnsemble, lifecycle.find(name))


def states(lifecycle: Lifecycle) -> dict[str, str]:
    """Model → its state, of models with one version."""
    return {name: state for name, _, state, _ in rows(lifecycle)}


def reason(lifecycle: Lifecycle, name: str = "e") -> str:
    """Why the model is unavailable."""
    (why,) = [why for each, _, state, why in rows(lifecycle) if each == name and state == "UNAVAILABLE"]
    return why


def told(world: World, name: str = "e") -> str:
    """Why the model did not become available, when it was tried last."""
    return [why for each, _, state, why in world.progress if each == name and state == "UNAVAILABLE"][-1]


async def refusal(lifecycle: Lifecycle, name: str, kind: type[HalimedeError] = InvalidArgumentError) -> str:
    """Why the model cannot be loaded."""
    with pytest.raises(kind) as caught:
        await lifecycle.load(name, {})
    return str(caught.value)


async def settle(lifecycle: Lifecycle) -> None:
    """Two looks: the second one acts on what the first one saw."""
    await lifecycle.poll()
    await lifecycle.poll()


# Start


def test_ensemble_starts_after_its_models_however_long_they_take(world: World) -> None:
    world.add_steps("b", "z")
    world.add_ensemble("a", "b", "outer")
    world.add_ensemble("outer", "z")
    release = world.block("z")

    async def run() -> None:
        lifecycle = world.lifecycle(ControlMode.NONE)
        begun = {"a": asyncio.Event(), "outer": asyncio.Event(), "z": asyncio.Event()}

        def note(name: str, _version: int | None, _state: str, _reason: str) -> None:
            if name in begun:
                begun[name].set()

        lifecycle.on_progress.append(note)
        starting = asyncio.create_task(lifecycle.start())
        for event in begun.values():
            await event.wait()
        await world.begun("z")
        assert {states(lifecycle)[name] for name in begun} == {"LOADING"}
        release()
        assert await starting
        assert is_ready(lifecycle)
        ready = [name for name, _, state, _ in world.progress if state == "READY"]
        assert [name for name in ready if name != "b"] == ["z", "outer", "a"]
        assert ready.index("b") < ready.index("a")
        assert [model.name for model in lifecycle.loaded_models()] == ["a", "b", "outer", "z"]
        assert ensemble(lifecycle, "a").find("outer", -1) is lifecycle.find("outer")
        assert found(lifecycle, "b", 1).name == "b"
        assert await lifecycle.stop(10)

    asyncio.run(run())


def test_ensemble_without_its_model_is_not_there_and_does_not_keep_the_server_from_being_ready(
    world: World,
) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a", "nowhere", "nope")
    world.add_ensemble("over", "e")

    async def run() -> None:
        lifecycle = world.lifecycle(ControlMode.NONE)
        assert not await lifecycle.start()
        assert is_ready(lifecycle)
        why = "ensemble e contains models that are not available or ambiguous: nowhere, nope"
        assert told(world) == why
        assert told(world, "over") == (
            f"ensemble 'over' depends on 'e' which is not valid. Model 'e' failed with error: {why}"
        )
        assert rows(lifecycle) == [("a", "1", "READY", ""), ("e", None, "", ""), ("over", None, "", "")]
        assert await lifecycle.model_ready("a")
        with pytest.raises(NotFoundError, match=r"'e' is not found\. It is in a repository, but not loaded$"):
            lifecycle.find("e")
        assert await lifecycle.stop(10)

    asyncio.run(run())


def test_a_circle_of_ensembles_is_told_by_its_first_and_last_as_in_triton(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a", "f")
    world.add_ensemble("f", "g")
    world.add_ensemble("g", "a", "e")
    world.add_ensemble("self", "self")

    async def test(lifecycle: Lifecycle) -> None:
        start = "circular dependency between ensembles: "
        assert told(world, "e") == f"{start}e -> ... -> g -> e"
        assert told(world, "f") == f"{start}f -> ... -> e -> f"
        assert told(world, "g") == f"{start}g -> ... -> f -> g"
        assert told(world, "self") == f"{start}self -> ... -> self -> self"
        assert states(lifecycle)["a"] == "READY"

    world.run(test, ControlMode.NONE)


def test_circle_is_found_when_one_of_its_ensembles_is_loaded(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a", "f")
    world.add_ensemble("f", "e")

    async def test(lifecycle: Lifecycle) -> None:
        why = "circular dependency between ensembles: e -> ... -> f -> e"
        assert await refusal(lifecycle, "e") == f"load failed for model 'e': {why}\n"
        assert await asyncio.gather(refusal(lifecycle, "e"), refusal(lifecycle, "f"))
        (world.repository / "a" / "1" / "weights").write_bytes(b"x")
        await lifecycle.load("a", {})
        assert told(world) == why
        world.add_ensemble("e", "a")
        await lifecycle.load("e", {})
        assert await lifecycle.model_ready("f")

    world.run(test)


def test_ensemble_that_would_come_to_need_itself_goes_on_as_it_was(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")
    world.add_ensemble("f", "e")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("f", {})
        before = lifecycle.find("e")
        world.add_ensemble("e", "f")
        assert "e -> ... -> f -> e" in await refusal(lifecycle, "e")
        assert lifecycle.find("e") is before
        assert await lifecycle.model_ready("f")

    world.run(test)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("ensemble_scheduling { }", "must specify 'step' for ensemble 'e'"),
        ("", "ensemble scheduling must be set for ensemble e whose platform is ensemble"),
        ('output [{ name: "Z" }]', "ensemble output 'Z' for ensemble e' is not used"),
    ],
)
def test_ensemble_that_is_wrong_by_itself_is_refused_before_its_models_are_loaded(
    world: World, config: str, why: str
) -> None:
    world.add_steps("a")
    directory = world.add_ensemble("e", "a", more=TENSORS + config)
    if config in ("", "ensemble_scheduling { }"):
        (directory / "config.pbtxt").write_text(f'platform: "ensemble" {TENSORS} {config}')

    async def test(lifecycle: Lifecycle) -> None:
        start = "failed to load 'e', failed to poll from model repository: "
        assert await refusal(lifecycle, "e", InternalError) == start + why
        assert world.loads == []
        assert is_ready(lifecycle)

    world.run(test)


def test_scheduling_without_the_platform_is_refused(world: World) -> None:
    directory = world.add_ensemble("e", "a")
    text = (directory / "config.pbtxt").read_text()
    (directory / "config.pbtxt").write_text(text.replace('platform: "ensemble"', ""))

    async def test(lifecycle: Lifecycle) -> None:
        why = await refusal(lifecycle, "e", InternalError)
        assert "must specify 'platform' or 'backend' for 'e'" in why

    world.run(test)


def test_missing_labels_of_an_ensemble_fail_its_load(world: World) -> None:
    world.add_steps("a")
    more = TENSORS.replace('name: "Y",', 'name: "Y", label_filename: "labels.txt",')
    directory = world.add_ensemble("e", "a", more=more)

    async def test(lifecycle: Lifecycle) -> None:
        path = world.repository / "e" / "labels.txt"
        assert f"failed to open text file for read {path}: No such file" in await refusal(lifecycle, "e")
        (directory / "labels.txt").write_text("one\ntwo\n")
        await lifecycle.load("e", {})
        assert ensemble(lifecycle).labels == {"Y": ["one", "two"]}

    world.run(test)


def test_defect_in_planning_fails_the_load_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError("a defect")

    async def test(lifecycle: Lifecycle) -> None:
        monkeypatch.setattr(EnsemblePlan, "from_config", fail)
        assert await refusal(lifecycle, "e") == "load failed for model 'e': ZeroDivisionError: a defect\n"
        assert states(lifecycle) == {"a": "READY", "e": ""}
        assert "planning ensemble 'e'" in caplog.text

    world.run(test)


# Loading what an ensemble needs


def test_loading_an_ensemble_loads_what_it_needs(world: World) -> None:
    world.add_steps("a", "b", "other")
    world.add_ensemble("e", "a", "b")
    world.add_ensemble("over", "e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("over", {})
        assert states(lifecycle) == {"a": "READY", "b": "READY", "e": "READY", "other": "", "over": "READY"}
        assert sorted(world.loads) == [("a", 1), ("b", 1)]
        await lifecycle.load("over", {})
        await lifecycle.load("a", {})
        assert sorted(world.loads) == [("a", 1), ("b", 1)]

    world.run(test)


def test_changed_model_is_loaded_again_with_its_ensemble(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        before = lifecycle.find("a")
        (world.repository / "a" / "1" / "weights").write_bytes(b"x")
        await lifecycle.load("e", {})
        assert lifecycle.find("a") is not before
        assert ensemble(lifecycle).find("a", -1) is lifecycle.find("a")

    world.run(test)


def test_what_a_client_brought_is_not_undone_by_loading_an_ensemble(world: World) -> None:
    world.add_steps("b")
    world.add_ensemble("e", "a", "b")

    async def test(lifecycle: Lifecycle) -> None:
        config = INTEGERS.replace("INT32", "FP32")
        config = config.replace(
            '{"backend"', '{"parameters": {"of": {"string_value": "a client"}}, "backend"'
        )
        await lifecycle.load("a", {"config": config, "file:1/weights": b"x"})
        await lifecycle.load("b", {"config": config})
        brought = [lifecycle.find(name) for name in ("a", "b")]
        await lifecycle.load("e", {})
        assert [lifecycle.find(name) for name in ("a", "b")] == brought
        assert [ensemble(lifecycle).find(name, -1) for name in ("a", "b")] == brought

    world.run(test)


def test_ensemble_can_be_brought_by_a_client(world: World) -> None:
    world.add_steps("a", "b")
    world.add_ensemble("e", "a")
    config = (
        '{"platform": "ensemble", "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [4]}], '
        '"output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [4]}], "ensemble_scheduling": {"step": '
        '[{"model_name": "b", "model_version": -1, "input_map": {"X": "X"}, "output_map": {"Y": "Y"}}]}}'
    )

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {"config": config, "file:1/readme": b""})
        assert states(lifecycle) == {"a": "", "b": "READY", "e": "READY"}
        await lifecycle.load("e", {"config": config})
        await lifecycle.unload("e")
        await lifecycle.load("e", {})
        assert states(lifecycle)["a"] == "READY"

    world.run(test)


def test_ensemble_says_why_a_model_that_it_needs_did_not_load(world: World) -> None:
    world.add_steps("a", "b")
    world.add_ensemble("e", "a", "b")
    world.fail("b", 1, InternalError("no memory"), UnsupportedError("no such operator"))

    async def test(lifecycle: Lifecycle) -> None:
        why = (
            "ensemble 'e' depends on 'b' which has no loaded version. Model 'b' loading failed with error: "
            "version 1 is at UNAVAILABLE state: Internal: no memory;"
        )
        assert await refusal(lifecycle, "e") == f"load failed for model 'e': {why}\n"
        assert told(world) == why
        assert not is_ready(lifecycle)
        (world.repository / "b" / "config.pbtxt").write_text("nonsense {")
        why = "ensemble e contains models that are not available or ambiguous: b ('b': failed to read text proto from"
        assert why in await refusal(lifecycle, "e")

    world.run(test)


def test_model_that_cannot_be_named_so_is_not_there(world: World) -> None:
    world.add_ensemble("e", "../repository/a")

    async def test(lifecycle: Lifecycle) -> None:
        assert "not available or ambiguous: ../repository/a" in await refusal(lifecycle, "e")

    world.run(test)


def test_model_in_two_repositories_is_no_part_of_an_ensemble(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")
    other = world.directory / "other"
    shutil.copytree(world.repository / "a", other / "a")
    world.others.append(other)

    async def test(lifecycle: Lifecycle) -> None:
        assert "not available or ambiguous: a" in told(world)

    world.run(test, ControlMode.NONE)


def test_models_must_fit_together(world: World) -> None:
    world.add_steps("a")
    world.add("b", config=TENSORS.replace("FP32", "INT32"))
    world.add_ensemble("e", "a", "b")

    async def test(lifecycle: Lifecycle) -> None:
        assert await refusal(lifecycle, "e") == (
            "load failed for model 'e': in ensemble e, ensemble tensor T1: inconsistent data type: TYPE_FP32 is "
            "inferred from model a while TYPE_INT32 is inferred from model b\n"
        )
        assert states(lifecycle) == {"a": "READY", "b": "READY", "e": ""}
        (world.repository / "b" / "config.pbtxt").write_text(CONFIG + TENSORS)
        await lifecycle.load("b", {})
        assert await lifecycle.model_ready("e")

    world.run(test)


def test_ensemble_and_a_model_that_loads_it_while_being_loaded_do_not_wait_for_each_other(
    world: World,
) -> None:
    world.add_steps("m")
    world.add_ensemble("e", "m")
    release = world.block("m")

    async def test(lifecycle: Lifecycle) -> None:
        loading = asyncio.create_task(lifecycle.load("m", {}))
        await world.begun("m")
        with lifecycle.waiting("m", "e"):  # as it does when it calls load_model
            why = await asyncio.wait_for(refusal(lifecycle, "e"), 60)
        assert "e -> ... -> m -> e" in why
        reached = asyncio.Event()
        lifecycle.on_progress.append(lambda name, *_: reached.set() if name == "e" else None)
        outer = asyncio.create_task(lifecycle.load("e", {}))
        await reached.wait()
        assert states(lifecycle) == {"e": "LOADING", "m": "LOADING"}
        with (
            pytest.raises(InvalidArgumentError, match=r"'m' is being loaded and cannot wait for 'e'"),
            lifecycle.waiting("m", "e"),
        ):
            pass
        release()
        await asyncio.gather(loading, outer)
        assert states(lifecycle) == {"e": "READY", "m": "READY"}

    world.run(test)


# Versions


def test_version_of_a_step_must_be_loaded(world: World) -> None:
    world.add("a", (1, 2, 3), TENSORS + "version_policy { specific { versions: [1, 3] } }")
    world.add_ensemble("e", "a@1", "a@3", "a")
    world.add_ensemble("f", "a@2")
    world.add_ensemble("g", "a@0")

    async def test(lifecycle: Lifecycle) -> None:
        first, third = lifecycle.find("a", 1), lifecycle.find("a", 3)
        e = ensemble(lifecycle)
        assert (e.find("a", 1), e.find("a", 3), e.find("a", -1)) == (first, third, third)
        assert told(world, "f") == "ensemble 'f' depends on 'a' whose required version 2 is not loaded."
        assert "whose required version 0 is not loaded" in told(world, "g")
        assert states(lifecycle) == {"a": "READY", "e": "READY", "f": "", "g": ""}

    world.run(test, ControlMode.NONE)


def test_ensemble_follows_the_versions_that_its_model_serves(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add_steps("a")
    world.add_ensemble("newest", "a")
    world.add_ensemble("first", "a@1")

    async def test(lifecycle: Lifecycle) -> None:
        for name in ("newest", "first"):
            await lifecycle.load(name, {})
        world.add_steps("a", versions=(2,))
        await lifecycle.load("a", {})
        assert lifecycle.versions("a") == [2]
        assert ensemble(lifecycle, "newest").find("a", -1) is lifecycle.find("a", 2)
        assert "ensemble 'first' depends on 'a' whose required version 1 is not loaded." in caplog.text
        assert reason(lifecycle, "first") == "unloaded"
        assert is_ready(lifecycle)
        world.add("a", config=TENSORS + "version_policy { all { } }")
        await lifecycle.load("a", {})
        assert ensemble(lifecycle, "newest").find("a", -1) is lifecycle.find("a", 2)
        assert ensemble(lifecycle, "first").find("a", 1) is lifecycle.find("a", 1)
        assert is_ready(lifecycle)

    world.run(test)


def test_every_selected_version_of_an_ensemble_is_loaded(world: World) -> None:
    world.add_steps("a")
    directory = world.add_ensemble("e", "a", more=TENSORS + "version_policy { all { } }")
    (directory / "7").mkdir()

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        assert lifecycle.versions("e") == [1, 7]
        seven = lifecycle.find("e", 7)
        (directory / "1").rmdir()
        await lifecycle.load("e", {})
        await gone(lifecycle)
        assert lifecycle.versions("e") == [7]
        assert lifecycle.find("e") is seven

    world.run(test)


# Unloading


def test_unloaded_model_takes_its_ensembles_along_and_brings_them_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add_steps("a", "b")
    world.add_ensemble("e", "a", "b")
    world.add_ensemble("over", "e")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("over", {})
        await lifecycle.unload("a")
        await gone(lifecycle)
        assert states(lifecycle) == {
            "a": "UNAVAILABLE",
            "b": "READY",
            "e": "UNAVAILABLE",
            "over": "UNAVAILABLE",
        }
        why = "ensemble 'e' depends on 'a' which has no loaded version: version 1 is at UN"
        assert reason(lifecycle) == reason(lifecycle, "over") == "unloaded"
        assert is_ready(lifecycle)
        assert f"'e' is unavailable: {why}" in caplog.text
        caplog.clear()
        await lifecycle.load("a", {})
        assert set(states(lifecycle).values()) == {"READY"}
        assert "successfully loaded 'e'" in caplog.text

    with caplog.at_level(logging.INFO, "halimede"):
        world.run(test)


def test_unloaded_ensemble_does_not_come_back_by_itself(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        await lifecycle.unload("a")
        await lifecycle.unload("e")
        await gone(lifecycle)
        assert reason(lifecycle) == "unloaded"
        await lifecycle.load("a", {})
        assert states(lifecycle) == {"a": "READY", "e": "UNAVAILABLE"}
        await lifecycle.load("e", {})
        assert await lifecycle.model_ready("e")

    world.run(test)


def test_loading_an_unavailable_ensemble_loads_what_it_lacks(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        await lifecycle.unload("a")
        await lifecycle.load("e", {})
        assert states(lifecycle) == {"a": "READY", "e": "READY"}

    world.run(test)


def test_loading_an_unavailable_ensemble_fails_as_long_as_it_lacks_something(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        await lifecycle.unload("a")
        world.fail("a", 1, InternalError("no memory"))
        assert "no memory" in await refusal(lifecycle, "e")
        assert not is_ready(lifecycle)

    world.run(test)


def test_unavailable_ensemble_that_was_changed_does_not_come_back_as_it_was(world: World) -> None:
    world.add_steps("a", "b")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        await lifecycle.unload("a")
        await gone(lifecycle)
        world.add_ensemble("e", "a", "b")
        release = world.block("b")
        loaded = asyncio.Event()
        lifecycle.on_progress.append(lambda *event: loaded.set() if event[:3] == ("a", 1, "READY") else None)
        loading = asyncio.create_task(lifecycle.load("e", {}))
        await loaded.wait()
        await world.begun("b")
        assert states(lifecycle) == {"a": "READY", "b": "LOADING", "e": "LOADING"}
        release()
        await loading
        assert ensemble(lifecycle).find("b", -1) is lifecycle.find("b")

    world.run(test)


def test_unload_leaves_the_models_of_an_ensemble_unless_asked(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        await lifecycle.unload("e")
        await gone(lifecycle)
        assert states(lifecycle) == {"a": "READY", "e": "UNAVAILABLE"}
        assert is_ready(lifecycle)

    world.run(test)


def test_unload_dependents_spares_what_was_asked_for_or_is_still_needed(world: World) -> None:
    world.add_steps("asked", "shared", "own", "inner")
    world.add_ensemble("below", "inner", "shared")
    world.add_ensemble("e", "asked", "shared", "own", "below")
    world.add_ensemble("other", "shared")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("asked", {})
        await lifecycle.load("e", {})
        await lifecycle.load("other", {})
        await lifecycle.unload("e", unload_dependents=True)
        await gone(lifecycle)
        ready = {name for name, state in states(lifecycle).items() if state == "READY"}
        assert ready == {"asked", "shared", "other"}
        assert reason(lifecycle, "below") == reason(lifecycle, "inner") == "unloaded"
        await lifecycle.unload("other", unload_dependents=True)
        await gone(lifecycle)
        assert states(lifecycle)["shared"] == "UNAVAILABLE"
        assert is_ready(lifecycle)

    world.run(test)


def test_models_that_the_command_line_names_are_spared(world: World) -> None:
    world.add_steps("a", "b")
    world.add_ensemble("e", "a", "b")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.unload("e", unload_dependents=True)
        await gone(lifecycle)
        assert states(lifecycle) == {"a": "READY", "b": "UNAVAILABLE", "e": "UNAVAILABLE"}

    world.run(test, load_models=("e", "a"))


def test_model_unloaded_and_brought_back_by_an_ensemble_is_no_longer_asked_for(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("a", {})
        await lifecycle.unload("a")
        await lifecycle.load("e", {})
        await lifecycle.unload("e", unload_dependents=True)
        await gone(lifecycle)
        assert states(lifecycle) == {"a": "UNAVAILABLE", "e": "UNAVAILABLE"}

    world.run(test)


def test_unload_dependents_of_a_plain_or_unknown_model_is_a_plain_unload(world: World) -> None:
    world.add_steps("a", "b")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("a", {})
        await lifecycle.load("b", {})
        await lifecycle.unload("nowhere", unload_dependents=True)
        await lifecycle.unload("a", unload_dependents=True)
        await gone(lifecycle)
        assert states(lifecycle) == {"a": "UNAVAILABLE", "b": "READY"}

    world.run(test)


def test_model_of_an_ensemble_finishes_the_requests_of_the_ensemble_before_it_goes(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        e, a = ensemble(lifecycle), found(lifecycle, "a")
        e.begin()
        await lifecycle.unload("a")
        assert states(lifecycle) == {"a": "UNLOADING", "e": "UNLOADING"}
        with pytest.raises(NotFoundError):
            lifecycle.find("a")
        for _ in range(5):
            await asyncio.sleep(0)
        assert e.stopped
        cast(FakeModel, e.find("a", -1)).begin()  # which refuses if it has stopped
        e.end()
        for _ in range(5):
            await asyncio.sleep(0)
        assert a.stopped
        assert states(lifecycle) == {"a": "UNLOADING", "e": "UNAVAILABLE"}
        a.end()
        await gone(lifecycle)
        assert states(lifecycle) == {"a": "UNAVAILABLE", "e": "UNAVAILABLE"}

    world.run(test)


def test_model_that_comes_back_while_its_ensemble_still_drains(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        old = ensemble(lifecycle)
        old.begin()
        await lifecycle.unload("a")
        await lifecycle.load("a", {})
        assert states(lifecycle) == {"a": "READY", "e": "READY"}
        assert ensemble(lifecycle) is not old
        assert ensemble(lifecycle).find("a", -1) is not old.find("a", -1)
        old.end()
        await gone(lifecycle)
        assert states(lifecycle) == {"a": "READY", "e": "READY"}

    world.run(test)


# Reloading what an ensemble needs


def test_requests_in_flight_finish_with_the_models_that_they_began_with(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")
    world.add_ensemble("over", "e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("over", {})
        e, over, a = ensemble(lifecycle), ensemble(lifecycle, "over"), found(lifecycle, "a")
        over.begin()
        (world.repository / "a" / "1" / "weights").write_bytes(b"x")
        await lifecycle.load("a", {})
        for _ in range(5):
            await asyncio.sleep(0)
        assert over.find("e", -1) is e
        assert over.find("a", -1) is e.find("a", -1) is a
        assert (over.stopped, e.stopped, a.stopped) == (True, False, False)
        now = ensemble(lifecycle, "over")
        assert now.find("a", -1) is ensemble(lifecycle).find("a", -1) is lifecycle.find("a")
        assert now.find("e", -1) is lifecycle.find("e")
        over.end()
        await gone(lifecycle)
        assert e.stopped
        assert a.stopped
        assert now.statistics is over.statistics
        assert set(states(lifecycle).values()) == {"READY"}

    world.run(test)


def test_model_that_no_longer_fits_makes_its_ensemble_unavailable_until_it_fits_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add_steps("a", "b")
    world.add_ensemble("e", "a", "b")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        in_flight = ensemble(lifecycle)
        in_flight.begin()
        await lifecycle.load("b", {"config": INTEGERS})
        assert await lifecycle.model_ready("b")
        in_flight.end()
        await gone(lifecycle)
        assert "inconsistent data type: TYPE_FP32 is inferred from model" in caplog.text
        assert reason(lifecycle) == "unloaded"
        assert not await lifecycle.model_ready("e")
        await lifecycle.unload("b")
        await lifecycle.load("b", {})
        assert await lifecycle.model_ready("e")
        assert is_ready(lifecycle)

    world.run(test)


def test_failed_reload_of_a_model_leaves_its_ensemble_alone(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        before = lifecycle.find("e")
        (world.repository / "a" / "1" / "weights").write_bytes(b"x")
        world.fail("a", 1, InternalError("no memory"))
        assert "no memory" in await refusal(lifecycle, "a")
        assert lifecycle.find("e") is before

    world.run(test)


def test_failed_reload_of_an_ensemble_leaves_it_as_it_was(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        before = lifecycle.find("e")
        world.add_ensemble("e", "a", "nope")
        assert "not available or ambiguous: nope" in await refusal(lifecycle, "e")
        assert lifecycle.find("e") is before
        assert rows(lifecycle)[1] == ("e", "1", "READY", "")
        await lifecycle.unload("a")
        await lifecycle.load("a", {})
        assert await lifecycle.model_ready("e"), "what served before comes back"

    world.run(test)


def test_ensemble_can_become_a_model_and_a_model_an_ensemble(world: World) -> None:
    world.add_steps("a", "m")
    world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        await lifecycle.load("m", {})
        world.add_steps("e")
        world.add_ensemble("m", "a")
        await lifecycle.load("e", {})
        await lifecycle.load("m", {})
        await gone(lifecycle)
        kinds = [type(found(lifecycle, name)) for name in ("m", "e")]
        assert kinds == [FakeEnsemble, FakeModel]
        await lifecycle.unload("a")
        assert await lifecycle.model_ready("e")
        assert not await lifecycle.model_ready("m")

    world.run(test)


# Polling


def test_ensemble_is_loaded_when_the_model_that_it_lacks_appears(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a", "late")
    world.add_ensemble("over", "e")

    async def test(lifecycle: Lifecycle) -> None:
        assert states(lifecycle) == {"a": "READY", "e": "", "over": ""}
        (world.repository / "a" / "1" / "weights").write_bytes(b"x")
        await settle(lifecycle)
        assert states(lifecycle) == {"a": "READY", "e": "", "over": ""}
        world.add_steps("late")
        await settle(lifecycle)
        assert set(states(lifecycle).values()) == {"READY"}
        assert is_ready(lifecycle)
        shutil.rmtree(world.repository / "late")
        await settle(lifecycle)
        await gone(lifecycle)
        assert {n for n, state in states(lifecycle).items() if state == "READY"} == {"a"}
        assert is_ready(lifecycle)
        world.add_steps("late")
        await settle(lifecycle)
        assert is_ready(lifecycle)
        assert await lifecycle.model_ready("over")

    world.run(test, ControlMode.POLL)


def test_ensemble_that_appears_with_its_models_is_loaded_after_them(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        world.add_ensemble("a", "z")
        world.add_steps("z")
        await settle(lifecycle)
        assert states(lifecycle) == {"a": "READY", "z": "READY"}
        assert not any(name == "a" and state == "UNAVAILABLE" for name, _, state, _ in world.progress)

    world.run(test, ControlMode.POLL)


def test_ensemble_that_vanishes_leaves_its_models(world: World) -> None:
    world.add_steps("a")
    directory = world.add_ensemble("e", "a")

    async def test(lifecycle: Lifecycle) -> None:
        shutil.rmtree(directory)
        await settle(lifecycle)
        await gone(lifecycle)
        assert states(lifecycle) == {"a": "READY"}
        assert not await lifecycle.model_ready("e")
        (world.repository / "a" / "1" / "weights").write_bytes(b"x")
        await settle(lifecycle)
        assert states(lifecycle) == {"a": "READY"}

    world.run(test, ControlMode.POLL)


# Stopping


def test_stop_lets_ensembles_finish_with_models_that_still_answer_them(world: World) -> None:
    world.add_steps("a", "b", "free")
    world.add_ensemble("inner", "a")
    world.add_ensemble("outer", "inner")
    world.add_ensemble("idle", "b")

    async def run() -> None:
        lifecycle = world.lifecycle(ControlMode.NONE)
        await lifecycle.start()
        a, b, free = (found(lifecycle, name) for name in ("a", "b", "free"))
        outer, inner, idle = (ensemble(lifecycle, name) for name in ("outer", "inner", "idle"))
        outer.begin()
        stopping = asyncio.create_task(lifecycle.stop(10))
        await asyncio.sleep(0)
        assert (outer.stopped, idle.stopped, b.stopped, free.stopped) == (True, True, True, True)
        with pytest.raises(UnavailableError, match="Server is stopping"):
            lifecycle.find("a")
        with pytest.raises(UnavailableError, match="Server is stopping"):
            lifecycle.find("inner", 1)
        for model in (inner, a):  # they refuse if they have stopped
            model.begin()
            model.end()
        outer.end()
        assert await stopping
        assert a.stopped
        assert inner.stopped
        assert world.open == []
        assert {name: state for name, _, state, _ in rows(lifecycle)} == dict.fromkeys(
            ("a", "b", "free", "idle", "inner", "outer"), "UNAVAILABLE"
        )
        assert {why for _, _, _, why in rows(lifecycle)} == {"unloaded"}

    asyncio.run(run())


def test_ensemble_that_loads_while_the_server_stops_is_given_up(world: World) -> None:
    world.add_steps("a")
    world.add_ensemble("e", "a")
    release = world.block("a")

    async def run() -> None:
        lifecycle = world.lifecycle()
        await lifecycle.start()
        loading = asyncio.create_task(lifecycle.load("e", {}))
        await world.begun("a")
        stopping = asyncio.create_task(lifecycle.stop(10))
        await asyncio.sleep(0)
        release()
        with pytest.raises(HalimedeError, match="Server is stopping"):
            await loading
        assert await stopping
        assert world.open == []

    asyncio.run(run())


def test_models_and_ensembles_that_come_and_go_all_at_once_end_in_order(world: World) -> None:
    world.add_steps("a", "b", "c")
    world.add_ensemble("e", "a", "b")
    world.add_ensemble("f", "b", "e", "c")
    names = ("a", "b", "c", "e", "f")

    async def test(lifecycle: Lifecycle) -> None:
        for turn in range(20):
            work = [lifecycle.load(name, {}) for name in names[turn % 5 :] + names[: turn % 5]]
            work += [lifecycle.unload(names[(turn + step) % 5], bool(step)) for step in range(2)]
            await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), 60)
            await lifecycle.load("f", {})
            f, e = ensemble(lifecycle, "f"), ensemble(lifecycle)
            assert [f.find(name, -1) for name in ("b", "e", "c")] == [
                lifecycle.find(name) for name in ("b", "e", "c")
            ]
            assert [e.find(name, -1) for name in ("a", "b")] == [lifecycle.find(name) for name in ("a", "b")]

    world.run(test)
