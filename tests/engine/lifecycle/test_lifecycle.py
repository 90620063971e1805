import asyncio
import logging
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.lifecycle.model_loader import ModelLoader
from halimede.engine.lifecycle.version_states import LEGAL_MOVES, Version, VersionState
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import FakeModel, World, gone, is_live, is_ready, make_world, rows
from tests.support.waiting import wait_until_async


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


def found(lifecycle: Lifecycle, name: str, version: int = -1) -> FakeModel:
    return cast(FakeModel, lifecycle.find(name, version))


async def error_of(awaitable: Any) -> HalimedeError:
    with pytest.raises(HalimedeError) as caught:
        await awaitable
    return caught.value


# Start


def test_every_model_is_loaded_at_start(world: World) -> None:
    world.add("a", (1, 2))
    world.add("b")

    async def test(lifecycle: Lifecycle) -> None:
        assert is_ready(lifecycle)
        assert found(lifecycle, "a").version == 2
        assert [(model.name, model.version) for model in lifecycle.loaded_models()] == [("a", 2), ("b", 1)]
        assert rows(lifecycle) == [("a", "2", "READY", ""), ("b", "1", "READY", "")]

    world.run(test, ControlMode.NONE)


@pytest.mark.parametrize(("wanted", "loaded"), [((), []), (("b", "b"), ["b"]), (("*",), ["a", "b"])])
def test_explicit_mode_loads_what_was_asked_for(
    world: World, wanted: tuple[str, ...], loaded: list[str]
) -> None:
    world.add("a")
    world.add("b")

    async def test(lifecycle: Lifecycle) -> None:
        assert is_ready(lifecycle)
        assert [model.name for model in lifecycle.loaded_models()] == loaded
        assert [row.name for row in lifecycle.index()] == ["a", "b"]
        assert [row.name for row in lifecycle.index(ready_only=True)] == loaded

    world.run(test, load_models=wanted)


def test_wildcard_must_be_alone(world: World) -> None:
    async def run() -> None:
        error = await error_of(world.lifecycle(load_models=("*", "a")).start())
        assert str(error) == "Wildcard model name '*' must be the ONLY startup model if specified at all."

    asyncio.run(run())


def test_missing_repository_stops_the_start(world: World) -> None:
    world.others.append(world.directory / "nowhere")

    async def run() -> None:
        error = await error_of(world.lifecycle().start())
        assert "nowhere' cannot be read (No such file or directory)" in str(error)

    asyncio.run(run())


