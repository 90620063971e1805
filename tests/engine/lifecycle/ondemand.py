"""What tests of models on demand have in common."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from halimede.core.errors import (
    HalimedeError,
    NotLoadedError,
)
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import TENSORS, FakeModel, World
from tests.support.waiting import wait_until_async

ON_DEMAND = ControlMode.ON_DEMAND

CONFIG_AS_JSON = '{"backend": "identity", "parameters": {"k": {"string_value": "v"}}}'


def add_all(world: World, names: str, size: int = 100) -> None:
    for name in names:
        world.add_sized(name, size, config=TENSORS)


def loaded(lifecycle: Lifecycle) -> list[str]:
    return [model.name for model in lifecycle.loaded_models()]


async def use(lifecycle: Lifecycle, *names: str) -> FakeModel:
    """What a front end does for a request to each model in turn: the last model."""
    for name in names:
        try:
            model = lifecycle.find(name)
        except NotLoadedError as missing:
            model = await lifecycle.demand(missing.name, missing.version)
    return cast(FakeModel, model)


async def error_of(work: Coroutine[Any, Any, Any]) -> HalimedeError:
    with pytest.raises(HalimedeError) as caught:
        await work
    return caught.value


async def turns(count: int = 20) -> None:
    """Let everything that can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until_waits_for_room(lifecycle: Lifecycle, *names: str) -> None:
    waiting = lifecycle.memory.room._waiting  # noqa: SLF001 - nobody else may see who waits
    await wait_until_async(lambda: set(names) <= waiting.keys(), "models to wait for room")
