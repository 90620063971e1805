"""What tells the cached responses of one version from those of all others."""

import logging
from pathlib import Path
from typing import cast

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.engine.cache.access import CacheAccess
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import LocalCacheSettings, RedisCacheSettings
from tests.engine.lifecycle.fakes import TENSORS, FakeModel, World, make_world

CACHED = TENSORS + "response_cache { enable: true }\n"
LOCAL = LocalCacheSettings(1 << 20)
REDIS = RedisCacheSettings("/nonexistent/redis.sock", 0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


def access(lifecycle: Lifecycle, name: str) -> CacheAccess | None:
    return cast(FakeModel, lifecycle.find(name)).cache


def identity(lifecycle: Lifecycle, name: str) -> bytes:
    found = access(lifecycle, name)
    assert found is not None
    return found.identity


async def again(lifecycle: Lifecycle, name: str) -> bytes:
    """The identity after the model was unloaded and loaded again."""
    await lifecycle.unload(name)
    await lifecycle.load(name, {})
    return identity(lifecycle, name)


def test_only_models_that_enable_the_cache_have_it(world: World) -> None:
    world.add("plain", config=TENSORS)
    world.add("cached", config=CACHED)

    async def test(lifecycle: Lifecycle) -> None:
        assert access(lifecycle, "plain") is None
        found = access(lifecycle, "cached")
        assert found is not None
        assert found.cache is lifecycle.cache

    world.run(test, load_models=("*",), cache=LOCAL)


def test_without_a_cache_a_model_that_enables_it_is_served_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("cached", config=CACHED)

    async def test(lifecycle: Lifecycle) -> None:
        assert access(lifecycle, "cached") is None

    with caplog.at_level(logging.WARNING, "halimede"):
        world.run(test, load_models=("*",))
    assert (
        "'cached' enables the response cache, which has no effect: the server has none (--cache-config)"
        in caplog.text
    )


def test_in_the_server_each_load_begins_anew(world: World) -> None:
    world.add("cached", config=CACHED)

    async def test(lifecycle: Lifecycle) -> None:
        before = identity(lifecycle, "cached")
        assert await again(lifecycle, "cached") != before

    world.run(test, load_models=("*",), cache=LOCAL)


def test_outside_of_it_the_same_files_are_the_same_version(world: World) -> None:
    directory = world.add("cached", versions=(1, 2), config=CACHED + "version_policy { all {} }")
    world.add("other", config=CACHED)

    async def test(lifecycle: Lifecycle) -> None:
        before = identity(lifecycle, "cached")
        assert await again(lifecycle, "cached") == before
        first = cast(FakeModel, lifecycle.find("cached", 1)).cache
        assert first is not None
        assert len({first.identity, before, identity(lifecycle, "other")}) == 3
        (directory / "2" / "weights").write_text("other")
        changed = await again(lifecycle, "cached")
        assert changed != before
        await lifecycle.load(
            "cached", {"config": '{"backend": "identity", "response_cache": {"enable": true}}'}
        )
        assert identity(lifecycle, "cached") not in (before, changed)

    world.run(test, load_models=("*",), cache=REDIS)


def test_an_ensemble_is_the_same_as_long_as_its_models_are(world: World) -> None:
    directory = world.add("a", config=TENSORS)
    world.add("b", config=TENSORS)
    world.add_ensemble("e", "a", "b", more=CACHED)

    async def test(lifecycle: Lifecycle) -> None:
        before = identity(lifecycle, "e")
        assert await again(lifecycle, "e") == before
        (directory / "1" / "weights").write_text("other")
        await lifecycle.load("a", {})
        assert identity(lifecycle, "e") != before

    world.run(test, load_models=("*",), cache=REDIS)


def test_files_that_a_client_brought_are_never_the_same(world: World) -> None:
    world.add("a", config=TENSORS)
    world.add_ensemble("e", "a", more=CACHED)
    brought: dict[str, str | bytes] = {
        "config": '{"backend": "identity", "response_cache": {"enable": true}}',
        "file:1/w": b"x",
    }

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("mine", brought)
        before = identity(lifecycle, "mine")
        await lifecycle.load("mine", brought)
        assert identity(lifecycle, "mine") != before

    world.run(test, load_models=("*",), cache=REDIS)


def test_an_ensemble_of_decoupled_models_cannot_have_it(world: World) -> None:
    world.add("a", config=TENSORS + "model_transaction_policy { decoupled: true }")
    world.add_ensemble("e", "a", more=CACHED)

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            await lifecycle.load("e", {})
        assert caught.value.message == (
            "load failed for model 'e': Response Cache does not currently support model e with 'decoupled' "
            "transaction policy. Please disable the response cache.\n"
        )

    world.run(test, cache=LOCAL)
