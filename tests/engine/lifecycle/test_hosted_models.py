"""Models that a platform brings: keys and names, archives of several models, and what is left after errors."""

import asyncio
import shutil
import tarfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from halimede.core.errors import (
    AlreadyExistsError,
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
)
from halimede.engine.lifecycle.hosted_models import HostedModels
from halimede.engine.lifecycle.lifecycle import Lifecycle
from tests.engine.lifecycle.fakes import CONFIG, TENSORS, World, ensemble_config, make_world, rows
from tests.support.waiting import wait_until_async

KEY = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


class Platform:
    """Extracts archives, as a platform does."""

    def __init__(self, world: World) -> None:
        self.root = world.directory / "models"
        self.root.mkdir()

    def place(self, key: str = KEY) -> Path:
        """Where the archive of a key is extracted."""
        return self.root / key / "model"

    def add(self, key: str, models: dict[str, str]) -> str:
        """Models, each with its configuration; under the name "" that at the archive's root. The URL to load."""
        for name, config in models.items():
            directory = self.place(key) / name
            (directory / "1").mkdir(parents=True)
            (directory / "config.pbtxt").write_text(config)
        return str(self.place(key))

    def add_pipeline(self, key: str = KEY) -> str:
        """An ensemble of two models, and a third one."""
        steps = dict.fromkeys(("first", "second", "helper"), CONFIG + TENSORS)
        return self.add(key, {"pipeline": ensemble_config("first", "second"), **steps})


@pytest.fixture
def platform(world: World) -> Platform:
    return Platform(world)


Test = Callable[[HostedModels, Lifecycle], Coroutine[Any, Any, None]]


def run(world: World, test: Test) -> None:
    async def body(lifecycle: Lifecycle) -> None:
        hosted = HostedModels(lifecycle, world.directory / "models")
        await test(hosted, lifecycle)
        await hosted.close()

    world.run(body)


def names(lifecycle: Lifecycle) -> list[str]:
    return [model.name for model in lifecycle.loaded_models()]


def test_model_at_the_root_of_its_archive(world: World, platform: Platform) -> None:
    url = platform.add(KEY, {"": f'name: "another"\n{CONFIG}'})

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        model = await hosted.load(KEY, url)
        assert (model.key, model.name, model.url) == (KEY, KEY, str(platform.place().parent))
        assert hosted.get(KEY) is model
        assert list(hosted.list()) == [model]
        assert lifecycle.find(KEY).name == KEY
        await hosted.unload(KEY)
        assert list(hosted.list()) == []
        assert world.open == []
        assert rows(lifecycle) == []

    run(world, test)


def test_model_in_a_directory_of_its_archive(world: World, platform: Platform) -> None:
    url = platform.add(KEY, {"m": CONFIG})

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        model = await hosted.load(KEY, url + "/", "company_a/m.tar.gz")
        assert (model.name, model.url) == ("company_a/m.tar.gz", url)
        assert lifecycle.find("company_a/m.tar.gz").version == 1

    run(world, test)


def test_version_directory_without_a_configuration_is_a_model(world: World, platform: Platform) -> None:
    (platform.place() / "1").mkdir(parents=True)
    (platform.place() / "1" / "model.py").touch()

    async def test(hosted: HostedModels, _lifecycle: Lifecycle) -> None:
        model = await hosted.load(KEY, str(platform.place()))
        assert model.url == str(platform.place().parent)

    run(world, test)


def test_ensemble_with_its_steps_and_helpers(world: World, platform: Platform) -> None:
    one, two = platform.add_pipeline(KEY), platform.add_pipeline(OTHER)

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        for key, url, alias in ((KEY, one, "p.tar.gz"), (OTHER, two, "q.tar.gz")):
            await hosted.load(key, url, alias)
            own = [name for name in names(lifecycle) if name.startswith(alias)]
            assert own == [alias, *(f"{alias}:{name}" for name in ("first", "helper", "second"))]
            assert world.loads[-3][0] == f"{alias}:helper"  # which the others may call
        assert lifecycle.name_in_server("helper", "q.tar.gz:first") == "q.tar.gz:helper"
        assert lifecycle.name_in_server("elsewhere", "q.tar.gz:first") == "elsewhere"
        await hosted.unload(KEY)
        assert [name for name in names(lifecycle) if name.startswith("p.")] == []
        assert len(names(lifecycle)) == 4

    run(world, test)


