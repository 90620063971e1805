import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from halimede.backends.batch import Closing
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.config.token_batching import TokenBatching
from halimede.core import tasks
from halimede.core.clock import VirtualClock
from halimede.core.datatypes import FP32
from halimede.core.errors import AlreadyExistsError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.cache.entries import Entry
from halimede.engine.cache.local import LocalCache
from halimede.engine.cache.store import Cache
from halimede.engine.calls.custom_metrics import CustomMetrics, HeldMetrics
from halimede.engine.engine import Engine
from halimede.engine.memory.ledger import Holding, Ledger
from halimede.engine.served_model import InstanceActivity
from halimede.engine.statistics import FailureReason, ModelStatistics
from halimede.engine.summaries import LatencySummaries
from halimede.frontends import cache_metrics, metrics
from halimede.frontends.family import Family
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.metrics import FAMILIES, Metrics, MetricsSettings
from tests.support.batches import ran
from tests.support.waiting import wait_until_async

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "metrics.md"

SAMPLE = re.compile(r'^(\w+)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$')


@dataclass
class FakeModel:
    """What the metrics read of a model."""

    name: str = "digits"
    version: int = 1
    pending: int = 0
    inflight: int = 0
    config: ModelConfig = field(default_factory=ModelConfig)
    statistics: ModelStatistics = field(default_factory=ModelStatistics)
    signature: Signature = field(default_factory=lambda: Signature(8, {}, {}, decoupled=False))
    identifier: str = ""
    slow: int = 0

    def __post_init__(self) -> None:
        self.identifier = self.identifier or self.name

    def activity(self) -> list[InstanceActivity]:
        return [InstanceActivity("i", "cpu", "thread", "running", slow_s=31.5)] * self.slow + [
            InstanceActivity("j", "cpu", "thread", "idle")
        ]


ALL_FAMILIES = MetricsSettings(histogram_latencies=True, summary_quantiles=(0.5,))


def fake_engine(
    *models: FakeModel,
    custom: CustomMetrics | None = None,
    ledger: Ledger | None = None,
    cache: Cache | None = None,
) -> Engine:
    """What the metrics need of an engine."""
    memory = SimpleNamespace(ledger=ledger or Ledger(), loads=7, evictions=2)
    busy_wait = SimpleNamespace(server_ns=500_000_000, workers_ns=1_250_000_000)
    fakes = SimpleNamespace(
        lifecycle=SimpleNamespace(
            loaded_models=lambda: list(models), memory=memory, cache=cache, busy_wait=busy_wait
        ),
        clock=VirtualClock(),
        custom_metrics=custom or CustomMetrics(),
        tracing=SimpleNamespace(dropped=3),
        inflight=None,
    )
    return cast("Engine", fakes)


def scrape(*models: FakeModel, settings: MetricsSettings | None = None) -> dict[str, float]:
    """Every sample of a scrape, by its name and labels."""
    return dict(samples(text(*models, settings=settings)))


def text(*models: FakeModel, settings: MetricsSettings | None = None) -> str:
    return Metrics(fake_engine(*models), settings or MetricsSettings()).render().decode()


