"""The lifecycle with real models: requests run while models are loaded, reloaded and unloaded."""

import asyncio
import gc
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from halimede.core.clock import LoopClock
from halimede.core.datatypes import BY_NAME
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.engine import Engine
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode, EngineSettings
from tests.support.waiting import wait_until_async

FP32 = BY_NAME["FP32"]

IDENTITY = """
backend: "identity"
max_batch_size: 4
input [{ name: "X", data_type: TYPE_FP32, dims: [4] }]
output [{ name: "Y", data_type: TYPE_FP32, dims: [4], label_filename: "labels.txt" }]
"""


def scale_model(factor: float) -> bytes:
    """An ONNX model: Y = factor × X, shape [batch, 4]."""
    shape: list[str | int | None] = ["batch", 4]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["X", "factor"], ["Y"])],
        "scale",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def count_entries(directory: str) -> int:
    """How many entries the directory has."""
    return len(list(Path(directory).iterdir()))


class Server:
    """A lifecycle and an engine over a repository.

    Attributes:
        failures: errors of requests that were sent by `traffic`.
        answers: the factors that those requests were answered with.
    """

    def __init__(self, repository: Path, mode: ControlMode) -> None:
        loop = asyncio.get_running_loop()
        settings = EngineSettings((repository,), mode, cpu_threads=1, gpus=())
        self.clock = LoopClock(loop)
        self.lifecycle = Lifecycle(settings, self.clock, loop)
        self.engine = Engine(settings, self.clock, self.lifecycle)
        self.failures: list[HalimedeError] = []
        self.answers: list[float] = []
        self._stopping = False

    async def infer(self, name: str, version: int = -1) -> float:
        """What the model multiplies with."""
        answer: asyncio.Future[InferResponse | None] = asyncio.get_running_loop().create_future()
        request = InferRequest(
            name,
            {"X": Tensor.from_array(FP32, np.ones((1, 4), np.float32))},
            lambda response, _final: answer.set_result(response),
            model_version=version,
        )
        self.engine.find(name, version).infer(request)
        response = await answer
        assert response is not None
        if response.error is not None:
            raise response.error
        return float(response.outputs["Y"].array[0, 0])

    async def traffic(self, name: str) -> None:
        """Send requests one after the other until `quiet`."""
        while not self._stopping:
            try:
                self.answers.append(await self.infer(name))
            except HalimedeError as error:
                self.failures.append(error)
            await asyncio.sleep(0)

    async def more_than(self, answers: int) -> None:
        """Return once `traffic` has had more than so many."""
        await wait_until_async(lambda: len(self.answers) > answers)

    def quiet(self) -> None:
        """End the traffic."""
        self._stopping = True


def serve(
    repository: Path,
    test: Callable[[Server], Coroutine[Any, Any, None]],
    mode: ControlMode = ControlMode.EXPLICIT,
) -> None:
    """Run the test with a server that is started, then stop it."""

    async def run() -> None:
        server = Server(repository, mode)
        try:
            await server.lifecycle.start()
            await test(server)
            assert await server.lifecycle.stop(10)
        finally:
            server.clock.close()

    asyncio.run(run())


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    directory = tmp_path / "repository"
    (directory / "echo" / "1").mkdir(parents=True)
    (directory / "echo" / "config.pbtxt").write_text(IDENTITY)
    (directory / "echo" / "labels.txt").write_text("a\nb\nc\nd\n")
    (directory / "scale" / "1").mkdir(parents=True)
    (directory / "scale" / "1" / "model.onnx").write_bytes(scale_model(2))
    return directory


def test_models_of_the_repository_answer(repository: Path) -> None:
    async def test(server: Server) -> None:
        assert server.lifecycle.ready
        assert await server.infer("scale") == 2
        assert await server.infer("echo") == 1
        assert server.lifecycle.find("echo").labels == {"Y": ["a", "b", "c", "d"]}
        assert server.lifecycle.find("scale").config.backend == "onnxruntime"
        assert server.lifecycle.find("scale").signature.max_batch_size > 0

    serve(repository, test, ControlMode.NONE)