def test_step_in_a_directory_of_another_name_is_refused(world: World, platform: Platform) -> None:
    url = platform.add(
        KEY, {"e": ensemble_config("s"), "s": f'name: "t"\n{CONFIG}{TENSORS}', "u": CONFIG + TENSORS}
    )

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        with pytest.raises(HalimedeError, match="unexpected directory name 's' for model 't'"):
            await hosted.load(KEY, url)
        assert rows(lifecycle) == []
        assert world.open == []

    run(world, test)


def test_archive_of_several_models_without_ensemble_needs_a_name(world: World, platform: Platform) -> None:
    url = platform.add(KEY, {"a": CONFIG, "b": CONFIG})

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        with pytest.raises(InvalidArgumentError, match=r"holds 2 models and no ensemble \('a', 'b'\).*'x'"):
            await hosted.load(KEY, url, "x.tar.gz")
        await hosted.load(KEY, url, "nested/b.tar.gz")
        assert world.loads == [("nested/b.tar.gz:a", 1), ("nested/b.tar.gz", 1)]

    run(world, test)


@pytest.mark.parametrize(
    "outside", ["{root}", "{root}/../secret", "/dev/shm", "models/x", "{root}/link", "\0"]
)
def test_places_outside_the_root_are_refused(world: World, platform: Platform, outside: str) -> None:
    (platform.root / "link").symlink_to(world.repository)

    async def test(hosted: HostedModels, _lifecycle: Lifecycle) -> None:
        with pytest.raises(InvalidArgumentError, match="invalid url"):
            await hosted.load(KEY, outside.format(root=platform.root))
        with pytest.raises(NotFoundError):
            hosted.get(KEY)

    run(world, test)


def test_a_place_outside_the_root_is_told_with_what_to_do(world: World, platform: Platform) -> None:
    async def test(hosted: HostedModels, _lifecycle: Lifecycle) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            await hosted.load(KEY, "models/x")
        assert caught.value.message == (
            f"invalid url 'models/x': models must lie below '{platform.root}', "
            "and be named by an absolute path without '..'"
        )

    run(world, test)


def test_nothing_there_and_nothing_in_it(world: World, platform: Platform) -> None:
    (platform.place() / "empty").mkdir(parents=True)

    async def test(hosted: HostedModels, _lifecycle: Lifecycle) -> None:
        with pytest.raises(NotFoundError, match="there is nothing at"):
            await hosted.load(KEY, str(platform.root / "absent" / "model"))
        with pytest.raises(InvalidArgumentError, match="holds no model"):
            await hosted.load(KEY, str(platform.place()))
        with pytest.raises(InvalidArgumentError, match="empty"):
            await hosted.load("", str(platform.place()))

    run(world, test)


def test_failed_load_leaves_nothing_and_may_be_repeated(world: World, platform: Platform) -> None:
    url = platform.add_pipeline()
    world.fail("p.tar.gz:second", 1, InternalError("no"))

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        with pytest.raises(InvalidArgumentError, match="no"):
            await hosted.load(KEY, url, "p.tar.gz")
        await lifecycle._live.closed()  # noqa: SLF001 - nobody else waits for the end of all versions
        assert (world.open, rows(lifecycle), list(hosted.list())) == ([], [], [])
        assert lifecycle.ready
        await hosted.load(KEY, url, "p.tar.gz")
        assert len(names(lifecycle)) == 4

    run(world, test)


def test_of_several_models_that_fail_the_first_is_told_whichever_fails_first(
    world: World, platform: Platform
) -> None:
    url = platform.add(KEY, {"a": CONFIG, "b": CONFIG, "main": CONFIG})
    world.fail("main.tar.gz:a", 1, InternalError("broken a"))
    world.fail("main.tar.gz:b", 1, InternalError("broken b"))
    go_on = world.block("main.tar.gz:a")

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        loading = asyncio.create_task(hosted.load(KEY, url, "main.tar.gz"))
        await world.begun("main.tar.gz:a")
        await wait_until_async(
            lambda: ("main.tar.gz:b", "1", "UNAVAILABLE", "Internal: broken b") in rows(lifecycle)
        )
        go_on()
        with pytest.raises(InvalidArgumentError, match="broken a"):
            await loading
        assert (world.open, rows(lifecycle), list(hosted.list())) == ([], [], [])

    run(world, test)