def test_start_tells_whether_all_models_are_ready(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.add("good")
    world.add("broken")
    world.add("unreadable", config="nonsense {")
    world.fail("broken", 1, InternalError("out of luck"))

    async def run() -> None:
        lifecycle = world.lifecycle(ControlMode.NONE)
        assert is_live(lifecycle)
        assert not is_ready(lifecycle)
        assert not await lifecycle.start()
        assert not is_ready(lifecycle)
        broken, good, unreadable = rows(lifecycle)
        assert broken == ("broken", "1", "UNAVAILABLE", "Internal: out of luck")
        assert good == ("good", "1", "READY", "")
        assert unreadable == ("unreadable", None, "", "")
        assert await lifecycle.stop(1)

    with caplog.at_level(logging.INFO, "halimede"):
        asyncio.run(run())
    messages = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", "loading: broken:1") in messages
    assert ("ERROR", "failed to load 'broken' version 1: Internal: out of luck") in messages
    assert ("INFO", "failed to load 'broken'") in messages
    assert ("INFO", "successfully loaded 'good'") in messages
    assert ("INFO", "successfully unloaded 'good' version 1") in messages
    assert any(
        m.startswith("Poll failed for model directory 'unreadable': failed to read") for _, m in messages
    )


def test_without_strict_readiness_a_broken_model_does_not_matter(world: World) -> None:
    world.add("m")
    world.fail("m", 1, InternalError("no"))

    async def test(lifecycle: Lifecycle) -> None:
        assert is_ready(lifecycle)

    world.run(test, ControlMode.NONE, strict_readiness=False)


def test_unknown_or_impossible_start_models_are_failures(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        assert is_ready(lifecycle)
        assert rows(lifecycle) == []

    world.run(test, load_models=("nowhere", "../x", ""))


@pytest.mark.parametrize("mode", [ControlMode.NONE, ControlMode.POLL])
def test_load_and_unload_need_explicit_mode(world: World, mode: ControlMode) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        for call in (lifecycle.load("m", {}), lifecycle.unload("m")):
            error = await error_of(call)
            assert isinstance(error, UnavailableError)
            assert str(error) == "explicit model load / unload is not allowed if polling is enabled"

    world.run(test, mode)


# Finding


def test_errors_say_what_is_missing(world: World) -> None:
    world.add("m", (1, 2, 3), "version_policy { specific { versions: [1, 2] } }")

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(NotFoundError, match=r"'m' is not found\. It is in a repository, but not loaded$"):
            lifecycle.find("m")
        with pytest.raises(NotFoundError, match=r"'m' is not found\. It is in a repository, but not loaded$"):
            lifecycle.versions("m")
        with pytest.raises(NotFoundError, match=r"'m' is not found\. It is in a repository, but not loaded$"):
            await lifecycle.model_ready("m")
        await lifecycle.load("m", {})
        assert found(lifecycle, "m").version == 2
        assert found(lifecycle, "m", 1).version == 1
        assert lifecycle.versions("m") == [1, 2]
        assert await lifecycle.model_ready("m")
        assert await lifecycle.model_ready("m", 1)
        assert not await lifecycle.model_ready("m", 3)
        with pytest.raises(
            NotFoundError,
            match=r"^Request for unknown model: 'm' version 3 is not found. Its versions are: 1, 2$",
        ):
            lifecycle.find("m", 3)
        await lifecycle.unload("m")
        with pytest.raises(
            NotFoundError, match=r"^Request for unknown model: 'm' has no available versions$"
        ):
            lifecycle.find("m")
        with pytest.raises(
            UnavailableError, match=r"^Request for unknown model: 'm' version 1 is not at ready state$"
        ):
            lifecycle.find("m", 1)
        assert lifecycle.versions("m") == []
        assert not await lifecycle.model_ready("m")

    world.run(test)


# Load


@pytest.mark.parametrize("name", [".", "a\0b"])
def test_names_of_no_directory_are_not_found(world: World, name: str) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        brought: list[dict[str, str | bytes]] = [{}, {"config": "{}"}, {"config": "{}", "file:1/model": b""}]
        for parameters in brought:
            error = await error_of(lifecycle.load(name, parameters))
            assert isinstance(error, InternalError)
            assert str(error).startswith(f"failed to load '{name}', failed to poll from model repository")
        assert rows(lifecycle) == [("m", None, "", "")]
        assert is_ready(lifecycle)

    world.run(test)


BLANK = "Model name cannot be empty. Please enter a valid name to deploy."
TRAVERSING = "invalid model name '{}', model name must not contain path traversal characters"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", BLANK),
        ("  ", BLANK),
        *((name, TRAVERSING.format(name)) for name in ("..", "...", "a..b", "../m", "/m", "m/")),
    ],
)
def test_names_that_no_model_can_have_are_refused(world: World, name: str, text: str) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        error = await error_of(lifecycle.load(name, {}))
        assert isinstance(error, InvalidArgumentError)
        assert str(error) == text
        assert rows(lifecycle) == [("m", None, "", "")]

    world.run(test)


@pytest.mark.parametrize("name", ["nowhere", "n" * 300])
def test_loading_what_is_not_there_leaves_nothing(world: World, name: str) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        error = await error_of(lifecycle.load(name, {}))
        assert isinstance(error, InternalError)
        assert str(error).startswith(f"failed to load '{name}', failed to poll from model repository")
        assert rows(lifecycle) == []
        assert is_ready(lifecycle)
        await lifecycle.unload(name)

    world.run(test)


def test_failed_load_says_why_and_can_be_repeated(world: World) -> None:
    world.add("m")
    world.fail("m", 1, InternalError("no memory"), UnsupportedError("no such operator"))

    async def test(lifecycle: Lifecycle) -> None:
        error = await error_of(lifecycle.load("m", {}))
        assert isinstance(error, InvalidArgumentError)
        assert str(error) == (
            "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: no memory;\n"
        )
        assert rows(lifecycle) == [("m", "1", "UNAVAILABLE", "Internal: no memory")]
        assert not is_ready(lifecycle)
        with pytest.raises(NotFoundError, match="has no available versions"):
            lifecycle.find("m")
        await error_of(lifecycle.load("m", {}))
        assert rows(lifecycle) == [("m", "1", "UNAVAILABLE", "Unsupported: no such operator")]
        await lifecycle.unload("m")
        assert rows(lifecycle) == [("m", "1", "UNAVAILABLE", "Unsupported: no such operator")]
        assert is_ready(lifecycle)
        await lifecycle.load("m", {})
        assert rows(lifecycle) == [("m", "1", "READY", "")]

    world.run(test)


