"""What the host makes of nodes that are lost while instances are started on them."""

from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.ray import substrate as substrate_module
from halimede.hosting.substrates.ray.messages import LostError
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import Exits, request_for
from tests.hosting.substrates.ray.engines import FakeEngine, substrate_with


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance is started elsewhere at once."""
    monkeypatch.setattr(substrate_module, "_RELAUNCH_S", 0.0)


@on_loop
async def test_an_instance_whose_node_is_lost_while_it_is_started_is_started_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    request = request_for("image")
    running = RunningInstance(request, "10.0.0.3", 4000, node="two")
    engine = FakeEngine()
    engine.launched = [LostError("health check failed")] * 4 + [running]
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        await substrate.start(Exits().__setitem__)
        assert await substrate.launch(request) == running
        assert substrate.instances() == [running]
    told = [each for each in caplog.messages if "is started elsewhere" in each]
    assert len(told) == 4
    assert told[0].endswith("its node is gone: health check failed")


@on_loop
async def test_an_instance_that_loses_one_node_after_the_other_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()
    engine.launched = [LostError("health check failed")] * 5
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        await substrate.start(Exits().__setitem__)
        with pytest.raises(ApiError, match="the node of the instance is gone: health check failed"):
            await substrate.launch(request_for("image"))
        assert not substrate.instances()