def samples(scraped: str) -> list[tuple[str, float]]:
    """The samples; fails on a line that is none and no comment, and on one without its family."""
    found: list[tuple[str, float]] = []
    typed: dict[str, str] = {}
    for line in scraped.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed
            typed[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match is not None, line
            name, labels, value = match.groups()
            family = re.sub("_(bucket|sum|count)$", "", name) if name not in typed else name
            assert family in typed, line
            found.append((f"{name}{{{labels}}}" if labels else name, float(value)))
    assert len(found) == len(dict(found)), "a sample appears twice"
    return found


def answered(model: FakeModel) -> FakeModel:
    """The model after a batch of two requests with three rows, one failure and one refusal."""
    counts = model.statistics
    counts.count_execution(ran(3, 10_000, 70_000, 20_000, requests=2))
    request = InferRequest("m", {}, lambda _response, _final: None)
    counts.count_streamed(request, 1_500_000, 200_000, 1_000_000)
    counts.count_streamed(request, 620_000_000, 400_000, 120_000_000)
    counts.count_failure(request, 1_000, FailureReason.BACKEND)
    counts.count_failure(request, 1_000, FailureReason.REJECTED)
    counts.load_ns = 1_250_000_000
    return model


def test_a_new_model_has_all_its_series_at_zero() -> None:
    scraped = scrape(FakeModel())
    labels = '{model="digits",version="1"}'
    for name in ("request_success", "count", "exec_count", "pending_request_count", "queue_duration_us"):
        assert scraped[f"nv_inference_{name}{labels}"] == 0
    for reason in FailureReason:
        assert (
            scraped[f'nv_inference_request_failure{{model="digits",reason="{reason.value}",version="1"}}']
            == 0
        )


def test_instances_whose_executions_take_too_long_are_counted() -> None:
    values = scrape(FakeModel(slow=2), FakeModel("other"))
    assert values['halimede_slow_executions{model="digits",version="1"}'] == 2
    assert values['halimede_slow_executions{model="other",version="1"}'] == 0


def test_work_that_has_failed_in_the_background_is_counted() -> None:
    async def fail() -> None:
        raise ValueError

    async def run() -> None:
        await asyncio.wait([tasks.start("counting sheep", fail())])

    before = scrape()["halimede_failed_tasks_total"]
    asyncio.run(run())
    assert scrape()["halimede_failed_tasks_total"] == before + 1
    assert tasks.FAILURES.latest[0].what == "counting sheep"


def test_tokens_and_padding_are_counted_where_batches_are_closed_by_tokens() -> None:
    tokens = TokenBatching(100, 1.0, "IN", padded=True, fill={"IN": 0})
    model = FakeModel(signature=Signature(8, {}, {}, decoupled=False, tokens=tokens))
    batch = ran(3, 10_000, 70_000, 20_000, requests=2)
    batch.closing, batch.tokens, batch.padding = Closing.MAX_TOKENS, 90, 6
    model.statistics.count_execution(batch)
    scraped = scrape(model, FakeModel("other"))
    found = {name: value for name, value in scraped.items() if "batch_tokens" in name}
    assert found == {
        'halimede_batch_tokens_total{kind="text",model="digits",version="1"}': 90,
        'halimede_batch_tokens_total{kind="padding",model="digits",version="1"}': 6,
    }


def test_counters_follow_the_statistics() -> None:
    scraped = scrape(answered(FakeModel(pending=4)))

    def value(name: str) -> float:
        return scraped[f'{name}{{model="digits",version="1"}}']

    assert value("nv_inference_request_success") == 2
    assert value("nv_inference_count") == 3
    assert value("nv_inference_exec_count") == 1
    assert value("nv_inference_request_duration_us") == 621_500
    assert value("nv_inference_queue_duration_us") == 600
    assert value("nv_inference_compute_input_duration_us") == 20
    assert value("nv_inference_compute_infer_duration_us") == 140
    assert value("nv_inference_compute_output_duration_us") == 40
    assert value("nv_inference_pending_request_count") == 4
    assert value("nv_model_load_duration_secs") == 1.25
    assert scraped['nv_inference_request_failure{model="digits",reason="BACKEND",version="1"}'] == 1
    assert scraped['nv_inference_request_failure{model="digits",reason="REJECTED",version="1"}'] == 1
    assert scraped['nv_inference_request_failure{model="digits",reason="OTHER",version="1"}'] == 0


def test_histograms_cumulate_their_buckets() -> None:
    scraped = scrape(answered(FakeModel()))

    def bucket(name: str, bound: str) -> float:
        return scraped[f'{name}_bucket{{model="digits",version="1",le="{bound}"}}']

    name = "nv_inference_request_duration_histogram_us"
    assert [bucket(name, bound) for bound in ("1000", "2500", "500000", "1000000", "+Inf")] == [0, 1, 1, 2, 2]
    assert scraped[f'{name}_count{{model="digits",version="1"}}'] == 2
    assert scraped[f'{name}_sum{{model="digits",version="1"}}'] == 621_500
    assert bucket("nv_inference_queue_duration_histogram_us", "250") == 1
    assert bucket("nv_inference_compute_duration_histogram_us", "100") == 2
    assert bucket("nv_inference_batch_size_histogram", "2") == 0
    assert bucket("nv_inference_batch_size_histogram", "4") == 1


def test_without_counters_of_durations_all_else_is_as_with_them() -> None:
    model = answered(FakeModel())
    without = scrape(model, settings=MetricsSettings(counter_latencies=False))
    assert without['nv_inference_request_success{model="digits",version="1"}'] > 0
    durations = r"nv_inference_(request|queue|compute_input|compute_infer|compute_output)_duration_us\{"
    expected = {name: value for name, value in scrape(model).items() if not re.match(durations, name)}
    assert without.keys() == expected.keys()
    # what is measured of the machine and the process may change between two scrapes
    assert not {name for name in expected if "model=" in name and without[name] != expected[name]}


def test_first_responses_are_told_on_request() -> None:
    name = 'nv_inference_first_response_histogram_ms_bucket{model="digits",version="1",le="100"}'
    assert name not in scrape(answered(FakeModel()))
    scraped = scrape(answered(FakeModel()), settings=ALL_FAMILIES)
    assert scraped[name] == 1
    assert scraped[name.replace('"100"', '"500"')] == 2


def test_the_namespace_is_a_label() -> None:
    scraped = scrape(FakeModel(identifier="/models::digits"))
    assert scraped['nv_inference_count{model="digits",namespace="/models",version="1"}'] == 0


def test_tags_are_labels() -> None:
    config = ModelConfig(metric_tags={"team": "vision", "a-b.c": 'say "hi"\\\n'})
    scraped = scrape(FakeModel(config=config))
    labels = r'{_a_b_c="say \"hi\"\\\n",_team="vision",model="digits",version="1"}'
    assert scraped[f"nv_inference_count{labels}"] == 0


def test_each_version_has_its_series_under_one_heading() -> None:
    scraped = scrape(FakeModel(version=1), FakeModel(version=2), FakeModel(name="simple"))
    assert {name for name in scraped if name.startswith("nv_inference_count{")} == {
        'nv_inference_count{model="digits",version="1"}',
        'nv_inference_count{model="digits",version="2"}',
        'nv_inference_count{model="simple",version="1"}',
    }


def test_a_server_without_models_scrapes_too() -> None:
    assert scrape()["nv_pinned_memory_pool_total_bytes"] == 268_435_456


def test_the_machine_is_told_of_unless_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "memory_bytes", lambda: (2048, 1024))
    scraped = scrape()
    assert scraped["nv_cpu_memory_total_bytes"] == 2048
    assert scraped["nv_cpu_memory_used_bytes"] == 1024
    assert 0 <= scraped["nv_cpu_utilization"] <= 1
    assert not any(name.startswith("nv_cpu") for name in scrape(settings=MetricsSettings(cpu=False)))