def test_directory_of_another_name_is_refused(world: World) -> None:
    world.add("m", config='name: "other"')

    async def test(lifecycle: Lifecycle) -> None:
        why = "unexpected directory name 'm' for model 'other', directory name must equal model name"
        error = await error_of(lifecycle.load("m", {}))
        assert str(error) == f"failed to load 'm', failed to poll from model repository: {why}"
        assert rows(lifecycle) == [("m", None, "", "")]
        assert is_ready(lifecycle)
        for version in (-1, 1):
            with pytest.raises(
                NotFoundError,
                match=r"'m' is not found\. It is in a repository, but not loaded$",
            ):
                lifecycle.find("m", version)
        with pytest.raises(NotFoundError, match=r"'m' is not found\. It is in a repository, but not loaded$"):
            lifecycle.versions("m")
        world.add("m")
        await lifecycle.load("m", {})
        assert rows(lifecycle) == [("m", "1", "READY", "")]

    world.run(test)


def test_configuration_that_is_wrong_by_itself_is_refused_before_anything_is_loaded(world: World) -> None:
    world.add("m", config="max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }")

    async def test(lifecycle: Lifecycle) -> None:
        error = await error_of(lifecycle.load("m", {}))
        assert type(error) is InternalError
        assert str(error) == (
            "failed to load 'm', failed to poll from model repository: "
            "dynamic batching preferred size must be <= max batch size for m"
        )
        override = {"config": '{"backend": "identity", "max_batch_size": -1}'}
        error = await error_of(lifecycle.load("m", override))
        assert type(error) is InternalError
        assert str(error) == (
            "failed to load 'm', failed to poll from model repository: "
            "'max_batch_size' must be non-negative value for m"
        )
        assert world.loads == []

    world.run(test)


@pytest.mark.parametrize("exit_on_error", [True, False])
def test_server_that_is_about_to_end_is_not_ready(world: World, exit_on_error: bool) -> None:
    world.add("good")
    world.add("bad", config="max_batch: 3")

    async def test(lifecycle: Lifecycle) -> None:
        # readiness does not wait for a configuration that cannot be read, but the process ends for it
        assert is_ready(lifecycle) is not exit_on_error

    world.run(test, ControlMode.NONE, exit_on_error=exit_on_error)


def test_refused_configuration_leaves_versions_as_they_were(world: World) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        world.add("m", config='name: "other"')
        assert "failed to poll" in str(await error_of(lifecycle.load("m", {})))
        assert rows(lifecycle) == [("m", "1", "READY", "")]
        assert is_ready(lifecycle)
        await lifecycle.unload("m")
        await gone(lifecycle)
        assert "failed to poll" in str(await error_of(lifecycle.load("m", {})))
        assert rows(lifecycle) == [("m", "1", "UNAVAILABLE", "unloaded")]
        with pytest.raises(
            NotFoundError, match=r"^Request for unknown model: 'm' has no available versions$"
        ):
            lifecycle.find("m")

    world.run(test)


@pytest.mark.parametrize(
    ("versions", "policy"),
    [((1,), "latest { num_versions: 0 }"), ((1,), "specific { versions: [3] }"), ((), "all {}")],
)
def test_model_without_a_version_that_its_policy_selects_does_not_load(
    world: World, versions: tuple[int, ...], policy: str
) -> None:
    directory = world.add("m", (1,), f"version_policy {{ {policy} }}")
    if not versions:
        (directory / "1").rmdir()
    (world.repository / "m" / "01").mkdir(parents=True)
    why = "at least one version must be available under the version policy of model 'm'"

    async def test(lifecycle: Lifecycle) -> None:
        error = await error_of(lifecycle.load("m", {}))
        assert type(error) is InvalidArgumentError
        assert str(error) == f"load failed for model 'm': {why}\n"
        assert rows(lifecycle) == []
        assert not is_ready(lifecycle)
        with pytest.raises(
            NotFoundError, match=r"^Request for unknown model: 'm' has no available versions$"
        ):
            lifecycle.find("m")
        with pytest.raises(NotFoundError, match=r"^Request for unknown model: 'm' version 1 is not found$"):
            lifecycle.find("m", 1)
        world.add("m")
        await lifecycle.load("m", {})
        assert rows(lifecycle) == [("m", "1", "READY", "")]
        world.add("m", config="version_policy { latest { num_versions: 0 } }")
        assert why in str(await error_of(lifecycle.load("m", {})))
        assert rows(lifecycle) == [("m", "1", "READY", "")]
        assert is_ready(lifecycle)

    world.run(test)


