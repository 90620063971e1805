"""The lifecycle of ensembles with real models: what requests, and the descriptions of models, see of it."""

import asyncio
import os
from pathlib import Path

import pytest

from halimede.core.errors import UnavailableError
from halimede.engine.settings import ControlMode
from halimede.frontends import descriptions
from tests.engine.lifecycle.fakes import ensemble_config
from tests.engine.lifecycle.test_lifecycle_serving import Server, scale_model, serve

TENSORS = """
max_batch_size: 4
input [{ name: "X", data_type: TYPE_FP32, dims: [4] }]
output [{ name: "Y", data_type: TYPE_FP32, dims: [4] }]
"""


def write_scale(repository: Path, name: str, factor: float) -> None:
    """A model that multiplies, and was written at a time of its own."""
    path = repository / name / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(scale_model(factor))
    os.utime(path, (factor, factor))


def write_ensemble(repository: Path, name: str, *steps: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(ensemble_config(*steps, more=TENSORS))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Ensembles that multiply by the square and by the cube of 2."""
    write_scale(tmp_path, "scale", 2)
    write_ensemble(tmp_path, "square", "scale", "scale")
    write_ensemble(tmp_path, "cube", "square", "scale")
    return tmp_path


def test_ensemble_and_its_models_answer(repository: Path) -> None:
    async def test(server: Server) -> None:
        assert server.lifecycle.ready
        assert [await server.infer(name) for name in ("scale", "square", "cube")] == [2, 4, 8]

    serve(repository, test, ControlMode.NONE)


def test_no_request_fails_or_mixes_models_while_they_are_reloaded(repository: Path) -> None:
    async def test(server: Server) -> None:
        await server.lifecycle.load("cube", {})
        clients = [asyncio.create_task(server.traffic("cube")) for _ in range(4)]
        meanwhile = 0
        for factor in range(3, 9):
            before = len(server.answers)
            write_scale(repository, "scale", factor)
            await server.lifecycle.load("scale", {})
            assert await server.infer("cube") == factor**3
            meanwhile += len(server.answers) - before
            await server.more_than(before)
        assert meanwhile > 0
        server.quiet()
        await asyncio.gather(*clients)
        assert server.failures == []
        assert set(server.answers) <= {factor**3 for factor in range(2, 9)}

    serve(repository, test)


def test_requests_in_flight_are_answered_when_a_model_of_the_ensemble_is_unloaded(repository: Path) -> None:
    async def test(server: Server) -> None:
        await server.lifecycle.load("cube", {})
        answers = [asyncio.ensure_future(server.infer("cube")) for _ in range(20)]
        await asyncio.sleep(0)
        await server.lifecycle.unload("scale")
        assert await asyncio.gather(*answers) == [8] * 20
        await server.lifecycle.load("scale", {})
        assert await server.infer("cube") == 8

    serve(repository, test)


def test_requests_in_flight_are_answered_when_the_server_stops(repository: Path) -> None:
    async def test(server: Server) -> None:
        answers = [asyncio.ensure_future(server.infer("cube")) for _ in range(20)]
        await asyncio.sleep(0)
        assert server.lifecycle.find("cube").inflight
        stopping = asyncio.create_task(server.lifecycle.stop(10))
        await asyncio.sleep(0)
        for name in ("scale", "square", "cube"):
            with pytest.raises(UnavailableError, match="Server is stopping"):
                await server.infer(name)
        assert await asyncio.gather(*answers) == [8] * 20
        assert await stopping

    serve(repository, test, ControlMode.NONE)


def test_ensemble_is_described_as_other_models_are(repository: Path) -> None:
    async def test(server: Server) -> None:
        lifecycle = server.lifecycle
        tensor = {"datatype": "FP32", "shape": [-1, 4]}
        assert descriptions.model_metadata(lifecycle, "square") == {
            "name": "square",
            "versions": ["1"],
            "platform": "ensemble",
            "inputs": [{"name": "X", **tensor}],
            "outputs": [{"name": "Y", **tensor}],
        }
        config = lifecycle.find("square").config
        assert config.HasField("model_transaction_policy")
        assert not config.model_transaction_policy.decoupled
        assert len(config.ensemble_scheduling.step) == 2
        for _ in range(3):
            await server.infer("square")
        counts = {
            model.name: descriptions.statistics(model)["inference_stats"]["success"]["count"]
            for model in descriptions.models_for_statistics(lifecycle)
        }
        assert counts == {"cube": 0, "scale": 6, "square": 3}
        write_scale(repository, "scale", 5)
        await lifecycle.poll()
        await lifecycle.poll()
        assert await server.infer("square") == 25
        (square,) = descriptions.models_for_statistics(lifecycle, "square")
        assert square.statistics.success.count == 4

    serve(repository, test, ControlMode.POLL)


def test_ensemble_of_a_decoupled_model_is_decoupled(tmp_path: Path) -> None:
    (tmp_path / "repeat" / "1").mkdir(parents=True)
    (tmp_path / "repeat" / "config.pbtxt").write_text(
        """
        backend: "square"
        input [{ name: "IN", data_type: TYPE_INT32, dims: [1] }]
        output [{ name: "OUT", data_type: TYPE_INT32, dims: [1] }]
        model_transaction_policy { decoupled: true }
        """
    )
    write_ensemble(tmp_path, "e", "repeat")
    text = (
        'platform: "ensemble" input [{ name: "IN", data_type: TYPE_INT32, dims: [1] }] '
        'output [{ name: "OUT", data_type: TYPE_INT32, dims: [1] }] ensemble_scheduling { step [{ '
        'model_name: "repeat" model_version: -1 input_map { key: "IN" value: "IN" } '
        'output_map { key: "OUT" value: "OUT" } }] }'
    )
    (tmp_path / "e" / "config.pbtxt").write_text(text)

    async def test(server: Server) -> None:
        assert server.lifecycle.find("e").config.model_transaction_policy.decoupled
        assert server.lifecycle.find("e").signature.decoupled

    serve(tmp_path, test, ControlMode.NONE)
