"""The rules and dashboards of `deploy/` are valid, and use only metrics that are there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from halimede.frontends import cache_metrics
from halimede.frontends.metrics import FAMILIES, GPUS
from halimede.hosting.pages import pages
from halimede.hosting.routing.table import RoutingTable
from scripts.dashboards import DASHBOARDS, DIRECTORY

RULES = yaml.safe_load(Path("deploy/prometheus/rules.yaml").read_text())
ADAPTER = yaml.safe_load(Path("deploy/prometheus/adapter.yaml").read_text())
PARTS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


def exported() -> set[str]:
    """Names of the samples of servers and hosts."""
    families = [*FAMILIES, *(each.family for each in GPUS), *cache_metrics.FAMILIES]
    names = {each.name + part for each in families for part in PARTS.get(each.type, ("",))}
    text: list[bytes] = []
    metering = cast("Any", SimpleNamespace(flush=lambda: None, samples={}))
    request = SimpleNamespace(respond=lambda status, body, headers: text.append(body))
    pages(RoutingTable(), metering)["/metrics"](cast("Any", request))
    for family in text_string_to_metric_families(text[0].decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        names |= {name + part for part in PARTS.get(family.type, ("",))}
    return names


def rules() -> Iterator[dict[str, Any]]:
    for group in RULES["groups"]:
        yield from group["rules"]


def expressions() -> Iterator[tuple[str, str]]:
    """Where an expression is, and the expression."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]
    for rule in ADAPTER["rules"]:
        yield "adapter.yaml", rule["seriesQuery"]


def metrics(expression: object) -> Iterator[str]:
    """Names of the metrics that a parsed expression reads."""
    if isinstance(expression, promql_parser.VectorSelector):
        assert expression.name is not None
        yield expression.name
    for part in ("expr", "lhs", "rhs", "vector_selector", "param"):
        inner = getattr(expression, part, None)
        if inner is not None and not isinstance(inner, str | float | int):
            yield from metrics(inner)
    for each in getattr(expression, "args", None) or ():
        yield from metrics(each)


@pytest.mark.parametrize(("place", "expression"), [pytest.param(*each, id=each[0]) for each in expressions()])
def test_expression_is_promql_and_reads_metrics_that_there_are(place: str, expression: str) -> None:
    known = exported() | {"up"} | {rule["record"] for rule in rules() if "record" in rule}
    used = set(metrics(promql_parser.parse(expression)))
    assert used
    assert used - known == set()


def test_names_of_metrics_that_are_not_there_are_noticed() -> None:
    parsed = promql_parser.parse("histogram_quantile(0.9, sum by (le) (rate(gone_bucket[5m]))) / (other - 1)")
    assert set(metrics(parsed)) == {"gone_bucket", "other"}
    assert "nv_inference_request_duration_histogram_us" not in exported()
    assert "halimede_host_model_latency_seconds_sum" in exported()


def test_alerts_say_how_bad_they_are_and_what_is_wrong() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 5
    for rule in alerts:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]


def test_page_lists_the_alerts() -> None:
    listed = re.findall(r"^\| `(Halimede\w+)` \|", Path("docs/deploy.md").read_text(), re.M)
    assert listed == [rule["alert"] for rule in rules() if "alert" in rule]


def test_autoscaler_asks_for_a_metric_that_the_adapter_offers() -> None:
    autoscaler = yaml.safe_load(Path("deploy/kubernetes/autoscaling.yaml").read_text())
    asked = [each["pods"]["metric"]["name"] for each in autoscaler["spec"]["metrics"]]
    assert asked == [rule["name"]["as"] for rule in ADAPTER["rules"]]


def test_scraped_jobs_are_those_of_the_rules() -> None:
    scrape = yaml.safe_load(Path("deploy/prometheus/scrape.yaml").read_text())
    [down] = [rule["expr"] for rule in rules() if rule.get("alert") == "HalimedeDown"]
    assert down == f'up{{job=~"{"|".join(job["job_name"] for job in scrape["scrape_configs"])}"}} == 0'
    assert [Path("deploy/prometheus", name).exists() for name in scrape["rule_files"]] == [True]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboard_is_fresh_and_its_panels_do_not_overlap(name: str) -> None:
    dashboard = json.loads((DIRECTORY / name).read_text())
    assert dashboard == DASHBOARDS[name]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