def test_all_versions_load_or_none(world: World) -> None:
    world.add("m", (1, 2, 3), "version_policy { all {} }")
    world.fail("m", 2, InternalError("bad"))

    async def test(lifecycle: Lifecycle) -> None:
        error = await error_of(lifecycle.load("m", {}))
        assert "version 2 is at UNAVAILABLE state: Internal: bad;\n" in str(error)
        assert world.open == []
        assert [row[2:] for row in rows(lifecycle)] == [
            ("UNAVAILABLE", "unloaded"),
            ("UNAVAILABLE", "Internal: bad"),
            ("UNAVAILABLE", "unloaded"),
        ]
        assert lifecycle.loaded_models() == []
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [1, 2, 3]

    world.run(test)


def test_failed_load_is_tried_again_as_often_as_set(world: World) -> None:
    world.add("m")
    world.fail("m", 1, InternalError("1"), InternalError("2"), InternalError("3"), InternalError("4"))

    async def test(lifecycle: Lifecycle) -> None:
        error = await error_of(lifecycle.load("m", {}))
        assert "Internal: 3;" in str(error)
        await lifecycle.load("m", {})
        assert world.loads == [("m", 1)] * 5

    world.run(test, load_retry_count=2)


def test_progress_is_told(world: World) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        await lifecycle.unload("m")
        await gone(lifecycle)
        assert world.progress == [
            ("m", 1, "LOADING", ""),
            ("m", 1, "READY", ""),
            ("m", 1, "UNLOADING", ""),
            ("m", 1, "UNAVAILABLE", "unloaded"),
        ]

    world.run(test)


# Reload


def test_old_version_serves_until_the_new_one_is_ready(world: World) -> None:
    directory = world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        old = found(lifecycle, "m")
        old.begin()
        (directory / "1" / "weights").write_text("new")
        release = world.block("m")
        loading = asyncio.create_task(lifecycle.load("m", {}))
        await world.begun("m")
        assert found(lifecycle, "m") is old
        assert rows(lifecycle) == [("m", "1", "READY", "")]
        assert await lifecycle.model_ready("m")
        assert not is_ready(lifecycle)
        old.begin()
        release()
        await loading
        new = found(lifecycle, "m")
        assert new is not old
        assert is_ready(lifecycle)
        assert old.stopped
        assert len(world.open) == 2
        old.end()
        old.end()
        await gone(lifecycle)
        assert world.open == [new.loaded]
        assert found(lifecycle, "m", 1) is new
        assert rows(lifecycle) == [("m", "1", "READY", "")]

    world.run(test)


def test_broken_reload_keeps_the_old_version(world: World) -> None:
    directory = world.add("m", (1, 2), "version_policy { all {} }")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        old = lifecycle.loaded_models()
        (directory / "labels.txt").write_text("shared by all versions")
        world.fail("m", 2, InternalError("broken"))
        error = await error_of(lifecycle.load("m", {}))
        assert "version 2 is at UNAVAILABLE state: Internal: broken;" in str(error)
        assert lifecycle.loaded_models() == old
        assert [row[2] for row in rows(lifecycle)] == ["READY", "READY"]
        assert is_ready(lifecycle)
        assert len(world.open) == 2
        (directory / "config.pbtxt").write_text("what is this")
        error = await error_of(lifecycle.load("m", {}))
        assert str(error).startswith("failed to load 'm', failed to poll from model repository: ")
        assert lifecycle.loaded_models() == old
        assert is_ready(lifecycle)

    world.run(test)


def test_unchanged_model_is_not_loaded_again(world: World) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        await lifecycle.load("m", {})
        assert world.loads == [("m", 1)]

    world.run(test)


