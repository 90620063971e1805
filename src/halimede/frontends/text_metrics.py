"""Metrics of language models; there are none without one. Named as vLLM names its own, with `halimede_` for `vllm:`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from halimede.engine.histogram import Histogram
from halimede.engine.served_model import ServedModel
from halimede.engine.text_statistics import TextStatistics
from halimede.frontends.family import Family

Labelled = tuple[ServedModel, str]
Sample = tuple[str, int | float]


@dataclass(frozen=True, slots=True)
class TextHistogram:
    """A histogram of a language model."""

    family: Family
    value: Callable[[TextStatistics], Histogram]


PROMPT_TOKENS = Family("halimede_prompt_tokens_total", "counter", "Tokens of prompts that were read")
TOKENS = Family("halimede_generation_tokens_total", "counter", "Tokens that were written")
RUNNING = Family("halimede_num_requests_running", "gauge", "Texts that are being written")
WAITING = Family("halimede_num_requests_waiting", "gauge", "Requests for texts that are not begun yet")
CACHE_USAGE = Family(
    "halimede_kv_cache_usage_perc", "gauge", "Share of the cache for keys and values in use, 0 to 1"
)
HISTOGRAMS = (
    TextHistogram(
        Family(
            "halimede_time_to_first_token_seconds",
            "histogram",
            "Time from receipt of a request to the first token of its text, in seconds",
        ),
        lambda texts: texts.first_token_s,
    ),
    TextHistogram(
        Family(
            "halimede_time_per_output_token_seconds",
            "histogram",
            "Time between the tokens of a text, in seconds",
        ),
        lambda texts: texts.gap_s,
    ),
)
FAMILIES = (
    PROMPT_TOKENS,
    TOKENS,
    RUNNING,
    WAITING,
    CACHE_USAGE,
    *(each.family for each in HISTOGRAMS),
)


def samples(models: Sequence[Labelled]) -> Iterator[tuple[Family, list[Sample]]]:
    """Counters and gauges of the models that are language models; nothing if there are none of these."""
    writing = [
        (model, text, texts) for model, text in models if (texts := model.statistics.texts) is not None
    ]
    if not writing:
        return
    yield PROMPT_TOKENS, [(text, texts.prompt_tokens) for _, text, texts in writing]
    yield TOKENS, [(text, texts.tokens) for _, text, texts in writing]
    yield RUNNING, [(text, texts.running) for _, text, texts in writing]
    waiting: list[Sample] = [(text, max(0, model.inflight - texts.running)) for model, text, texts in writing]
    yield WAITING, waiting
    usages = [(text, texts.cache_usage) for _, text, texts in writing]
    yield CACHE_USAGE, [(text, usage) for text, usage in usages if usage is not None]


def histograms(models: Sequence[Labelled]) -> Iterator[tuple[Family, list[tuple[str, Histogram]]]]:
    """Histograms of the models that are language models; nothing if there are none of these."""
    writing = [(text, model.statistics.texts) for model, text in models if model.statistics.texts is not None]
    for each in HISTOGRAMS if writing else ():
        yield each.family, [(text, each.value(texts)) for text, texts in writing]