def test_key_in_use_is_refused_whatever_is_done_with_it(world: World, platform: Platform) -> None:
    url = platform.add(KEY, {"m": CONFIG})
    go_on = world.block(KEY)

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        loading = asyncio.create_task(hosted.load(KEY, url))
        await world.begun(KEY)
        with pytest.raises(AlreadyExistsError, match="is being loaded already"):
            await hosted.load(KEY, url)
        with pytest.raises(NotFoundError, match="is being loaded"):
            await hosted.unload(KEY)
        assert list(hosted.list()) == []
        go_on()
        await loading
        with pytest.raises(AlreadyExistsError, match="is loaded already"):
            await hosted.load(KEY, url)
        with pytest.raises(AlreadyExistsError, match=f"as '{KEY}'"):
            await hosted.load(OTHER, url)
        model: Any = lifecycle.find(KEY)
        model.begin()
        unloading = asyncio.create_task(hosted.unload(KEY))
        await asyncio.sleep(0)
        with pytest.raises(AlreadyExistsError, match="is being unloaded already"):
            await hosted.load(KEY, url)
        with pytest.raises(NotFoundError, match="is being unloaded"):
            await hosted.unload(KEY)
        assert not unloading.done()  # the request in flight holds it
        model.end()
        await unloading
        assert world.open == []
        await hosted.load(KEY, url)

    run(world, test)


def test_unknown_key(world: World, platform: Platform) -> None:
    async def test(hosted: HostedModels, _lifecycle: Lifecycle) -> None:
        with pytest.raises(NotFoundError, match="no model is loaded under the name 'x'"):
            await hosted.unload("x")
        assert platform.root.is_dir()

    run(world, test)


def test_same_alias_twice_falls_back_to_the_key(world: World, platform: Platform) -> None:
    one, two = platform.add(KEY, {"m": CONFIG}), platform.add(OTHER, {"m": CONFIG})

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        await hosted.load(KEY, one, "m.tar.gz")
        second = await hosted.load(OTHER, two, "m.tar.gz")
        assert second.name == OTHER
        assert names(lifecycle) == [OTHER, "m.tar.gz"] or names(lifecycle) == ["m.tar.gz", OTHER]

    run(world, test)


@pytest.mark.parametrize("where", ["repository", "repository, and loaded", "load request"])
def test_name_of_another_model_of_the_server_is_taken(world: World, platform: Platform, where: str) -> None:
    if where != "load request":
        world.add("m")
    url = platform.add(KEY, {"x": CONFIG})
    request: dict[str, str | bytes] = {"config": '{"backend": "identity"}', "file:1/weights": b"w"}

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        if where != "repository":
            await lifecycle.load("m", request if where == "load request" else {})
        loaded = list(world.loads)
        with pytest.raises(AlreadyExistsError, match="there is a model 'm' already"):
            await hosted.load("m", url)
        assert world.loads == loaded

    run(world, test)


def test_one_model_that_takes_long_holds_up_no_other(world: World, platform: Platform) -> None:
    slow, quick = platform.add(KEY, {"m": CONFIG}), platform.add(OTHER, {"m": CONFIG})
    go_on = world.block(KEY)

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        loading = asyncio.create_task(hosted.load(KEY, slow))
        await world.begun(KEY)
        await hosted.load(OTHER, quick)
        busy: Any = lifecycle.find(OTHER)
        busy.begin()
        unloading = asyncio.create_task(hosted.unload(OTHER))
        go_on()
        await loading
        assert hosted.get(KEY).name == KEY
        busy.end()
        await unloading

    run(world, test)


def pack(directory: Path, archive: Path) -> str:
    """An archive of what is in the directory; the URL to load."""
    with tarfile.open(archive, "w:gz") as tar:
        for entry in sorted(directory.iterdir()):
            tar.add(entry, entry.name)
    return str(archive)


def test_archive_is_extracted_and_its_files_go_with_the_model(world: World, platform: Platform) -> None:
    platform.add_pipeline()
    url = pack(platform.place(), platform.root / "p.tar.gz")
    directory = platform.place()
    shutil.rmtree(directory)

    async def test(hosted: HostedModels, lifecycle: Lifecycle) -> None:
        model = await hosted.load(KEY, url)
        assert model.url == url
        assert len(names(lifecycle)) == 4
        assert len(world.temporary()) == 1
        await hosted.unload(KEY)
        assert world.temporary() == []
        await hosted.load(KEY, url)  # what the server still has when it stops goes too

    run(world, test)


def test_broken_archive_leaves_nothing(world: World, platform: Platform) -> None:
    (platform.root / "broken.tar.gz").write_bytes(b"no archive")
    (platform.root / "empty").mkdir()
    empty = pack(platform.root / "empty", platform.root / "empty.tar.gz")

    async def test(hosted: HostedModels, _lifecycle: Lifecycle) -> None:
        for url in (str(platform.root / "broken.tar.gz"), empty):
            with pytest.raises(InvalidArgumentError, match="archive"):
                await hosted.load(KEY, url)
            assert world.temporary() == []
            with pytest.raises(NotFoundError):
                hosted.get(KEY)

    run(world, test)
