"""Metrics of language models in a scrape."""

import re

from halimede.backends.text_counts import GAP_BOUNDS_S, TextCounts
from halimede.core.requests import InferRequest
from halimede.engine.text_statistics import TextStatistics
from halimede.frontends import text_metrics
from tests.frontends.test_metrics import DOCUMENT, FakeModel, scrape, text


def language_model() -> FakeModel:
    """A model that writes two texts, and has three requests that wait."""
    model = FakeModel("writer", inflight=5)
    model.statistics.texts = texts = TextStatistics()
    request = InferRequest("m", {}, lambda response, final: None, received_ns=0)
    gaps = [0] * (len(GAP_BOUNDS_S) + 1)
    gaps[GAP_BOUNDS_S.index(0.025)] = 6
    texts.add("writer_0", TextCounts([(request, 50_000_000)], 2, 0.125, 9, 7, gaps, 120_000_000))
    return model


def test_a_language_model_tells_of_its_texts() -> None:
    scraped = scrape(FakeModel(), language_model())
    labels = '{model="writer",version="1"}'
    assert scraped[f"halimede_prompt_tokens_total{labels}"] == 9
    assert scraped[f"halimede_generation_tokens_total{labels}"] == 7
    assert scraped[f"halimede_num_requests_running{labels}"] == 2
    assert scraped[f"halimede_num_requests_waiting{labels}"] == 3
    assert scraped[f"halimede_kv_cache_usage_perc{labels}"] == 0.125
    assert scraped[f"halimede_time_to_first_token_seconds_count{labels}"] == 1
    assert scraped[f"halimede_time_to_first_token_seconds_sum{labels}"] == 0.05
    assert scraped['halimede_time_to_first_token_seconds_bucket{model="writer",version="1",le="0.06"}'] == 1
    assert scraped['halimede_time_to_first_token_seconds_bucket{model="writer",version="1",le="0.04"}'] == 0
    assert scraped[f"halimede_time_per_output_token_seconds_sum{labels}"] == 0.12
    assert (
        scraped['halimede_time_per_output_token_seconds_bucket{model="writer",version="1",le="0.025"}'] == 6
    )
    assert not any('model="digits"' in name for name in scraped if "token" in name)


def test_without_a_language_model_there_are_none() -> None:
    assert not [family for family in text_metrics.FAMILIES if family.name in text(FakeModel())]


def test_all_families_are_declared_and_explained() -> None:
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text(language_model()), re.MULTILINE))
    document = DOCUMENT.read_text()
    for family in text_metrics.FAMILIES:
        assert types[family.name] == family.type
        assert re.search(rf"^\| `{family.name}` \| {family.type} \|", document, re.MULTILINE), family.name