def test_versions_that_did_not_change_stay(world: World) -> None:
    directory = world.add("m", (1, 2), "version_policy { all {} }")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        one, two = found(lifecycle, "m", 1), found(lifecycle, "m", 2)
        (directory / "3").mkdir()
        await lifecycle.load("m", {})
        assert sorted(world.loads) == [("m", 1), ("m", 2), ("m", 3)]
        world.add("m", config="version_policy { specific { versions: [2, 3] } }")
        await lifecycle.load("m", {})
        assert sorted(world.loads) == [("m", 1), ("m", 2), ("m", 3)]
        assert lifecycle.versions("m") == [2, 3]
        assert found(lifecycle, "m", 2) is two
        assert list(two.config.version_policy.specific.versions) == [2, 3]
        await gone(lifecycle)
        assert one.loaded not in world.open
        assert rows(lifecycle)[0] == ("m", "1", "UNAVAILABLE", "unloaded")
        world.add("m", config="max_batch_size: 2 version_policy { specific { versions: [2, 3] } }")
        await lifecycle.load("m", {})
        assert sorted(world.loads[3:]) == [("m", 2), ("m", 3)]
        await gone(lifecycle)
        assert rows(lifecycle) == [
            ("m", "1", "UNAVAILABLE", "unloaded"),
            ("m", "2", "READY", ""),
            ("m", "3", "READY", ""),
        ]

    world.run(test)


# Unload


