"""Models and ensembles with the cache in front of them."""

import asyncio
from collections.abc import Iterator

import pytest

from halimede.backends.base import ModelSource
from halimede.backends.testing.identity import IdentityInstance
from halimede.core.clock import LoopClock
from halimede.core.errors import CancelledError, InternalError, InvalidArgumentError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.cache.access import CacheAccess
from halimede.engine.cache.local import LocalCache
from halimede.engine.ensembles.model import EnsembleModel
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.lifecycle.loading import load_version
from halimede.engine.model import Model
from halimede.engine.settings import EngineSettings
from halimede.engine.statistics import FailureReason, ModelStatistics
from tests.engine.ensembles.fakes import Bench, ensemble, model, step, tensor
from tests.engine.test_model import IDENTITY, NO_WORKERS, fp32, source

SLOW = IDENTITY + 'parameters { key: "execute_delay_ms" value { string_value: "50" } }'
CHAIN = ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y"))


class Served:
    """A model with a cache on a loop, and what it answered."""

    def __init__(self, text: str) -> None:
        loop = asyncio.get_running_loop()
        loaded = load_version(source(text), EngineSettings((), cpu_threads=1, gpus=()), NO_WORKERS)
        self.clock = LoopClock(loop)
        self.cache = LocalCache(1 << 20, self.clock)
        self.model = Model(loaded, self.clock, loop, None, CacheAccess(self.cache, bytes(32)))
        self.statistics = self.model.statistics

    def send(self, *values: float) -> "asyncio.Future[InferResponse]":
        """The response to a request."""
        future: asyncio.Future[InferResponse] = asyncio.get_running_loop().create_future()

        def respond(response: InferResponse | None, final: bool) -> None:
            assert final
            assert response is not None
            future.set_result(response)

        self.model.infer(InferRequest("m", fp32(*values), respond))
        return future

    async def close(self) -> None:
        await self.model.close()
        self.clock.close()


def values(response: InferResponse) -> list[float]:
    assert response.error is None, response.error
    (row,) = response.outputs["OUTPUT0"].array.tolist()
    return list(row)


def test_a_model_answers_from_the_cache_and_counts_it() -> None:
    async def scenario() -> None:
        served = Served(IDENTITY)
        assert values(await served.send(1, 2, 3, 4)) == [1, 2, 3, 4]
        hit = served.send(1, 2, 3, 4)
        assert hit.done()  # at once
        assert values(hit.result()) == [1, 2, 3, 4]
        assert values(await served.send(5, 6, 7, 8)) == [5, 6, 7, 8]
        statistics = served.statistics
        assert statistics.success.count == statistics.queue.count == 3
        assert statistics.cache_hit.count == 1
        assert statistics.cache_miss.count == 2
        assert statistics.inference_count == statistics.execution_count == 2
        assert statistics.compute_infer.count == 2
        assert served.model.inflight == 0
        await served.close()

    asyncio.run(scenario())


def test_equal_requests_of_one_turn_are_one_execution() -> None:
    async def scenario() -> None:
        served = Served(IDENTITY)
        responses = await asyncio.gather(*(served.send(number % 2, 2, 3, 4) for number in range(20)))
        assert [values(each)[0] for each in responses] == [number % 2 for number in range(20)]
        assert served.statistics.execution_count == 1
        assert served.statistics.inference_count == 2
        assert served.statistics.cache_hit.count == 18
        assert served.statistics.success.count == 20
        await served.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("batching", "order"), [("{ }", ["hit", "miss"]), ("{ preserve_ordering: true }", ["miss", "hit"])]
)
def test_hits_keep_the_order_of_requests_if_the_model_says_so(batching: str, order: list[str]) -> None:
    async def scenario() -> None:
        served = Served(SLOW.replace("dynamic_batching { }", f"dynamic_batching {batching}"))
        await served.send(1, 0, 0, 0)
        found: list[str] = []
        miss, hit = served.send(2, 0, 0, 0), served.send(1, 0, 0, 0)
        miss.add_done_callback(lambda _: found.append("miss"))
        hit.add_done_callback(lambda _: found.append("hit"))
        await asyncio.gather(miss, hit)
        assert found == order
        assert served.statistics.cache_hit.count == 1
        await served.close()

    asyncio.run(scenario())


def test_a_wrong_request_is_not_looked_up() -> None:
    async def scenario() -> None:
        served = Served(IDENTITY)
        response = await served.send(1, 2)
        assert isinstance(response.error, InvalidArgumentError)
        assert (served.cache.counts.hits, served.cache.counts.misses) == (0, 0)
        await served.close()

    asyncio.run(scenario())