def test_all_families_are_declared_and_explained() -> None:
    scraped = text(FakeModel(), settings=ALL_FAMILIES)
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", scraped, re.MULTILINE))
    assert types == {family.name: family.type for family in FAMILIES}
    document = DOCUMENT.read_text()
    for family in FAMILIES:
        assert re.search(rf"^\| `{family.name}` \| {family.type} \|", document, re.MULTILINE), family.name


def cached_model(name: str) -> FakeModel:
    """A model that enables the response cache, after a miss and two hits."""
    model = FakeModel(name)
    model.config.response_cache.enable = True
    model.statistics.summaries = LatencySummaries()
    request = InferRequest(name, {}, lambda response, final: None, received_ns=1_000)
    model.statistics.count_miss(70_000)
    for _ in range(2):
        model.statistics.count_hit(request, 4_000, 9_000)
    return model


def with_cache(
    cache: Cache | None, *models: FakeModel, settings: MetricsSettings = ALL_FAMILIES
) -> tuple[str, dict[str, float]]:
    scraped = Metrics(fake_engine(*models, cache=cache), settings).render().decode()
    return scraped, dict(samples(scraped))


def full_cache() -> LocalCache:
    cache = LocalCache(2000, VirtualClock())
    cache.counts.hits, cache.counts.misses, cache.counts.evictions = 5, 2, 1
    cache.counts.lookup_ns, cache.counts.insertion_ns = 30_000, 40_000
    entry = Entry.of(InferResponse({"OUT": Tensor(FP32, (25,), bytes(100))}), set(), 1 << 30)
    cache.insert(b"key", entry)
    return cache