def test_the_log_says_that_a_model_is_in_no_repository(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(InternalError) as caught:
            await lifecycle.load("none", {})
        why = "model not found in any model repository"
        assert caught.value.message == f"failed to load 'none', failed to poll from model repository: {why}"
        assert f"failed to poll model 'none': {why}" in caplog.messages

    world.run(test)


def test_the_log_names_each_version_that_fails_in_a_reload(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("m", (1, 2), "version_policy { all { } }")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        for version in (1, 2):
            world.fail("m", version, InternalError(f"no {version}"))
            (world.repository / "m" / str(version) / "weights").write_bytes(b"new")
        with pytest.raises(InvalidArgumentError):
            await lifecycle.load("m", {})
        assert [line for line in caplog.messages if " version " in line and "failed" in line] == [
            "failed to load 'm' version 1: Internal: no 1",
            "failed to load 'm' version 2: Internal: no 2",
        ]

    world.run(test)


def test_unloading_the_unknown_succeeds(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        for name in ("nowhere", "", "a/b"):
            await lifecycle.unload(name, unload_dependents=True)
        assert rows(lifecycle) == []

    world.run(test)


def test_unload_returns_while_requests_finish(world: World) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        model = found(lifecycle, "m")
        model.begin()
        await lifecycle.unload("m")
        assert model.stopped
        assert rows(lifecycle) == [("m", "1", "UNLOADING", "")]
        assert is_ready(lifecycle)
        assert world.open == [model.loaded]
        await lifecycle.unload("m")
        model.end()
        await gone(lifecycle)
        assert rows(lifecycle) == [("m", "1", "UNAVAILABLE", "unloaded")]
        assert world.open == []
        assert is_ready(lifecycle)

    world.run(test)


def test_model_can_be_loaded_again_while_it_is_still_unloading(world: World) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        old = found(lifecycle, "m")
        old.begin()
        await lifecycle.unload("m")
        await lifecycle.load("m", {})
        new = found(lifecycle, "m")
        assert new is not old
        await lifecycle.unload("m")
        await lifecycle.load("m", {})
        old.end()
        await gone(lifecycle)
        assert rows(lifecycle) == [("m", "1", "READY", "")]
        assert world.open == [found(lifecycle, "m").loaded]

    world.run(test)


def test_operations_on_one_model_take_turns(world: World) -> None:
    world.add("m")
    world.add("other")

    async def test(lifecycle: Lifecycle) -> None:
        release = world.block("m")
        done: list[str] = []

        async def note(what: str, call: Any) -> None:
            await call
            done.append(what)

        tasks = [
            asyncio.create_task(note("load", lifecycle.load("m", {}))),
            asyncio.create_task(note("unload", lifecycle.unload("m"))),
            asyncio.create_task(note("load again", lifecycle.load("m", {}))),
            asyncio.create_task(note("unload again", lifecycle.unload("m"))),
            asyncio.create_task(note("load at last", lifecycle.load("m", {}))),
        ]
        await world.begun("m")
        await lifecycle.load("other", {})
        assert done == []
        release()
        await asyncio.gather(*tasks)
        assert done == ["load", "unload", "load again", "unload again", "load at last"]
        assert world.loads.count(("m", 1)) == 3
        assert await lifecycle.model_ready("m")

    world.run(test)


def test_load_goes_on_when_the_client_gives_up(world: World) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        release = world.block("m")
        client = asyncio.create_task(lifecycle.load("m", {}))
        await world.begun("m")
        client.cancel()
        await asyncio.wait({client})
        release()
        await lifecycle.load("m", {})
        assert world.loads == [("m", 1)]
        assert await lifecycle.model_ready("m")

    world.run(test)


# Overrides


def test_config_override_lasts_until_the_directory_changes_or_the_model_is_unloaded(world: World) -> None:
    directory = world.add("m", (1, 2))

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [2]
        config = '{"backend": "identity", "version_policy": {"specific": {"versions": [1]}}}'
        await lifecycle.load("m", {"config": config})
        assert lifecycle.versions("m") == [1]
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [1]
        await lifecycle.unload("m")
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [2]
        await lifecycle.load("m", {"config": config})
        (directory / "1" / "weights").write_text("new")
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [2]

    world.run(test)


def test_plain_load_undoes_the_override_that_a_model_was_first_loaded_with(world: World) -> None:
    world.add("m", (1, 2))
    config = '{"backend": "identity", "version_policy": {"specific": {"versions": [1]}}}'
    invalid = '{"backend": "identity", "version_policy": {"specific": {"versions": [9]}}}'

    async def test(lifecycle: Lifecycle) -> None:
        await error_of(lifecycle.load("m", {"config": invalid}))
        await lifecycle.load("m", {"config": config})
        assert lifecycle.versions("m") == [1]
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [2]

    world.run(test)


def test_second_override_lasts(world: World) -> None:
    world.add("m", (1, 2))
    config = '{"backend": "identity", "version_policy": {"specific": {"versions": [1]}}}'

    async def test(lifecycle: Lifecycle) -> None:
        for _ in range(2):
            await lifecycle.load("m", {"config": config})
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [1]
        await lifecycle.unload("m")
        await lifecycle.load("m", {"config": config})
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [1]

    world.run(test)


def test_override_files_replace_the_model_directory(world: World) -> None:
    world.add("m", (1, 2))

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        parameters: dict[str, str | bytes] = {
            "config": '{"backend": "identity"}', "file:7/model.bin": b"x"
        }  # fmt: skip
        await lifecycle.load("m", parameters)
        assert lifecycle.versions("m") == [7]
        overridden = found(lifecycle, "m")
        assert overridden.loaded.files == ["model.bin"]
        (temporary,) = world.temporary()
        assert overridden.loaded.source.directory == temporary
        overridden.begin()
        await lifecycle.load("m", {})
        assert lifecycle.versions("m") == [2]
        assert world.temporary() == [temporary]
        overridden.end()
        await gone(lifecycle)
        assert world.temporary() == []

    world.run(test)


def test_override_files_need_no_repository(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        parameters: dict[str, str | bytes] = {
            "config": '{"backend": "identity", "version_policy": {"all": {}}}',
            "file:1/model.bin": b"x",
            "file:2/model.bin": b"x",
        }
        await lifecycle.load("new", parameters)
        assert lifecycle.versions("new") == [1, 2]
        assert rows(lifecycle) == [], "the index lists what is in the repositories"
        await lifecycle.load("new", parameters)
        await gone(lifecycle)
        assert len(world.temporary()) == 1
        error = await error_of(lifecycle.load("new", {}))
        assert "failed to poll from model repository" in str(error)
        assert lifecycle.versions("new") == [1, 2]
        await lifecycle.unload("new")
        await gone(lifecycle)
        assert world.temporary() == []

    world.run(test)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"config": "{", "file:1/x": b""}, "failed to poll from model repository: Invalid config override: "),
        (
            {"config": '{"backend": "identity"}', f"file:1/{'n' * 300}": b""},
            "failed to poll from model repository: ",
        ),
        (
            {"config": '{"backend": "identity"}', "file:x/model.bin": b""},
            "at least one version must be available under the version policy of model 'm'",
        ),
        ({"config": '{"backend": "identity"}', "file:1/x": b""}, "Internal: no"),
        (
            {"file:1/x": b""},
            "failed to poll from model repository: Load parameter 'config' must be specified for model file override",
        ),
        (
            {"config": "{}", "file:../1/x": b""},
            "failed to load 'm', failed to poll from model repository: file name '../1/x' must be relative",
        ),
    ],
)
def test_failed_override_leaves_nothing_behind(
    world: World, parameters: dict[str, str | bytes], message: str
) -> None:
    world.fail("m", 1, InternalError("no"))

    async def test(lifecycle: Lifecycle) -> None:
        error = await error_of(lifecycle.load("m", parameters))
        assert message in str(error)
        assert world.temporary() == []
        assert lifecycle.loaded_models() == []

    world.run(test)


