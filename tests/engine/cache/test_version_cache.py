import logging

import numpy as np
import pytest

from halimede.core.clock import MILLISECOND
from halimede.core.datatypes import BYTES
from halimede.core.errors import CancelledError, InternalError, UnavailableError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.cache.local import LocalCache
from halimede.engine.statistics import FailureReason
from halimede.engine.summaries import LatencySummaries
from tests.engine.cache.bench import Bench, SlowCache


def test_a_request_that_was_answered_before_is_answered_at_once() -> None:
    bench = Bench()
    bench.send("a")
    bench.finish("a", 5, parameters={"p": "q"})
    bench.send("b")
    assert bench.answers == {"a": [5], "b": [5]}
    assert bench.computed == ["a"]
    assert bench.responses["b"].parameters == {"p": "q"}
    assert bench.responses["b"] is not bench.responses["a"]
    assert bench.inflight == 0


def test_other_inputs_and_other_outputs_are_other_requests() -> None:
    bench = Bench()
    bench.send("a")
    bench.send("b", 2)
    bench.send("c", outputs=("OUT",))
    assert bench.computed == ["a", "b", "c"]


def test_requests_of_a_sequence_are_always_computed() -> None:
    bench = Bench()
    for name in "abc":
        bench.send(name, sequence_id=7)
    assert bench.computed == ["a", "b", "c"]
    for name in "abc":
        bench.finish(name, 5)
    bench.send("d", sequence_id=7)
    bench.send("e")
    assert bench.computed == ["a", "b", "c", "d", "e"]
    assert bench.statistics.cache_miss.count == 0


def test_hits_and_misses_are_counted_as_the_statistics_say() -> None:
    bench = Bench()
    statistics = bench.statistics
    statistics.summaries = LatencySummaries()
    bench.send("a")
    bench.clock.stall(7 * MILLISECOND)
    bench.finish("a", 5)
    assert statistics.cache_miss.count == 1
    assert (
        statistics.cache_hit.count == statistics.success.count == 0
    )  # the model itself counts what it computes
    request = bench.send("b")
    assert statistics.cache_hit.count == statistics.success.count == statistics.queue.count == 1
    assert statistics.inference_count == statistics.execution_count == 0
    assert statistics.compute_infer.count == 0
    assert sum(statistics.request_us.counts) == sum(statistics.queue_us.counts) == 1
    assert statistics.last_inference_ms == 0
    assert statistics.summaries.cache_hit.count == statistics.summaries.request.count == 1
    assert statistics.summaries.cache_miss.count == 1
    assert request.on_cancel is None
    counts = bench.cache.counts
    assert (counts.hits, counts.misses) == (1, 1)


def test_equal_requests_wait_for_the_one_that_is_computed() -> None:
    bench = Bench()
    for name in "abc":
        bench.send(name)
    bench.clock.stall(3 * MILLISECOND)
    bench.send("d")
    bench.clock.stall(2 * MILLISECOND)
    assert bench.computed == ["a"]
    bench.finish("a", 5)
    assert bench.answers == {name: [5] for name in "abcd"}
    statistics = bench.statistics
    assert statistics.cache_hit.count == statistics.success.count == 3
    assert statistics.queue.ns == (5 + 5 + 2) * MILLISECOND
    assert statistics.cache_hit.ns == 0  # nothing of it is what the cache took
    assert statistics.cache_miss.count == 1
    assert bench.inflight == 0


def test_those_that_wait_have_responses_of_their_own() -> None:
    bench = Bench()
    bench.send("a")
    bench.send("b")
    bench.finish("a", 5)
    assert bench.responses["a"].outputs["OUT"] is not bench.responses["b"].outputs["OUT"]
    assert bench.responses["b"].outputs["OUT"].shared