def test_the_response_cache_tells_what_it_did_for_which_model() -> None:
    cache = full_cache()
    _, scraped = with_cache(cache, cached_model("a"), FakeModel("plain"))
    labels = '{model="a",version="1"}'
    assert {
        name: value for name, value in scraped.items() if "_per_model" in name and "summary" not in name
    } == {
        f"nv_cache_num_hits_per_model{labels}": 2,
        f"nv_cache_num_misses_per_model{labels}": 1,
        f"nv_cache_hit_duration_per_model{labels}": 8,
        f"nv_cache_miss_duration_per_model{labels}": 70,
    }
    assert {name: value for name, value in scraped.items() if re.fullmatch("nv_cache_[a-z_]+", name)} == {
        "nv_cache_util": cache.used / 2000,
        "nv_cache_num_entries": 1,
        "nv_cache_num_evictions": 1,
        "nv_cache_num_lookups": 7,
        "nv_cache_num_hits": 5,
        "nv_cache_num_misses": 2,
        "nv_cache_lookup_duration": 30,
        "nv_cache_insertion_duration": 40,
    }
    assert scraped[f"nv_cache_hit_summary_per_model_count{labels}"] == 2
    assert scraped[f"nv_cache_miss_summary_per_model_sum{labels}"] == 70
    assert scraped[f"nv_inference_request_summary_us_count{labels}"] == 2
    assert scraped[f"nv_inference_request_success{labels}"] == 2


def test_without_counters_of_durations_the_response_cache_has_counts() -> None:
    settings = MetricsSettings(counter_latencies=False)
    scraped, values = with_cache(full_cache(), cached_model("a"), settings=settings)
    assert values['nv_cache_num_hits_per_model{model="a",version="1"}'] == 2
    assert "duration_per_model" not in scraped
    assert values["nv_cache_num_hits"] == 5
    assert "summary" not in scraped


def test_without_a_response_cache_nothing_is_told_of_it() -> None:
    scraped, _ = with_cache(None, cached_model("a"))
    assert "nv_cache" not in scraped


def test_families_of_the_response_cache_are_declared_and_explained() -> None:
    scraped, _ = with_cache(full_cache(), cached_model("a"))
    types = dict(re.findall(r"^# TYPE (nv_cache\w+) (\w+)$", scraped, re.MULTILINE))
    assert types == {family.name: family.type for family in cache_metrics.FAMILIES}
    document = DOCUMENT.read_text()
    for family in cache_metrics.FAMILIES:
        assert re.search(rf"^\| `{family.name}` \| {family.type} \|", document, re.MULTILINE), family.name


@pytest.mark.parametrize(
    ("method", "path", "status", "filled", "media_type"),
    [
        ("GET", "/metrics", 200, True, "text/plain; charset=utf-8"),
        ("GET", "/metrics/", 200, True, "text/plain; charset=utf-8"),
        ("GET", "/", 200, False, "text/plain; charset=utf-8"),
        ("GET", "/v2/health/live", 200, False, "text/plain; charset=utf-8"),
        ("POST", "/metrics", 405, True, "application/json"),
        ("HEAD", "/other", 405, True, "application/json"),
    ],
)
def test_the_port_answers_as_tritonservers_does(
    method: str, path: str, status: int, filled: bool, media_type: str
) -> None:
    engine = fake_engine()
    responses: list[tuple[int, bytes, str]] = []

    def respond(code: int, parts: tuple[bytes, ...] = (), content_type: str = "") -> None:
        responses.append((code, b"".join(parts), content_type))

    async def ask() -> None:
        request = SimpleNamespace(method=method, path=path, headers={}, closed=False, respond=respond)
        Metrics(engine, MetricsSettings()).answer(cast("Exchange", request))
        await wait_until_async(lambda: bool(responses), "the answer")

    asyncio.run(ask())
    [(code, body, content_type)] = responses
    assert (code, bool(body), content_type) == (status, filled, media_type)


