import asyncio

from halimede.core.errors import UnavailableError
from tests.engine.ensembles.conftest import Start
from tests.engine.ensembles.fakes import Bench, FakeModel, ensemble, model, step, tensor

CHAIN = ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y"))
ROWS = ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y"), batch=8)


def compute(fake: FakeModel, *ns: int) -> None:
    """Say what the oldest request took: to gather, compute and hand out."""
    on_compute = fake.seen[-1].on_compute
    assert on_compute is not None
    on_compute(*ns)


def run(bench: Bench, rows: int = 1) -> None:
    bench.infer({"X": tensor(*range(rows)).reshaped((rows, 1))})
    bench.clock.advance(5_000)
    compute(bench.fake("a"), 1, 10, 100)
    bench.fake("a").send(OUT=tensor(*range(rows)).reshaped((rows, 1)))
    compute(bench.fake("b"), 2, 20, 200)
    bench.fake("b").send(OUT=tensor(*range(rows)).reshaped((rows, 1)))


def test_a_request_counts_with_the_sums_of_its_steps(start: Start) -> None:
    bench = start(ROWS, model("a", batch=8), model("b", batch=8))
    run(bench, rows=2)
    counts = bench.ensemble.statistics
    assert (counts.success.count, counts.success.ns) == (1, 5_000)
    assert (counts.queue.count, counts.queue.ns) == (1, 0)
    assert (counts.inference_count, counts.execution_count) == (2, 1)
    assert (counts.compute_input.count, counts.compute_input.ns) == (1, 3)
    assert (counts.compute_infer.count, counts.compute_infer.ns) == (1, 30)
    assert (counts.compute_output.count, counts.compute_output.ns) == (1, 300)
    assert list(counts.batches) == [2]
    assert (counts.batches[2].compute_infer.count, counts.batches[2].compute_infer.ns) == (1, 30)
    assert counts.last_inference_ms > 0
    assert counts.request_us.total == 5
    assert bench.ensemble.pending == 0


def test_a_decoupled_model_that_tells_late_is_counted_too(start: Start) -> None:
    config = ensemble(step("many", "IN=X", "OUT=Y"))
    bench = start(config, model("many", decoupled=True))
    bench.infer()
    bench.clock.advance(2_000_000)
    bench.fake("many").send(1)
    bench.clock.advance(5_000_000)
    bench.fake("many").end()
    compute(bench.fake("many"), 1, 2, 3)
    counts = bench.ensemble.statistics
    assert (counts.compute_infer.count, counts.compute_infer.ns) == (1, 2)
    assert counts.batches[1].compute_output.ns == 3
    assert counts.first_response_ms.total == 2
    assert counts.success.ns == 7_000_000


def test_an_ensemble_tells_the_one_around_it_what_its_steps_took(start: Start) -> None:
    inner = start(ensemble(step("a", "IN=X", "OUT=Y"), name="inner"), model("a"))
    bench = start(ensemble(step("inner", "X=X", "Y=Y")), inner.ensemble)
    bench.infer()
    compute(inner.fake("a"), 1, 2, 3)
    inner.fake("a").send(1)
    assert bench.ensemble.statistics.compute_infer.ns == 2


def test_an_ensemble_tells_the_one_around_it_late_too(start: Start) -> None:
    inner = start(ensemble(step("a", "IN=X", "OUT=Y"), name="inner"), model("a", decoupled=True))
    bench = start(ensemble(step("inner", "X=X", "Y=Y")), inner.ensemble)
    bench.infer()
    inner.fake("a").end()
    compute(inner.fake("a"), 1, 2, 3)
    assert inner.ensemble.statistics.compute_infer.ns == 2
    assert bench.ensemble.statistics.compute_infer.ns == 2


def test_a_stopped_ensemble_finishes_what_it_has_and_takes_no_more(start: Start) -> None:
    bench = start(CHAIN, model("a"), model("b"))
    bench.infer()
    bench.ensemble.stop()
    assert bench.ensemble.inflight == 1
    drained = bench.loop.create_task(bench.ensemble.drained())
    bench.loop.run_until_complete(asyncio.sleep(0))
    assert not drained.done()
    bench.fake("a").send(1)
    bench.fake("b").send(1)
    bench.loop.run_until_complete(drained)
    assert bench.response
    bench.answers.clear()
    bench.infer()
    assert isinstance(bench.error, UnavailableError)
    assert "Server is stopping, scheduler for model has stopped accepting new inference requests" in str(
        bench.error
    )
    bench.loop.run_until_complete(bench.ensemble.drained())
    bench.loop.run_until_complete(bench.ensemble.close())


def test_outputs_have_the_labels_of_the_models_that_write_them(start: Start) -> None:
    config = ensemble(step("a", "IN=X", "OUT=Y MORE=Z"), outputs="X Y Z")
    bench = start(config, model("a", "IN", "OUT MORE"))
    bench.fake("a").labels = {"OUT": ["cat", "dog"], "MORE": ["red"]}
    assert bench.ensemble.labels == {"Y": ["cat", "dog"], "Z": ["red"]}
    assert bench.make(config, {"Y": ["katze", "hund"]}).labels == {"Y": ["katze", "hund"], "Z": ["red"]}
    bench.models.clear()
    assert bench.ensemble.labels == {}


def test_the_configuration_says_whether_the_ensemble_is_decoupled(start: Start) -> None:
    bench = start(CHAIN, model("a", decoupled=True), model("b"))
    assert bench.ensemble.config.model_transaction_policy.decoupled
    assert not CHAIN.model_transaction_policy.decoupled
    assert bench.ensemble.name == "e"
    assert bench.ensemble.version == 1
