from collections.abc import Callable, Iterator

import pytest

from halimede.config.model_config_pb2 import ModelConfig
from halimede.engine.ensembles.model import EnsembleModel
from tests.engine.ensembles.fakes import Bench, FakeModel
from tests.engine.ensembles.world import World
from tests.support.loops import LoopThread

Start = Callable[..., Bench]


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes benches, and closes them after the test."""
    benches: list[Bench] = []

    def make(config: ModelConfig, *models: FakeModel | ModelConfig | EnsembleModel) -> Bench:
        benches.append(Bench(config, *models))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


@pytest.fixture
def world() -> Iterator[World]:
    """Models on a loop in a thread, closed after the test."""
    with LoopThread() as loop:
        made = World(loop)
        try:
            yield made
        finally:
            made.close()