def test_a_prometheus_parser_reads_a_scrape() -> None:
    tagged = FakeModel(name="other", config=ModelConfig(metric_tags={"a b": 'x"\\\n{},='}))
    scraped = text(answered(FakeModel()), tagged, settings=ALL_FAMILIES)
    families = {family.name: family for family in text_string_to_metric_families(scraped)}
    assert set(families) == {family.name.removesuffix("_total") for family in FAMILIES}
    assert families["nv_inference_count"].samples[0].value == 3
    assert families["nv_inference_count"].samples[1].labels["_a_b"] == 'x"\\\n{},='


def test_summaries_tell_count_sum_and_quantiles_of_the_models_that_have_them() -> None:
    model = FakeModel()
    model.statistics.summaries = LatencySummaries()
    settings = MetricsSettings(summary_quantiles=(0.25, 0.999))
    assert 'nv_inference_queue_summary_us{model="digits",version="1",quantile="0.25"} Nan\n' in text(
        model, settings=settings
    )
    scraped = scrape(answered(model), FakeModel(name="other"), settings=settings)
    for name in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        family = f"nv_inference_{name}_summary_us"
        total = scraped[f'{family}_sum{{model="digits",version="1"}}']
        count = scraped[f'{family}_count{{model="digits",version="1"}}']
        assert count == scraped['nv_inference_request_success{model="digits",version="1"}']
        low, high = (scraped[f'{family}{{model="digits",version="1",quantile="{q}"}}'] for q in (0.25, 0.999))
        assert low <= high <= total * 1.01 + 1
        assert total == scraped[f'nv_inference_{name}_duration_us{{model="digits",version="1"}}']
    assert not any("summary" in name and "other" in name for name in scraped)
    assert not any("summary" in name for name in scrape(model))


def test_metrics_of_models_follow_those_of_the_server() -> None:
    custom = CustomMetrics()
    metrics = Metrics(fake_engine(custom=custom), MetricsSettings())
    held = HeldMetrics(custom, "m_0", lambda: None)
    series = held.new_series(held.new_family("tokens_total", "Tokens", "counter"), [("user", "a")], None)
    held.change(series, "increment", 12)
    scraped = metrics.render().decode()
    assert scraped.endswith(
        '# HELP tokens_total Tokens\n# TYPE tokens_total counter\ntokens_total{user="a"} 12\n'
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_model_cannot_take_the_name_of_a_metric_of_the_server(family: Family) -> None:
    custom = CustomMetrics()
    Metrics(fake_engine(custom=custom), MetricsSettings())
    with pytest.raises(AlreadyExistsError, match=f"'{family.name}' is that of a metric of the server"):
        custom.family(family.name, "mine", "counter")


def test_memory_of_models_is_told_by_version_and_with_the_budget() -> None:
    ledger = Ledger()
    for name, version, size in (("a", 1, 100), ("a", 2, 30), ('b"', 1, 5), ("a", 2, 20)):
        ledger.add(Holding(name, version, size))
    scraped = dict(samples(Metrics(fake_engine(ledger=ledger), MetricsSettings()).render().decode()))
    assert {key: value for key, value in scraped.items() if key.startswith("halimede_model_")} == {
        'halimede_model_memory_bytes{model="a",version="1"}': 100,
        'halimede_model_memory_bytes{model="a",version="2"}': 50,
        'halimede_model_memory_bytes{model="b\\"",version="1"}': 5,
        "halimede_model_loads_total": 7,
        "halimede_model_evictions_total": 2,
    }
    ledger.budget = 1000
    scraped = dict(samples(Metrics(fake_engine(ledger=ledger), MetricsSettings()).render().decode()))
    assert scraped["halimede_model_memory_budget_bytes"] == 1000


def test_time_spent_on_watching_for_messages_is_told_by_side() -> None:
    scraped = scrape()
    assert scraped['halimede_busy_wait_seconds_total{side="server"}'] == 0.5
    assert scraped['halimede_busy_wait_seconds_total{side="workers"}'] == 1.25