# Several repositories


def test_model_in_two_repositories_is_unavailable(world: World) -> None:
    world.add("m")
    world.others.append(world.directory / "second")
    (world.others[0] / "m" / "1").mkdir(parents=True)
    (world.others[0] / "n" / "1").mkdir(parents=True)
    (world.others[0] / "n" / "config.pbtxt").write_text('backend: "identity"')
    reason = "model appears in two or more repositories"

    async def explicit(lifecycle: Lifecycle) -> None:
        assert rows(lifecycle) == [("m", None, "UNAVAILABLE", reason), ("n", None, "", "")]
        assert is_ready(lifecycle)
        error = await error_of(lifecycle.load("m", {}))
        assert str(error) == f"failed to load 'm', failed to poll from model repository: {reason}"
        await lifecycle.load("n", {})
        assert await lifecycle.model_ready("n")

    async def at_start(lifecycle: Lifecycle) -> None:
        assert rows(lifecycle) == [("m", None, "UNAVAILABLE", reason), ("n", "1", "READY", "")]
        assert is_ready(lifecycle)
        with pytest.raises(NotFoundError, match=r"'m' is not found\. It is in a repository, but not loaded$"):
            lifecycle.find("m")

    world.run(explicit)
    world.run(at_start, ControlMode.NONE)