def test_drained_waits_for_those_that_wait_for_a_response() -> None:
    async def scenario() -> None:
        served = Served(SLOW)
        waiting = [served.send(1, 2, 3, 4) for _ in range(3)]
        assert served.model.inflight == 3
        served.model.stop()
        await served.model.drained()
        assert all(each.done() and values(each.result()) == [1, 2, 3, 4] for each in waiting)
        assert len(served.cache) == 0
        assert isinstance((await served.send(1, 2, 3, 4)).error, UnavailableError)
        await served.close()

    asyncio.run(scenario())


def test_a_model_with_the_cache_gives_and_takes_tensors_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdentityInstance, "device", (2, 0))

    async def scenario() -> None:
        served = Served(IDENTITY)
        loop = asyncio.get_running_loop()
        assert Model(served.model.loaded, served.clock, loop).takes_device_tensors
        assert not served.model.takes_device_tensors
        await served.close()

    asyncio.run(scenario())


class CachedEnsemble(Bench):
    """An ensemble with a cache; its models answer when the test says so."""

    def make(self, config: object, labels: object = None) -> EnsembleModel:
        """The ensemble."""
        assert config is CHAIN
        plan = EnsemblePlan.from_config(CHAIN, lambda name, version: self.models[name].config)
        self.cache = LocalCache(1 << 20, self.clock)
        return EnsembleModel(
            ModelSource("e", 1, source("").directory, CHAIN), plan, self.find, self.clock, self.loop, {},
            ModelStatistics(), CacheAccess(self.cache, bytes(32)),
        )  # fmt: skip


@pytest.fixture
def bench() -> Iterator[CachedEnsemble]:
    made = CachedEnsemble(CHAIN, model("a"), model("b"))
    yield made
    made.loop.close()


def compute(bench: CachedEnsemble, value: float) -> None:
    bench.fake("a").send(value)
    bench.fake("b").send(value)


def answered(bench: CachedEnsemble) -> list[object]:
    """What clients got: values, or errors."""
    found: list[object] = []
    for response, final in bench.answers:
        assert final
        assert response is not None
        error = response.error
        found.append(type(error) if error is not None else response.outputs["Y"].array.tolist())
    return found


@pytest.fixture(autouse=True)
def several_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ensemble of a bench answer several requests."""

    def respond(self: Bench, response: InferResponse | None, final: bool) -> None:
        self.answers.append((response, final))

    monkeypatch.setattr(Bench, "_respond", respond)


def test_an_ensemble_answers_from_the_cache_and_counts_it(bench: CachedEnsemble) -> None:
    bench.infer()
    compute(bench, 5)
    bench.infer()
    assert answered(bench) == [[5], [5]]
    assert len(bench.fake("a").seen) == 1
    statistics = bench.ensemble.statistics
    assert statistics.success.count == statistics.queue.count == 2
    assert statistics.cache_hit.count == statistics.cache_miss.count == 1
    assert statistics.inference_count == statistics.execution_count == statistics.compute_infer.count == 1
    assert bench.ensemble.inflight == 0


def test_equal_requests_to_an_ensemble_wait_for_the_first(bench: CachedEnsemble) -> None:
    bench.infer()
    bench.infer()
    assert bench.ensemble.inflight == 2
    compute(bench, 5)
    assert answered(bench) == [[5], [5]]
    assert bench.ensemble.inflight == 0


def test_if_an_ensembles_first_request_fails_the_next_runs(bench: CachedEnsemble) -> None:
    bench.infer()
    bench.infer()
    bench.fake("a").fail(InternalError("no"))
    assert answered(bench) == [InternalError]
    compute(bench, 6)
    assert answered(bench) == [InternalError, [6]]
    assert bench.ensemble.statistics.failures[FailureReason.OTHER] == 1


def test_cancelled_requests_of_an_ensemble_leave_the_others(bench: CachedEnsemble) -> None:
    first = bench.infer()
    second = bench.infer()
    bench.infer()
    second.cancel()
    assert answered(bench) == [CancelledError]
    first.cancel()
    bench.fake("a").fail(CancelledError("cancelled"))
    assert answered(bench) == [CancelledError, CancelledError]
    compute(bench, 6)
    assert answered(bench) == [CancelledError, CancelledError, [6]]
    assert bench.ensemble.statistics.failures[FailureReason.CANCELED] == 2
    assert bench.ensemble.inflight == 0


def test_a_request_that_was_cancelled_before_it_came_is_not_looked_up(bench: CachedEnsemble) -> None:
    bench.infer(cancelled=True)
    assert answered(bench) == [CancelledError]
    assert bench.cache.counts.misses == 0


def test_a_stopped_ensemble_leaves_nothing_in_the_cache(bench: CachedEnsemble) -> None:
    bench.infer()
    compute(bench, 5)
    bench.infer({"X": tensor(2)})
    assert len(bench.cache) == 1
    bench.ensemble.stop()
    compute(bench, 7)
    assert len(bench.cache) == 0
