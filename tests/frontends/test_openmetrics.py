import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics import parser
from prometheus_client.samples import Sample

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.traces import SpanContext
from halimede.engine.calls.custom_metrics import CustomMetrics, HeldMetrics
from halimede.engine.histogram import Exemplar
from halimede.engine.summaries import LatencySummaries
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.metrics import FAMILIES, Metrics, MetricsSettings
from halimede.frontends.openmetrics import CONTENT_TYPE, is_wanted
from tests.frontends.test_metrics import ALL_FAMILIES, FakeModel, answered, fake_engine
from tests.support.waiting import wait_until_async

PARSE: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""What Prometheus sends."""

CONTEXT = SpanContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)


def scrape(
    *models: FakeModel, custom: CustomMetrics | None = None, settings: MetricsSettings = ALL_FAMILIES
) -> dict[str, list[Sample]]:
    """Samples by the name of their family; fails on what is no OpenMetrics."""
    text = Metrics(fake_engine(*models, custom=custom), settings).render_openmetrics().decode()
    return {family.name: family.samples for family in PARSE(text)}


def test_openmetrics_parser_reads_a_scrape() -> None:
    tagged = FakeModel(name="other", config=ModelConfig(metric_tags={"a b": 'x",le="1"}\\\n{},='}))
    tagged.statistics.summaries = LatencySummaries()
    families = scrape(answered(FakeModel()), tagged)
    assert set(families) == {family.name.removesuffix("_total") for family in FAMILIES}
    assert families["nv_inference_count"][1].labels["_a_b"] == 'x",le="1"}\\\n{},='


def test_samples_have_the_names_and_values_of_the_text_format() -> None:
    families = scrape(answered(FakeModel()))
    [success] = families["nv_inference_request_success"]
    assert (success.name, success.value) == ("nv_inference_request_success", 2)
    [loads] = families["halimede_model_loads"]
    assert (loads.name, loads.value) == ("halimede_model_loads_total", 7)
    buckets = [
        sample.labels["le"]
        for sample in families["nv_inference_request_duration_histogram_us"]
        if sample.name.endswith("_bucket")
    ]
    assert buckets[:2] == ["50.0", "100.0"]
    assert buckets[-4:] == ["1e+06", "2.5e+06", "1e+07", "+Inf"]


def test_traced_requests_are_exemplars_of_their_buckets() -> None:
    model = answered(FakeModel())
    model.statistics.request_us.keep(Exemplar(1500, CONTEXT, 1_700_000_000.25))
    model.statistics.request_us.keep(Exemplar(620_000_000, CONTEXT, 1_700_000_001.0))
    found = {
        sample.labels["le"]: sample.exemplar
        for sample in scrape(model)["nv_inference_request_duration_histogram_us"]
        if sample.exemplar is not None
    }
    assert set(found) == {"2500.0", "+Inf"}
    exemplar = found["2500.0"]
    assert exemplar.labels == {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"}
    assert exemplar.value == 1500
    assert exemplar.timestamp is not None
    assert float(exemplar.timestamp) == 1_700_000_000.25


def test_text_format_has_no_exemplars() -> None:
    model = answered(FakeModel())
    model.statistics.request_us.keep(Exemplar(1500, CONTEXT, 1_700_000_000.25))
    assert b"trace_id" not in Metrics(fake_engine(model), MetricsSettings()).render()


def test_metrics_of_models_are_openmetrics_too() -> None:
    custom = CustomMetrics()
    held = HeldMetrics(custom, "m_0_0", lambda: None)
    counter = held.new_series(held.new_family("requests_seen_total", 'those "seen"', "counter"), [], None)
    held.change(counter, "increment", 2)
    histogram = held.new_series(
        held.new_family("sizes", "x", "histogram"), [("a", "b")], [0.5, 1.0, 2e6, 1e17]
    )
    held.change(histogram, "observe", 0.7)
    families = scrape(custom=custom)
    assert [(each.name, each.value) for each in families["requests_seen"]] == [("requests_seen_total", 2)]
    bounds = [each.labels["le"] for each in families["sizes"] if each.name == "sizes_bucket"]
    assert bounds == ["0.5", "1.0", "2e+06", "1e+17", "+Inf"]


@given(st.text(), st.lists(st.floats(min_value=0, exclude_min=True, allow_infinity=False), max_size=3))
def test_any_description_label_and_bounds_of_a_model_can_be_scraped(text: str, bounds: list[float]) -> None:
    custom = CustomMetrics()
    held = HeldMetrics(custom, "m_0_0", lambda: None)
    family = held.new_family("sizes", text, "histogram")
    held.new_series(family, [("a", text)], sorted(set(bounds)))
    found = scrape(custom=custom)["sizes"]
    assert {sample.labels["a"] for sample in found} == {text}


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("text/plain, Application/OpenMetrics-Text ; version=1.0.0", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;version=1.0.0;q=0.000, */*", False),
        ("application/openmetrics-textual", False),
        ("text/plain;version=0.0.4", False),
        ("*/*", False),
        ("", False),
        (",;,", False),
    ],
)
def test_openmetrics_is_for_those_who_ask_for_it(accept: str, wanted: bool) -> None:
    assert is_wanted(accept) is wanted


@pytest.mark.parametrize(
    ("accept", "content_type", "is_last"),
    [
        (PROMETHEUS, CONTENT_TYPE, lambda body: body.endswith(b"\n# EOF\n")),
        ("text/plain", "text/plain; charset=utf-8", lambda body: b"# EOF" not in body),
    ],
)
def test_port_of_metrics_answers_in_the_format_that_is_asked_for(
    accept: str, content_type: str, is_last: Callable[[bytes], bool]
) -> None:
    responses: list[tuple[int, bytes, str]] = []

    def respond(code: int, parts: tuple[bytes, ...] = (), content_type: str = "") -> None:
        responses.append((code, b"".join(parts), content_type))

    request = SimpleNamespace(
        method="GET", path="/metrics", headers={"accept": accept}, closed=False, respond=respond
    )

    async def ask() -> None:
        Metrics(fake_engine(), MetricsSettings()).answer(cast("Exchange", request))
        await wait_until_async(lambda: bool(responses), "the answer")

    asyncio.run(ask())
    [(code, body, media_type)] = responses
    assert (code, media_type) == (200, content_type)
    assert is_last(body)
