import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from halimede.core.errors import HalimedeError, InternalError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import FakeModel, World, gone, is_live, make_world, rows
from tests.repository.agents.agents import agents_text, write_agent
from tests.support.waiting import wait_until_async

METHODS = ("load", "load_complete", "load_fail", "unload", "unload_complete")


class Agents:
    """Agents that note what they are told, in one file for all.

    Attributes:
        directory: where they are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "agents"
        self._notes = directory / "notes"
        self._notes.touch()

    def add(self, name: str, **bodies: str) -> str:
        """An agent that does no more than that, but for some methods, whose last lines are given; its name."""
        methods = []
        for method in METHODS:
            methods.append(
                f"def {method}(self, model):\n"
                f"    note('{name} {method.upper()}', model)\n"
                f"    {bodies.get(method, 'pass')}\n"
            )
        head = (
            f"import os, pathlib, shutil, time\n"
            f"def note(text, model):\n"
            f"    with open({str(self._notes)!r}, 'a') as notes:\n"
            f"        notes.write(f'{{text}} {{model.parameters.get(\"tag\", \"\")}}'.strip() + '\\n')\n"
        )
        write_agent(self.directory, name, "\n".join(methods), head)
        return name

    def noted(self) -> list[str]:
        """What the agents noted since `told` was called last."""
        return self._notes.read_text().splitlines()

    def told(self) -> list[str]:
        """What the agents noted since the last look."""
        noted = self.noted()
        self._notes.write_text("")
        return noted


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    return Agents(tmp_path)


@pytest.fixture
def run(world: World, agents: Agents) -> Callable[..., None]:
    def run(test: Any, mode: ControlMode = ControlMode.EXPLICIT, **settings: Any) -> None:
        world.run(test, mode, repoagent_directory=agents.directory, **settings)

    return run


def scratch(world: World) -> list[Path]:
    """The directories that agents may write to."""
    [directory] = world.temporary()
    return list(directory.iterdir())


async def refusal(lifecycle: Lifecycle, name: str) -> str:
    with pytest.raises(HalimedeError) as caught:
        await lifecycle.load(name, {})
    return caught.value.message


def model(lifecycle: Lifecycle, name: str) -> FakeModel:
    return cast(FakeModel, lifecycle.find(name))


POLLED = "failed to load 'm', failed to poll from model repository: "


# What goes wrong


def test_an_agent_that_refuses_fails_the_load_and_those_before_it_are_told(
    world: World, agents: Agents, run: Callable[..., None]
) -> None:
    agents.add("one")
    agents.add("two", load='model.refuse("no licence")')
    agents.add("three")
    world.add("m", config=agents_text(("one", {}), ("two", {}), ("three", {})))
    world.add("other")

    async def test(lifecycle: Lifecycle) -> None:
        assert await refusal(lifecycle, "m") == f"{POLLED}agent 'two' refused LOAD: no licence"
        assert agents.told() == ["one LOAD", "two LOAD", "two LOAD_FAIL", "one LOAD_FAIL"]
        assert scratch(world) == []
        await lifecycle.load("other", {})
        assert await lifecycle.model_ready("other")

    run(test)
    assert agents.told() == []
    assert world.loads == [("other", 1)]


def test_a_refusal_leaves_what_served_before(world: World, agents: Agents, run: Callable[..., None]) -> None:
    agents.add("a", load="if (model.location / 'bad').exists(): model.refuse('bad files')")
    directory = world.add("m", config=agents_text(("a", {})))

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        served = model(lifecycle, "m")
        (directory / "bad").touch()
        assert "agent 'a' refused LOAD: bad files" in await refusal(lifecycle, "m")
        assert model(lifecycle, "m") is served
        assert agents.told() == ["a LOAD", "a LOAD_COMPLETE", "a LOAD", "a LOAD_FAIL"]

    run(test)
    assert agents.told() == ["a UNLOAD", "a UNLOAD_COMPLETE"]


def test_an_agent_that_hangs_is_stopped_while_other_models_are_loaded(
    world: World, agents: Agents, run: Callable[..., None]
) -> None:
    agents.add("a", load="time.sleep(1000)")
    agents.add("good")
    world.add("m", config=agents_text(("a", {})))
    world.add("other", config=agents_text(("good", {})))

    async def test(lifecycle: Lifecycle) -> None:
        assert await lifecycle.model_ready("other")
        assert is_live(lifecycle)
        [row] = [row for row in rows(lifecycle) if row[0] == "m"]
        assert row == ("m", None, "", "")

    run(test, ControlMode.NONE, repoagent_timeout_secs=5)
    assert sorted(agents.told()) == sorted(
        ["a LOAD", "a LOAD_FAIL", "good LOAD", "good LOAD_COMPLETE", "good UNLOAD", "good UNLOAD_COMPLETE"]
    )


@pytest.mark.parametrize("method", ["load_complete", "unload", "unload_complete"])
def test_failures_after_the_load_are_logged_and_all_agents_get_their_turn(
    world: World, agents: Agents, run: Callable[..., None], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    agents.add("one", **{method: "raise ValueError('one too many')"})
    agents.add("two", **{method: "raise ValueError('two too many')"})
    world.add("m", config=agents_text(("one", {}), ("two", {})))

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        assert await lifecycle.model_ready("m")
        await lifecycle.unload("m")
        await gone(lifecycle)

    run(test)
    assert agents.told() == [
        "one LOAD", "two LOAD", "two LOAD_COMPLETE", "one LOAD_COMPLETE",
        "one UNLOAD", "two UNLOAD", "two UNLOAD_COMPLETE", "one UNLOAD_COMPLETE",
    ]  # fmt: skip
    for name in ("one", "two"):
        text = f"model 'm': agent '{name}' failed at {method.upper()}: ValueError: {name} too many"
        assert text in caplog.messages


def test_a_load_that_fails_is_told_to_the_agents(
    world: World, agents: Agents, run: Callable[..., None]
) -> None:
    agents.add("one")
    agents.add("two", load="model.copy()", load_fail="raise KeyError('late')")
    world.add("m", config=agents_text(("one", {}), ("two", {})))
    world.fail("m", 1, InternalError("broken"))

    async def test(lifecycle: Lifecycle) -> None:
        assert "version 1 is at UNAVAILABLE state: Internal: broken" in await refusal(lifecycle, "m")
        assert agents.told() == ["one LOAD", "two LOAD", "two LOAD_FAIL", "one LOAD_FAIL"]
        assert scratch(world) == []

    run(test)


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (
            "model.update_location('/nowhere')",
            "agent 'a' failed at LOAD: '/nowhere', from which it has the model loaded, is not a directory",
        ),
        ("shutil.rmtree(model.location)", "is not a directory"),
        (
            "shutil.rmtree(model.location / '1')",
            "at least one version must be available under the version policy",
        ),
        ("model.update_location(model.acquire_location())", "Could not determine backend for model 'm'"),
        ("(model.copy() / 'config.pbtxt').write_text('nonsense {')", "failed to read"),
    ],
)
def test_what_an_agent_does_to_the_files_is_an_error_of_this_model_alone(
    world: World, agents: Agents, run: Callable[..., None], load: str, text: str
) -> None:
    agents.add("a", load=load)
    world.add("m", config=agents_text(("a", {})))
    world.add("other")

    async def test(lifecycle: Lifecycle) -> None:
        assert text in await refusal(lifecycle, "m")
        assert agents.told() == ["a LOAD", "a LOAD_FAIL"]
        await lifecycle.load("other", {})

    run(test)


@pytest.mark.parametrize("name", ["nosuch", "", "../agents/a"])
def test_an_agent_that_is_not_there_fails_the_load_before_any_has_its_turn(
    world: World, agents: Agents, run: Callable[..., None], name: str
) -> None:
    agents.add("a")
    world.add("m", config=agents_text(("a", {}), (name, {"key": "hunter2"})))

    async def test(lifecycle: Lifecycle) -> None:
        text = await refusal(lifecycle, "m")
        assert text.startswith(f"{POLLED}unable to find 'agent.py' for repo agent '{name}', searched: ")
        assert agents.told() == []

    run(test)


def test_secrets_are_neither_logged_nor_told(
    world: World, agents: Agents, run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    agents.add("a", load="print(model.parameters); raise ValueError(model.parameters['key'])")
    world.add("m", config=agents_text(("a", {"key": "hunter2-hunter2"})))

    async def test(lifecycle: Lifecycle) -> None:
        assert (await refusal(lifecycle, "m")).endswith("agent 'a' failed at LOAD: ValueError: <key>")
        assert "hunter2" not in repr(rows(lifecycle))

    with caplog.at_level(logging.DEBUG):
        run(test)
    assert "agent 'a' of 'm': {'key': '<key>'}" in caplog.messages
    assert "hunter2" not in caplog.text


# What agents are for


def test_a_model_is_loaded_from_where_its_agents_say(
    world: World, agents: Agents, run: Callable[..., None]
) -> None:
    agents.add("one", load="(model.copy() / '1' / 'weights').write_text('1')")
    agents.add(
        "two",
        load="assert (model.location / '1' / 'weights').exists(); (model.copy() / '1' / 'more').touch()",
    )
    directory = world.add("m", config=agents_text(("one", {}), ("two", {})))

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        assert model(lifecycle, "m").loaded.files == ["more", "weights"]
        assert list((directory / "1").iterdir()) == []
        [directory_of_agents] = scratch(world)
        assert directory_of_agents.stat().st_mode & 0o077 == 0
        await lifecycle.unload("m")
        await gone(lifecycle)

    run(test)


def test_an_unchanged_model_is_not_shown_to_its_agents_again(
    world: World, agents: Agents, run: Callable[..., None]
) -> None:
    agents.add("a")
    world.add("m", config=agents_text(("a", {})))

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        await lifecycle.load("m", {})
        assert agents.told() == ["a LOAD", "a LOAD_COMPLETE"]

    run(test)


def test_a_reload_ends_the_old_files_when_their_requests_are_answered(
    world: World, agents: Agents, run: Callable[..., None]
) -> None:
    agents.add("a", load="model.copy()")
    agents.add("b")
    directory = world.add("m", config=agents_text(("a", {"tag": "old"})))
    world.add("other", config=agents_text(("b", {})))

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        old = model(lifecycle, "m")
        old.begin()
        [old_files] = scratch(world)
        world.add("m", config=agents_text(("a", {"tag": "new"})))
        await lifecycle.load("m", {})
        assert model(lifecycle, "m") is not old
        await wait_until_async(lambda: "a UNLOAD old" in agents.noted())
        await lifecycle.load("other", {})  # as many calls of agents as would be enough to end the old files
        assert "a UNLOAD_COMPLETE old" not in agents.noted()
        assert old_files in scratch(world)
        old.end()
        await lifecycle.unload("m")
        await gone(lifecycle)
        assert directory.exists()

    run(test)
    told = agents.told()
    assert [line for line in told if line.endswith("old")] == [
        "a LOAD old", "a LOAD_COMPLETE old", "a UNLOAD old", "a UNLOAD_COMPLETE old",
    ]  # fmt: skip
    assert [line for line in told if line.endswith("new")] == [
        "a LOAD new", "a LOAD_COMPLETE new", "a UNLOAD new", "a UNLOAD_COMPLETE new",
    ]  # fmt: skip


def test_agents_of_a_load_requests_configuration_see_its_files(
    world: World, agents: Agents, run: Callable[..., None]
) -> None:
    agents.add("a", load="(model.copy() / '1' / 'more').touch()")
    config = '{"backend": "identity", "model_repository_agents": {"agents": [{"name": "a"}]}}'

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {"config": config, "file:1/weights": b"w"})
        assert model(lifecycle, "m").loaded.files == ["more", "weights"]
        assert agents.told() == ["a LOAD", "a LOAD_COMPLETE"]

    run(test)
    assert agents.told() == ["a UNLOAD", "a UNLOAD_COMPLETE"]


def test_ensembles_have_agents_too(world: World, agents: Agents, run: Callable[..., None]) -> None:
    agents.add("a")
    world.add_steps("step")
    directory = world.add_ensemble("e", "step")
    config = directory / "config.pbtxt"
    config.write_text(config.read_text() + agents_text(("a", {})))

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("e", {})
        assert agents.told() == ["a LOAD", "a LOAD_COMPLETE"]
        await lifecycle.unload("step")
        await lifecycle.load("step", {})
        assert await lifecycle.model_ready("e")
        assert agents.told() == []

    run(test)
    assert agents.told() == ["a UNLOAD", "a UNLOAD_COMPLETE"]


def test_a_model_whose_directory_goes_is_unloaded_by_its_agents(
    world: World, agents: Agents, run: Callable[..., None]
) -> None:
    agents.add("a", load="model.copy()")
    directory = world.add("m", config=agents_text(("a", {})))

    async def test(lifecycle: Lifecycle) -> None:
        directory.rename(world.directory / "away")
        await lifecycle.poll()
        await lifecycle.poll()
        await gone(lifecycle)

    run(test, ControlMode.POLL)
    assert agents.told() == ["a LOAD", "a LOAD_COMPLETE", "a UNLOAD", "a UNLOAD_COMPLETE"]
