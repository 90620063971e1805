"""Ensembles of real models, on a real event loop."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from halimede.backends.base import BackendOptions, InstanceSpec, ModelSource
from halimede.backends.registry import backend_class
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.clock import LoopClock
from halimede.core.datatypes import FP32, INT32, UINT32
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.ensembles.model import EnsembleModel
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.ensembles.served import ServedModel
from halimede.engine.loading import LoadedInstance, LoadedVersion
from halimede.engine.model import Model
from halimede.engine.statistics import ModelStatistics
from tests.engine.ensembles.fakes import parse, ports, step
from tests.support.loops import LoopThread

NOWHERE = Path("/nonexistent")


def identity(name: str, batching: str = "") -> ModelConfig:
    return parse(
        f'name: "{name}" backend: "identity" max_batch_size: 8 {batching} '
        f"{ports('input', 'INPUT0', '4')} {ports('output', 'OUTPUT0', '4')}"
    )


REPEAT = parse(
    'name: "repeat" backend: "repeat" model_transaction_policy { decoupled: true } '
    f"{ports('input', 'IN', '-1', 'TYPE_INT32')} {ports('input', 'DELAY', '-1', 'TYPE_UINT32')} "
    f"{ports('input', 'WAIT', '1', 'TYPE_UINT32')} {ports('output', 'OUT', '1', 'TYPE_INT32')} "
    f"{ports('output', 'IDX', '1', 'TYPE_UINT32')}"
)
SQUARE = parse(
    'name: "square" backend: "square" model_transaction_policy { decoupled: true } '
    f"{ports('input', 'IN', '1', 'TYPE_INT32')} {ports('output', 'OUT', '1', 'TYPE_INT32')}"
)


class World:
    """Models on a loop in a thread, and an ensemble of them."""

    def __init__(self, loop: LoopThread) -> None:
        self.loop = loop
        self.clock = loop.call(LoopClock, loop.loop)
        self.models: dict[str, ServedModel] = {}

    def load(self, config: ModelConfig) -> None:
        """Load a model."""
        source = ModelSource(config.name, 1, NOWHERE, config)
        backend = backend_class(config)(source, BackendOptions())
        backend.check_config()
        instance = LoadedInstance(InstanceSpec("i_0"), False, backend.create_instance(InstanceSpec("i_0")))
        loaded = LoadedVersion(
            source, Signature.from_config(config), backend, (instance,), {}, ModelStatistics()
        )
        self.models[config.name] = self.loop.call(Model, loaded, self.clock, self.loop.loop)

    def compose(self, config: ModelConfig) -> EnsembleModel:
        """Load an ensemble."""
        plan = EnsemblePlan.from_config(config, lambda name, version: self.models[name].config)
        source = ModelSource(config.name, 1, NOWHERE, config)
        made = EnsembleModel(
            source,
            plan,
            lambda name, version: self.models[name],
            self.clock,
            self.loop.loop,
            {},
            ModelStatistics(),
        )
        self.models[config.name] = made
        return made

    def infer(self, model: EnsembleModel, *inputs: dict[str, Tensor]) -> list[list[InferResponse]]:
        """Send requests in one turn of the loop: the responses to each, once all have ended."""
        responses: list[list[InferResponse]] = [[] for _ in inputs]
        ended = threading.Semaphore(0)

        def respond_to(index: int) -> Callable[[InferResponse | None, bool], None]:
            def respond(response: InferResponse | None, final: bool) -> None:
                if response is not None:
                    responses[index].append(response)
                if final:
                    ended.release()

            return respond

        def send() -> None:
            for index, tensors in enumerate(inputs):
                model.infer(InferRequest(model.name, tensors, respond_to(index)))

        self.loop.call(send)
        for _ in inputs:
            assert ended.acquire(timeout=10)
        return responses

    def close(self) -> None:
        """Close the models and the clock."""
        for model in self.models.values():
            self.loop.run(model.drained())
            self.loop.run(model.close())
        self.loop.call(self.clock.close)


@pytest.fixture
def world() -> Iterator[World]:
    with LoopThread() as loop:
        made = World(loop)
        try:
            yield made
        finally:
            made.close()


def chain(*names: str) -> ModelConfig:
    tensors = ["X", *(f"t{index}" for index in range(len(names) - 1)), "Y"]
    steps = [
        step(name, f"INPUT0={tensors[index]}", f"OUTPUT0={tensors[index + 1]}")
        for index, name in enumerate(names)
    ]
    return parse(
        f'name: "e" platform: "ensemble" max_batch_size: 8 {ports("input", "X", "4")} '
        f"{ports('output', 'Y', '4')} ensemble_scheduling {{ {' '.join(steps)} }}"
    )


def row(value: float) -> dict[str, Tensor]:
    return {"X": Tensor(FP32, (1, 4), np.full(4, value, np.float32).tobytes())}


def test_the_bytes_of_a_tensor_pass_through_all_steps_uncopied(world: World) -> None:
    for name in "abc":
        world.load(identity(name))
    inputs = row(7)
    ((response,),) = world.infer(world.compose(chain("a", "b", "c")), inputs)
    assert response.error is None
    assert response.outputs["Y"] is inputs["X"]
    assert response.outputs["Y"].data is inputs["X"].data


def test_requests_to_an_ensemble_share_the_batches_of_its_models(world: World) -> None:
    for name in "ab":
        world.load(identity(name, "dynamic_batching { }"))
    made = world.compose(chain("a", "b"))
    answers = world.infer(made, *(row(value) for value in range(8)))
    for value, (response,) in enumerate(answers):
        assert response.outputs["Y"].array.tolist() == [[value] * 4]
    assert list(world.models["a"].statistics.batches) == [8]
    assert list(world.models["b"].statistics.batches) == [8]
    assert made.statistics.success.count == 8
    assert made.statistics.execution_count == 8


def vector(*numbers: int) -> Tensor:
    return Tensor.from_array(INT32, np.array(numbers, np.int32))


def test_a_stream_of_a_stream_comes_in_order(world: World) -> None:
    world.load(REPEAT)
    world.load(SQUARE)
    config = parse(
        f'name: "e" platform: "ensemble" {ports("input", "X", "-1", "TYPE_INT32")} '
        f"{ports('input', 'D', '-1', 'TYPE_UINT32')} {ports('input', 'W', '1', 'TYPE_UINT32')} "
        f"{ports('output', 'Y', '1', 'TYPE_INT32')} ensemble_scheduling {{ "
        f"{step('repeat', 'IN=X DELAY=D WAIT=W', 'OUT=t')} {step('square', 'IN=t', 'OUT=Y')} "
        f"max_inflight_requests: 2 }}"
    )
    made = world.compose(config)
    inputs = {
        "X": vector(2, 0, 3, 1),
        "D": Tensor.from_array(UINT32, np.zeros(4, np.uint32)),
        "W": Tensor.from_array(UINT32, np.zeros(1, np.uint32)),
    }
    (responses,) = world.infer(made, inputs)
    assert [int(each.outputs["Y"].array[0]) for each in responses] == [2, 2, 3, 3, 3, 1]
    assert made.statistics.success.count == 1
    assert world.models["square"].statistics.success.count == 4
