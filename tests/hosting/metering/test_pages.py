"""The host's own pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from halimede.core import tasks
from halimede.hosting.metering.variant import METRICS
from halimede.hosting.pages import _COUNTERS, _SUMMARIES
from halimede.hosting.routing.agreement import Agreement
from halimede.hosting.routing.counts import InvocationCounts
from tests.frontends.http.serving import Client, get
from tests.hosting.metering.serving import NOON, Metered, Residency, instance, metered

Samples = dict[tuple[str, ...], float]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Metered]:
    with metered(tmp_path) as running:
        yield running


def scrape(host: Metered) -> dict[str, Samples]:
    """Sample's name → values of labels → value."""
    with Client(host.port) as client:
        answer = client.ask(get("/metrics"), "GET")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, Samples] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        assert family.documentation
        assert family.type in ("counter", "gauge", "summary")
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_it_is_there(host: Metered) -> None:
    with Client(host.port) as client:
        assert client.ask(get("/ping"), "GET").status == 200


def test_without_endpoints_there_are_only_names(host: Metered) -> None:
    assert scrape(host) == {"halimede_host_failed_tasks_total": {(): tasks.FAILURES.count}}


def test_all_that_is_counted_is_shown() -> None:
    assert sorted(metric for _, metric, _ in (*_COUNTERS, *_SUMMARIES)) == sorted(METRICS)


def test_what_was_counted_up_to_now(host: Metered, tmp_path: Path) -> None:
    meter = host.publish("e", "v", Residency({"i-1": 3}))

    def count() -> None:
        for status in (200, 424, 503):
            meter.sent(2)
            meter.ended(status, 2_000_000_000, 500_000_000, model_error=status == 424)
        meter.placed(1_000_000_000, cache_hit=False)
        meter.placed(0, cache_hit=True)
        meter.loaded(3_000_000_000)
        meter.captured(3)
        meter.capture_too_large()
        meter.capture_dropped(2)
        meter.add(InvocationCounts(capture_uploaded=3, capture_upload_failures=1))

    host.count(count)
    host.instances.append(instance("i-1", 0, tmp_path))
    host.tick(NOON + 60)
    host.tick(NOON + 120)
    found = scrape(host)
    of = ("000000000000", "eu-west-1", "e", "v")
    assert {name: samples[of] for name, samples in found.items() if of in samples} == {
        "halimede_host_invocations_total": 3,
        "halimede_host_invocations_per_instance_total": 1.5,
        "halimede_host_invocation_4xx_errors_total": 1,
        "halimede_host_invocation_5xx_errors_total": 1,
        "halimede_host_invocation_model_errors_total": 1,
        "halimede_host_model_cache_hits_total": 1,
        "halimede_host_data_capture_records_total": 3,
        "halimede_host_data_capture_records_uploaded_total": 3,
        "halimede_host_data_capture_records_too_large_total": 1,
        "halimede_host_data_capture_records_dropped_total": 2,
        "halimede_host_data_capture_upload_failures_total": 1,
        "halimede_host_model_cache_lookups_total": 2,
        "halimede_host_model_latency_seconds_sum": 6,
        "halimede_host_model_latency_seconds_count": 3,
        "halimede_host_overhead_latency_seconds_sum": 1.5,
        "halimede_host_overhead_latency_seconds_count": 3,
        "halimede_host_model_loading_wait_seconds_sum": 1,
        "halimede_host_model_loading_wait_seconds_count": 1,
        "halimede_host_model_downloading_seconds_sum": 0,
        "halimede_host_model_downloading_seconds_count": 0,
        "halimede_host_model_loading_seconds_sum": 3,
        "halimede_host_model_loading_seconds_count": 1,
        "halimede_host_model_unloading_seconds_sum": 0,
        "halimede_host_model_unloading_seconds_count": 0,
        "halimede_host_instances": 2,
        "halimede_host_requests_in_flight": 2,
    }
    assert found["halimede_host_loaded_models"] == {(*of, "i-1"): 3}
    for kind in ("cpu", "memory", "disk"):
        assert (*of, "i-1") in found[f"halimede_host_instance_{kind}_utilization_percent"]
    assert "halimede_host_instance_gpu_utilization_percent" not in found
    host.count(lambda: meter.sent(1))
    assert scrape(host)["halimede_host_invocations_total"][of] == 4


def test_copies_for_a_shadow_variant(host: Metered) -> None:
    host.publish("e", "v")
    assert not [name for name in scrape(host) if "shadow" in name]
    meter = host.publish("e", "w", shadow_of="v")

    def count() -> None:
        shadow = meter.shadow
        shadow.lost, shadow.skipped, shadow.statuses, shadow.same_status = 5, 1, 4, 3
        shadow.primary_ns.append(2_000_000_000)
        shadow.whole = Agreement(3, 2, [1.0, 1.0, 0.5], [0.0, 0.0, 4.0], [0.0, 0.0, 2.0])

    host.count(count)
    found = scrape(host)
    of = ("000000000000", "eu-west-1", "e", "w")
    assert {name: samples for name, samples in found.items() if "shadow" in name} == {
        "halimede_host_shadow_copies_lost_total": {of: 5},
        "halimede_host_shadow_copies_not_compared_total": {of: 1},
        "halimede_host_shadow_status_agreements_total": {of: 3},
        "halimede_host_shadow_agreements_total": {of: 2},
        "halimede_host_shadow_equal_elements_total": {of: 2.5},
        "halimede_host_shadow_comparisons_total": {of: 3},
        "halimede_host_shadowed_model_latency_seconds_sum": {of: 2},
        "halimede_host_shadowed_model_latency_seconds_count": {of: 1},
    }
    assert found["halimede_host_instances"][of] == 2


def test_labels_may_be_anything(host: Metered) -> None:
    name = 'a"b\\c\nd} 1'
    host.publish(name, "v")
    assert scrape(host)["halimede_host_instances"] == {("000000000000", "eu-west-1", name, "v"): 2}
    with Client(host.port) as client:
        text = client.ask(get("/metrics"), "GET").body.decode()
    assert 'endpoint="a\\"b\\\\c\\nd} 1"' in text