def test_index_follows_the_repository(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        assert rows(lifecycle) == []
        directory = world.add("late")
        await lifecycle.refresh()
        assert rows(lifecycle) == [("late", None, "", "")]
        assert lifecycle.index(ready_only=True) == []
        (directory / "1").rmdir()
        (directory / "config.pbtxt").unlink()
        directory.rmdir()
        await lifecycle.refresh()
        assert rows(lifecycle) == []

    world.run(test)


# Stop


def test_stop_waits_for_requests_and_says_so_each_second(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("a")
    world.add("b")

    async def run() -> None:
        lifecycle = world.lifecycle(ControlMode.NONE)
        await lifecycle.start()
        model = found(lifecycle, "a")
        model.begin()
        model.begin()
        stopping = asyncio.create_task(lifecycle.stop(30))
        await asyncio.sleep(0)
        assert lifecycle.stopping
        assert is_live(lifecycle)
        assert not is_ready(lifecycle)
        assert model.stopped
        assert found(lifecycle, "b").stopped
        await asyncio.sleep(0)
        world.clock.advance(1_000_000_000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        model.end()
        model.end()
        assert await stopping
        assert not is_live(lifecycle)
        assert world.open == []
        with pytest.raises(UnavailableError, match="Server is stopping"):
            lifecycle.find("a")
        assert [row[2:] for row in rows(lifecycle)] == [("UNAVAILABLE", "unloaded")] * 2

    with caplog.at_level(logging.INFO, "halimede"):
        asyncio.run(run())
    messages = [record.getMessage() for record in caplog.records]
    told = messages[messages.index("Waiting for in-flight requests to complete.") :]
    assert told[:6] == [
        "Waiting for in-flight requests to complete.",
        "Timeout 30: Found 1 model versions that have in-flight inferences",
        "Model 'a' (version 1) has 2 in-flight inferences",
        "Timeout 29: Found 1 model versions that have in-flight inferences",
        "Model 'a' (version 1) has 2 in-flight inferences",
        "Timeout 29: Found 2 live models and 0 in-flight non-inference requests",
    ]
    assert sorted(told[6:]) == [f"successfully unloaded '{name}' version 1" for name in "ab"]


def test_stop_counts_sequences_that_it_waits_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.add("m")

    async def run() -> None:
        lifecycle = world.lifecycle(ControlMode.NONE)
        await lifecycle.start()
        model = found(lifecycle, "m")
        model.begin_sequence()
        stopping = asyncio.create_task(lifecycle.stop(30))
        for _ in range(5):
            await asyncio.sleep(0)
        model.end_sequence()
        assert await stopping

    with caplog.at_level(logging.INFO, "halimede"):
        asyncio.run(run())
    assert "Model 'm' (version 1) has 1 in-flight inferences" in caplog.messages


def test_stop_gives_up_at_the_timeout(world: World) -> None:
    world.add("m")

    async def run() -> None:
        lifecycle = world.lifecycle(ControlMode.NONE)
        await lifecycle.start()
        found(lifecycle, "m").begin()
        stopping = asyncio.create_task(lifecycle.stop(2))
        for _ in range(3):
            for _ in range(5):
                await asyncio.sleep(0)
            assert not stopping.done()
            world.clock.advance(999_000_000)
        assert not await stopping

    asyncio.run(run())


def test_load_under_way_is_dropped_when_the_server_stops(world: World) -> None:
    world.add("m")
    world.add("queued")

    async def run() -> None:
        lifecycle = world.lifecycle()
        await lifecycle.start()
        release = world.block("m")
        loading = asyncio.create_task(lifecycle.load("m", {}))
        await world.begun("m")
        behind = asyncio.create_task(lifecycle.unload("m"))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(lifecycle.stop(10))
        await asyncio.sleep(0)
        assert isinstance(await error_of(lifecycle.load("queued", {})), UnavailableError)
        release()
        assert await stopping
        assert isinstance(await error_of(loading), UnavailableError)
        assert isinstance(await error_of(behind), UnavailableError)
        assert world.open == []

    asyncio.run(run())


def test_stop_during_and_before_start(world: World) -> None:
    world.add("m")

    async def run() -> None:
        lifecycle = world.lifecycle(ControlMode.NONE)
        release = world.block("m")
        starting = asyncio.create_task(lifecycle.start())
        await world.begun("m")
        stopping = asyncio.create_task(lifecycle.stop(10))
        await asyncio.sleep(0)
        release()
        assert await stopping
        assert not await starting
        assert not is_ready(lifecycle)
        assert world.open == []

        early = world.lifecycle(ControlMode.NONE)
        assert await early.stop(10)
        assert not await early.start()
        await early.refresh()

    asyncio.run(run())


def test_watchers_of_readiness_see_every_change(world: World) -> None:
    directory = world.add("m")

    async def run() -> None:
        lifecycle = world.lifecycle()
        seen: list[bool] = []

        def look() -> None:
            if not seen or seen[-1] != is_ready(lifecycle):
                seen.append(is_ready(lifecycle))

        lifecycle.on_readiness.append(look)
        look()
        await lifecycle.start()
        await lifecycle.load("m", {})
        (directory / "1" / "weights").write_text("new")
        await lifecycle.load("m", {})
        (directory / "1" / "weights").write_text("newer")
        world.fail("m", 1, InternalError("no"))
        await error_of(lifecycle.load("m", {}))
        await lifecycle.unload("m")
        await gone(lifecycle)
        world.fail("m", 1, InternalError("no"))
        await error_of(lifecycle.load("m", {}))
        await lifecycle.unload("m")
        await lifecycle.stop(10)
        assert seen == [False] + [True, False] * 5

    asyncio.run(run())


# Many times over


def test_two_hundred_cycles_leave_nothing_behind(world: World) -> None:
    world.add("m")
    parameters: dict[str, str | bytes] = {"config": '{"backend": "identity"}', "file:1/model.bin": b"x"}

    async def test(lifecycle: Lifecycle) -> None:
        threads = 0
        for cycle in range(200):
            await lifecycle.load("m", parameters if cycle % 2 else {})
            await lifecycle.unload("m")
            await gone(lifecycle)
            assert world.open == []
            assert world.temporary() == []
            assert asyncio.all_tasks() == {asyncio.current_task()}
            if cycle == 20:
                threads = threading.active_count()
        assert threading.active_count() <= threads + 8  # pools have some more to come
        assert len(world.loads) == 200
        assert rows(lifecycle) == [("m", "1", "UNAVAILABLE", "unloaded")]

    world.run(test)


# States


def test_only_legal_moves_are_made() -> None:
    assert set(LEGAL_MOVES) == set(VersionState)
    version = Version(1)
    version.move(VersionState.LOADING)
    version.move(VersionState.READY)
    with pytest.raises(RuntimeError, match="version 1 cannot go from READY to LOADING"):
        version.move(VersionState.LOADING)


def test_a_load_that_fails_in_a_way_that_nobody_foresaw_is_logged_also_if_nobody_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def fail(*_: object) -> None:
        begun.set()
        await left.wait()
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(ModelLoader, "load", fail)
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        loading = asyncio.create_task(lifecycle.load("m", {}))
        await begun.wait()
        loading.cancel()
        await asyncio.wait([loading])
        left.set()
        await wait_until_async(lambda: "loading or unloading model 'm' failed" in caplog.messages)

    world.run(test)