def test_if_it_fails_the_next_is_computed_in_its_place() -> None:
    bench = Bench()
    for name in "abcd":
        bench.send(name)
    bench.fail("a")
    assert bench.computed == ["a", "b"]
    assert bench.answers == {"a": InternalError}
    bench.fail("b")
    bench.finish("c", 7)
    assert bench.answers == {"a": InternalError, "b": InternalError, "c": [7], "d": [7]}
    assert bench.computed == ["a", "b", "c"]
    assert bench.inflight == 0


def test_errors_are_not_kept() -> None:
    bench = Bench()
    bench.send("a")
    bench.fail("a")
    bench.send("b")
    assert bench.computed == ["a", "b"]
    assert bench.statistics.cache_miss.count == 0


def test_if_it_is_cancelled_the_next_is_computed_in_its_place() -> None:
    bench = Bench()
    first = bench.send("a")
    bench.send("b")
    bench.send("c")
    first.cancel()
    assert bench.answers == {"a": CancelledError}
    assert list(bench.computing) == ["b"]
    bench.finish("b", 3)
    assert bench.answers == {"a": CancelledError, "b": [3], "c": [3]}


def test_one_that_waits_may_be_cancelled_and_the_others_go_on() -> None:
    bench = Bench()
    bench.send("a")
    second = bench.send("b")
    bench.send("c")
    second.cancel()
    second.cancel()
    assert bench.answers == {"b": CancelledError}
    assert bench.statistics.failures[FailureReason.CANCELED] == 1
    assert list(bench.computing) == ["a"]
    bench.finish("a", 3)
    assert bench.answers == {"b": CancelledError, "a": [3], "c": [3]}
    assert bench.inflight == 0


def test_the_response_to_one_may_cancel_another() -> None:
    bench = Bench()
    bench.send("a")
    bench.send("b")
    third = bench.send("c")
    bench.on_answer = lambda name: third.cancel() if name == "b" else None
    bench.finish("a", 3)
    assert bench.answers == {"a": [3], "b": [3], "c": CancelledError}
    assert bench.inflight == 0


def test_an_answer_may_lead_to_an_equal_request() -> None:
    bench = Bench()

    def again(name: str) -> None:
        if len(name) == 1:
            bench.send(name + "'")

    bench.on_answer = again
    bench.send("a")
    bench.send("b")
    bench.fail("a")  # its client tries again, and waits for the next
    assert bench.computed == ["a", "b"]
    bench.finish("b", 3)
    assert bench.answers["a'"] == bench.answers["b'"] == [3]
    assert bench.computed == ["a", "b"]
    assert bench.inflight == 0


def test_a_full_queue_refuses_all_that_wait_one_after_the_other() -> None:
    bench = Bench()
    bench.send("first")
    for number in range(3000):
        bench.send(str(number))
    bench.full = True
    bench.fail("first")
    assert set(bench.answers.values()) == {InternalError, UnavailableError}
    assert len(bench.answers) == 3001
    assert bench.inflight == 0
    bench.full = False
    bench.send("later")
    bench.finish("later", 1)
    assert bench.answers["later"] == [1]


def test_a_request_that_the_queue_refuses_is_refused() -> None:
    bench = Bench()
    bench.full = True
    bench.send("a")
    assert bench.answers == {"a": UnavailableError}
    assert bench.statistics.failures[FailureReason.REJECTED] == 1


def test_a_response_that_is_too_large_is_handed_on_and_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(size=900)
    with caplog.at_level(logging.ERROR, "halimede"):
        for first, second in (("a", "b"), ("c", "d")):
            bench.send(first)
            bench.send(second)
            bench.finish(first, *range(100))
            assert bench.answers[first] == bench.answers[second] == list(range(100))
    assert bench.computed == ["a", "c"]
    (record,) = caplog.records  # once for a version
    assert "into response cache: Requested byte_size:" in record.getMessage()
    assert "is greater than total cache size: 900" in record.getMessage()
    assert bench.responses["a"].outputs["OUT"].shared


