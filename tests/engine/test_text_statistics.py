"""What is counted of texts: reports of several instances."""

import pytest

from halimede.backends.text_counts import GAP_BOUNDS_S, TextCounts
from halimede.core.requests import InferRequest
from halimede.engine.text_statistics import TextStatistics

NO_GAPS = [0] * (len(GAP_BOUNDS_S) + 1)


def report(running: int, usage: float | None = None, tokens: int = 0) -> TextCounts:
    return TextCounts([], running, usage, 2 * tokens, tokens, NO_GAPS, 0)


def test_instances_add_up_and_the_fullest_cache_counts() -> None:
    texts = TextStatistics()
    assert (texts.running, texts.cache_usage) == (0, None)
    texts.add("m_0", report(3, 0.25, tokens=5))
    texts.add("m_1", report(2, 0.75, tokens=1))
    texts.add("m_0", report(1, 0.5, tokens=1))
    assert (texts.running, texts.cache_usage) == (3, 0.75)
    assert (texts.tokens, texts.prompt_tokens) == (7, 14)


def test_what_an_instance_has_written_stays_when_its_process_ends() -> None:
    texts = TextStatistics()
    texts.add("m_0", report(3, 0.25, tokens=5))
    texts.forget("m_0")
    assert (texts.running, texts.cache_usage, texts.tokens) == (0, None, 5)
    texts.forget("m_1")


def test_times_are_in_seconds_and_those_to_first_tokens_begin_with_the_receipt() -> None:
    texts = TextStatistics()
    request = InferRequest("m", {}, lambda response, final: None, received_ns=1_000_000_000)
    gaps = [1, 2, *NO_GAPS[2:]]
    texts.add("m_0", TextCounts([(request, 1_030_000_000)], 1, None, 1, 4, gaps, 5_000_000))
    assert texts.first_token_s.total == pytest.approx(0.03)
    assert texts.first_token_s.counts[texts.first_token_s.bounds.index(0.04)] == 1
    assert texts.gap_s.counts == gaps
    assert texts.gap_s.total == pytest.approx(0.005)
