"""Why a batch has no more requests."""

import pytest

from halimede.backends.batch import Closing
from halimede.config.model_config_pb2 import ModelDynamicBatching
from tests.engine.scheduling.helpers import Bench, signature, spec
from tests.engine.scheduling.test_batching import dynamic


def closings(bench: Bench) -> list[Closing | None]:
    return [batch.closing for _, batch in bench.running]


@pytest.mark.parametrize(
    ("config", "rows", "closing"),
    [
        (dynamic(), 1, Closing.INSTANCE_FREE),
        (dynamic(), 8, Closing.INSTANCE_FREE),
        (dynamic((8,), delay=100), 8, Closing.FULL),
        (dynamic((4,), delay=100), 4, Closing.PREFERRED_SIZE),
        (dynamic((2,), delay=100), 6, Closing.FULL),
    ],
)
def test_one_request_that_runs_at_once(config: ModelDynamicBatching, rows: int, closing: Closing) -> None:
    bench = Bench(config)
    assert bench.model.max_batch_size == 8
    bench.send("a", rows=rows)
    assert closings(bench) == [closing]


def test_requests_that_wait_for_an_instance() -> None:
    bench = Bench(dynamic())
    bench.send("abc")
    bench.send("de")
    bench.finish()
    assert (bench.batches, closings(bench)) == (["abc", "de"], [Closing.INSTANCE_FREE])


def test_batch_that_has_no_room_for_the_next_request() -> None:
    bench = Bench(dynamic(delay=100))
    bench.send("ab", rows=3)
    bench.send("c", rows=3)
    assert (bench.batches, closings(bench)) == (["ab"], [Closing.FULL])


def test_batch_that_the_next_request_would_make_larger_than_preferred() -> None:
    bench = Bench(dynamic((4,), delay=1000))
    bench.send("a", rows=3)
    bench.send("b", rows=2)
    assert (bench.batches, closings(bench)) == (["a"], [Closing.FULL])


def test_delay_that_is_over() -> None:
    bench = Bench(dynamic((4,), delay=100))
    bench.send("ab")
    bench.wait(100)
    assert (bench.batches, closings(bench)) == (["ab"], [Closing.DELAY_OVER])


def test_next_request_of_another_shape() -> None:
    bench = Bench(dynamic(delay=1000), signature(spec("IN", (-1,))))
    bench.send("ab", shape=(3,))
    bench.send("c", shape=(5,))
    assert (bench.batches, closings(bench)) == (["ab"], [Closing.OTHER_SHAPES])


def test_without_dynamic_batching_there_is_no_reason() -> None:
    bench = Bench()
    bench.send("a")
    assert closings(bench) == [None]