def test_a_response_that_cannot_be_kept_is_the_clients_to_see(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.send("a")
    bench.send("b")
    odd = Tensor.from_array(BYTES, np.array([1.5], np.object_))
    bench.inflight -= 1
    bench.computing.pop("a").respond(InferResponse({"OUT": odd}), True)
    assert bench.responses["a"].outputs["OUT"] is odd
    assert "a response cannot be kept" in caplog.text
    bench.finish("b", 3)
    assert bench.answers["b"] == [3]


def test_the_cache_keeps_what_the_model_gave_whatever_the_client_does_with_it() -> None:
    bench = Bench()

    def overwrite(name: str) -> None:
        if name == "a":
            bench.responses["a"].outputs["OUT"].array[:] = 9

    bench.on_answer = overwrite
    bench.send("a")
    bench.finish("a", 5)
    bench.send("b")
    assert bench.answers["b"] == [5]


def test_a_version_that_is_gone_leaves_nothing_in_the_cache() -> None:
    bench = Bench()
    cache = bench.cache
    assert isinstance(cache, LocalCache)
    bench.send("a")
    bench.finish("a", 5)
    bench.send("b", 2)
    bench.send("c", 2)
    assert len(cache) == 1
    bench.version.close()
    assert len(cache) == cache.used == 0
    bench.finish("b", 6)
    assert bench.answers["c"] == [6]
    assert len(cache) == 0


def test_versions_do_not_see_the_entries_of_others() -> None:
    bench = Bench()
    bench.send("a")
    bench.finish("a", 5)
    bench.version = bench.open(bytes([1] * 32))
    bench.send("b")
    assert bench.computed == ["a", "b"]


# A cache that takes its time


def test_equal_requests_wait_for_one_look_up() -> None:
    cache = SlowCache()
    bench = Bench(cache)
    bench.send("a")
    assert bench.computed == []
    bench.send("b")
    assert len(cache.lookups) == 1
    cache.answer()
    assert bench.computed == ["a"]
    bench.finish("a", 5)
    assert bench.answers == {"a": [5], "b": [5]}
    bench.send("c")
    bench.send("d")
    cache.answer()
    assert bench.answers == {name: [5] for name in "abcd"}
    assert bench.computed == ["a"]
    assert bench.inflight == 0


def test_the_time_of_the_look_up_is_that_of_the_cache() -> None:
    cache = SlowCache()
    bench = Bench(cache)
    bench.send("a")
    bench.clock.stall(2 * MILLISECOND)
    cache.answer()
    bench.clock.stall(5 * MILLISECOND)
    bench.finish("a", 5)
    assert bench.statistics.cache_miss.ns == 2 * MILLISECOND
    bench.send("b")
    bench.clock.stall(3 * MILLISECOND)
    cache.answer()
    assert bench.statistics.cache_hit.ns == 3 * MILLISECOND
    assert bench.statistics.queue.ns == 0
    assert cache.counts.lookup_ns == 5 * MILLISECOND


def test_a_request_may_be_cancelled_while_it_is_looked_up() -> None:
    cache = SlowCache()
    bench = Bench(cache)
    first = bench.send("a")
    bench.send("b")
    first.cancel()
    assert bench.answers == {"a": CancelledError}
    cache.answer()
    assert bench.computed == ["b"]
    bench.finish("b", 5)
    assert bench.answers["b"] == [5]


def test_all_that_are_looked_up_may_be_cancelled() -> None:
    cache = SlowCache()
    bench = Bench(cache)
    bench.send("a").cancel()
    bench.send("b").cancel()
    cache.answer()
    assert bench.answers == {"a": CancelledError, "b": CancelledError}
    assert bench.computed == []
    bench.send("c")
    cache.answer()
    bench.finish("c", 1)
    assert bench.answers["c"] == [1]
    assert bench.inflight == 0


def test_one_that_comes_after_all_were_cancelled_uses_the_look_up_under_way() -> None:
    cache = SlowCache()
    bench = Bench(cache)
    bench.send("a").cancel()
    bench.send("b")
    cache.answer()
    assert bench.computed == ["b"]
