"""The files of multi-model instances on nodes, while actors, nodes and engines come and go."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from halimede.hosting.store.source import ModelSource, Offer
from halimede.hosting.substrates.base import NodeUnreachableError, RunningInstance
from halimede.hosting.substrates.ray.engine_process import EngineLostError
from halimede.hosting.substrates.ray.messages import LostError, UnreachableError
from halimede.hosting.substrates.ray.model_files import NodeModelFiles
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import Exits, request_for
from tests.hosting.substrates.ray.engines import FakeEngine, substrate_with
from tests.support.waiting import wait_until_async

INSTANCE = RunningInstance(request_for("image", multi_model=True), "10.0.0.2", 4000, node="one")


class Source:
    """Offers any archive."""

    async def offer(self, url: str) -> Offer:
        return Offer("http://127.0.0.1:1/", 7, "etag", url)


async def fetched(files: NodeModelFiles) -> int:
    return await files.fetch("m", "s3://models/m", cast("ModelSource", Source()), 60.0)


def files_of(*answers: Any) -> NodeModelFiles:
    """The files of an instance whose actor answers so, in turn."""
    left = list(answers)

    async def ask(*_: Any) -> Any:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def until_connected() -> None:
        left.pop(0)

    return NodeModelFiles(INSTANCE, ask, until_connected)


@pytest.mark.parametrize(
    "error", [LostError("the connection broke"), UnreachableError("the connection broke")]
)
@on_loop
async def test_what_cannot_be_fetched_as_the_node_is_out_of_reach_may_be_elsewhere(error: Exception) -> None:
    with pytest.raises(NodeUnreachableError, match="cannot be reached now: the connection broke; try again"):
        await fetched(files_of(error))


@on_loop
async def test_files_of_an_instance_that_is_gone_need_not_be_removed() -> None:
    await files_of(LostError("it died")).remove("m")
    with pytest.raises(NodeUnreachableError):
        await files_of(UnreachableError("the connection broke")).remove("m")


@on_loop
async def test_memory_that_cannot_be_asked_for_is_unknown() -> None:
    for error in (LostError(), UnreachableError(), EngineLostError()):
        assert await files_of(error).memory() == 0


@on_loop
async def test_a_fetch_goes_on_with_the_next_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        engine.asked = EngineLostError()
        files = substrate.files(INSTANCE)
        fetching = asyncio.create_task(fetched(files))
        await wait_until_async(lambda: ("ask", "i-0") in [(name, *some[:1]) for name, some in engine.calls])
        assert not fetching.done()
        engine.asked = 7
        await substrate.start(Exits().__setitem__)
        assert await fetching == 7
