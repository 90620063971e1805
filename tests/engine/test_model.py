import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from google.protobuf import text_format

from halimede.backends.base import ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.core.clock import LoopClock
from halimede.core.datatypes import FP32, INT32, UINT32
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.lifecycle.loading import load_version
from halimede.engine.model import Model
from halimede.engine.settings import EngineSettings
from halimede.workers.host import WorkerHost
from tests.support.loops import LoopThread

IDENTITY = """
    name: "m" backend: "identity" max_batch_size: 8 dynamic_batching { }
    input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 }
    output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }
"""
REPEAT = """
    name: "m" backend: "repeat" model_transaction_policy { decoupled: true }
    input [ { name: "IN" data_type: TYPE_INT32 dims: -1 }, { name: "DELAY" data_type: TYPE_UINT32 dims: -1 },
            { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
    output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 }, { name: "IDX" data_type: TYPE_UINT32 dims: 1 } ]
"""


NO_WORKERS = cast(WorkerHost, None)  # these models run in the server


def source(text: str, directory: Path = Path("/nonexistent")) -> ModelSource:
    config = ModelConfig()
    text_format.Parse(text, config)
    normalise(config)
    return ModelSource("m", 1, directory, config)


class Served:
    """A model on a loop in a thread, and what it answered."""

    def __init__(self, loop: LoopThread, text: str) -> None:
        self.loop = loop
        self.loaded = load_version(source(text), EngineSettings((), cpu_threads=1, gpus=()), NO_WORKERS)
        self.clock = loop.call(LoopClock, loop.loop)
        self.model: Model = loop.call(Model, self.loaded, self.clock, loop.loop)
        self.answers: list[tuple[InferResponse | None, bool]] = []
        self._answered = threading.Semaphore(0)

    def respond(self, response: InferResponse | None, final: bool) -> None:
        self.answers.append((response, final))
        if final:
            self._answered.release()

    def infer(self, *inputs: dict[str, Tensor], outputs: tuple[str, ...] = ()) -> list[InferRequest]:
        """Send the requests in one turn of the loop, and wait for their final responses."""
        requests = [InferRequest("m", tensors, self.respond, outputs=outputs) for tensors in inputs]

        def send() -> None:
            for request in requests:
                self.model.infer(request)

        self.loop.call(send)
        for _ in requests:
            assert self._answered.acquire(timeout=60)
        return requests

    def error(self) -> HalimedeError:
        """The error of the last answer."""
        response = self.answers[-1][0]
        assert response is not None
        assert response.error is not None
        return response.error

    def close(self) -> None:
        self.loop.run(self.model.close())
        self.loop.call(self.clock.close)


def run(text: str, scenario: Any) -> None:
    with LoopThread() as loop:
        served = Served(loop, text)
        try:
            scenario(served)
        finally:
            served.close()


def fp32(*values: float) -> dict[str, Tensor]:
    return {"INPUT0": Tensor.from_array(FP32, np.array([values], np.float32))}


def test_requests_of_one_turn_run_as_one_batch_and_are_counted() -> None:
    def scenario(served: Served) -> None:
        served.infer(fp32(1, 2, 3, 4), fp32(5, 6, 7, 8), fp32(0, 0, 0, 0))
        first = served.answers[0][0]
        assert first is not None
        assert first.outputs["OUTPUT0"].array.tolist() == [[1, 2, 3, 4]]
        statistics = served.model.statistics
        assert statistics.execution_count == 1
        assert statistics.inference_count == 3
        assert statistics.success.count == statistics.queue.count == statistics.compute_infer.count == 3
        assert list(statistics.batches) == [3]
        assert statistics.batches[3].compute_infer.count == 1
        assert statistics.last_inference_ms > 0
        assert served.model.inflight == 0

    run(IDENTITY, scenario)


def test_a_wrong_request_is_answered_and_not_counted() -> None:
    def scenario(served: Served) -> None:
        served.infer({})
        assert isinstance(served.error(), InvalidArgumentError)
        assert served.model.statistics.fail.count == 0
        assert served.model.inflight == 0

    run(IDENTITY, scenario)


def test_a_stopped_model_accepts_no_more() -> None:
    def scenario(served: Served) -> None:
        served.loop.call(served.model.stop)
        served.infer(fp32(1, 2, 3, 4))
        error = served.error()
        assert isinstance(error, UnavailableError)
        assert error.message.endswith(
            "Server is stopping, scheduler for model has stopped accepting new inference requests"
        )

    run(IDENTITY, scenario)


def test_drained_waits_for_what_is_in_flight() -> None:
    slow = IDENTITY + 'parameters { key: "execute_delay_ms" value { string_value: "100" } }'

    def scenario(served: Served) -> None:
        async def drain() -> int:
            served.model.infer(InferRequest("m", fp32(1, 2, 3, 4), served.respond))
            served.model.stop()
            assert served.model.inflight == 1
            await served.model.drained()
            return len(served.answers)

        assert served.loop.run(drain()) == 1
        assert served.loop.run(_soon(served.model.drained())) is None

    run(slow, scenario)


async def _soon(work: Coroutine[Any, Any, None]) -> None:
    await asyncio.wait_for(work, 60)


def test_a_decoupled_model_answers_many_times_and_counts_once() -> None:
    def scenario(served: Served) -> None:
        inputs = {
            "IN": Tensor.from_array(INT32, np.array([7, 8, 9], np.int32)),
            "DELAY": Tensor.from_array(UINT32, np.zeros(3, np.uint32)),
            "WAIT": Tensor.from_array(UINT32, np.zeros(1, np.uint32)),
        }
        served.infer(inputs)
        values = [
            response.outputs["OUT"].array.tolist() for response, _ in served.answers if response is not None
        ]
        assert values == [[7], [8], [9]]
        assert [final for _, final in served.answers].count(True) == 1
        assert served.answers[-1][1]
        assert served.model.statistics.success.count == 1
        assert served.model.inflight == 0
        # responses are counted when they have been handed on, in the same turn of the loop
        responses = served.loop.call(lambda: served.model.statistics.responses)
        assert [each.success.count for each in responses] == [1, 1, 1, 0]
        assert [each.empty_response.count for each in responses] == [0, 0, 0, 1]
        assert all(each.compute_infer.count == 1 and each.compute_infer.ns > 0 for each in responses)

    run(REPEAT, scenario)


def test_a_load_that_fails_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    broken = IDENTITY + 'parameters { key: "execute_delay_ms" value { string_value: "soon" } }'
    with pytest.raises(InvalidArgumentError):
        load_version(source(broken), EngineSettings((), gpus=()), NO_WORKERS)
    assert threading.active_count() == before