def test_no_request_fails_while_models_are_reloaded(repository: Path) -> None:
    async def test(server: Server) -> None:
        await server.lifecycle.load("scale", {})
        clients = [asyncio.create_task(server.traffic("scale")) for _ in range(4)]
        meanwhile = 0
        for factor in range(3, 9):
            before = len(server.answers)
            path = repository / "scale" / "1" / "model.onnx"
            path.write_bytes(b"not a model")
            os.utime(path, (factor, factor))
            with pytest.raises(InvalidArgumentError, match="version 1 is at UNAVAILABLE state: "):
                await server.lifecycle.load("scale", {})
            assert await server.infer("scale") == factor - 1
            path.write_bytes(scale_model(factor))
            await server.lifecycle.load("scale", {})
            assert await server.infer("scale") == factor
            meanwhile += len(server.answers) - before
            await server.more_than(before)
        assert meanwhile > 0
        server.quiet()
        await asyncio.gather(*clients)
        assert server.failures == []
        assert set(server.answers) <= set(range(2, 9))

    serve(repository, test)


def test_versions_answer_side_by_side(repository: Path) -> None:
    (repository / "scale" / "3").mkdir()
    (repository / "scale" / "3" / "model.onnx").write_bytes(scale_model(30))
    (repository / "scale" / "config.pbtxt").write_text("version_policy { all {} }")

    async def test(server: Server) -> None:
        assert await server.infer("scale") == 30
        assert await server.infer("scale", 1) == 2
        assert await server.infer("scale", 3) == 30

    serve(repository, test, ControlMode.NONE)


def test_override_files_answer_instead_of_the_repository(repository: Path) -> None:
    async def test(server: Server) -> None:
        await server.lifecycle.load("scale", {})
        parameters: dict[str, str | bytes] = {
            "config": '{"backend": "onnxruntime"}',
            "file:5/model.onnx": scale_model(50),
        }
        await server.lifecycle.load("scale", parameters)
        assert await server.infer("scale") == 50
        await server.lifecycle.load("scale", {})
        assert await server.infer("scale") == 2

    serve(repository, test)


def test_polled_repository_is_followed(repository: Path) -> None:
    async def test(server: Server) -> None:
        (repository / "scale" / "2").mkdir()
        (repository / "scale" / "2" / "model.onnx").write_bytes(scale_model(20))
        await server.lifecycle.poll()
        assert await server.infer("scale") == 2
        await server.lifecycle.poll()
        assert await server.infer("scale") == 20

    serve(repository, test, ControlMode.POLL)


def test_missing_labels_fail_the_load(repository: Path) -> None:
    (repository / "echo" / "labels.txt").unlink()

    async def test(server: Server) -> None:
        with pytest.raises(
            InvalidArgumentError,
            match=r"Internal: failed to open text file for read .*/echo/labels.txt: No",
        ):
            await server.lifecycle.load("echo", {})

    serve(repository, test)


def test_loading_and_unloading_leaves_no_thread_task_or_file(repository: Path) -> None:
    async def test(server: Server) -> None:
        parameters: dict[str, str | bytes] = {
            "config": '{"backend": "onnxruntime"}',
            "file:1/model.onnx": scale_model(4),
        }
        threads = files = 0
        for cycle in range(30):
            await server.lifecycle.load("scale", parameters if cycle % 2 else {})
            assert await server.infer("scale") in (2, 4)
            await server.lifecycle.unload("scale")
            await server.lifecycle._live.closed()  # noqa: SLF001 - nobody else waits for the end of all versions
            assert count_entries(tempfile.gettempdir()) == 0
            if cycle == 15:
                gc.collect()
                threads, files = threading.active_count(), count_entries("/proc/self/fd")
        gc.collect()
        assert threading.active_count() <= threads + 2  # pools may still grow to their size
        assert count_entries("/proc/self/fd") <= files
        assert asyncio.all_tasks() == {asyncio.current_task()}

    before = threading.active_count()
    serve(repository, test)
    assert threading.active_count() <= before
