"""Ensembles of models that run, on a real event loop in a thread."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from halimede.backends.base import BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.registry import backend_class
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.clock import LoopClock
from halimede.core.datatypes import FP32
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.ensembles.model import EnsembleModel
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.loaded_version import LoadedInstance, LoadedVersion
from halimede.engine.model import Model
from halimede.engine.served_model import ServedModel
from halimede.engine.statistics import ModelStatistics
from tests.engine.ensembles.fakes import parse, ports, step
from tests.support.loops import LoopThread

NOWHERE = Path("/nonexistent")


def identity(name: str, batching: str = "") -> ModelConfig:
    return parse(
        f'name: "{name}" backend: "identity" max_batch_size: 8 {batching} '
        f"{ports('input', 'INPUT0', '4')} {ports('output', 'OUTPUT0', '4')}"
    )


class World:
    """Models on a loop in a thread, and an ensemble of them."""

    def __init__(self, loop: LoopThread) -> None:
        self.loop = loop
        self.clock = loop.call(LoopClock, loop.loop)
        self.models: dict[str, ServedModel] = {}

    def load(self, config: ModelConfig, *instances: Instance) -> None:
        """Load a model, of its backend's instance or of these."""
        source = ModelSource(config.name, 1, NOWHERE, config)
        backend = backend_class(config)(source, BackendOptions())
        backend.check_config()
        made = instances or [backend.create_instance(InstanceSpec("i_0"))]
        loaded = LoadedVersion(
            source,
            Signature.from_config(config),
            backend,
            tuple(LoadedInstance(InstanceSpec("i_0"), False, instance) for instance in made),
            {},
            ModelStatistics(),
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

    def infer(self, model: ServedModel, *inputs: dict[str, Tensor]) -> list[list[InferResponse]]:
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
            assert ended.acquire(timeout=60)
        return responses

    def close(self) -> None:
        """Close the models and the clock."""
        for model in self.models.values():
            self.loop.run(model.drained())
            self.loop.run(model.close())
        self.loop.call(self.clock.close)


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
