"""GetMetricData with expressions, asked by boto3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.hosting.metering.serving import HOUR, NOON, metered, moment


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    with metered(tmp_path) as host:
        cloudwatch = host.client("cloudwatch")
        for minute, (requests, errors) in enumerate([(10, 1), (20, None), (40, 4)]):
            when = moment(NOON - 600 + 60 * minute)
            for name, value in (("Requests", requests), ("Errors", errors)):
                if value is not None:
                    datum = {"MetricName": name, "Value": value, "Timestamp": when}
                    cloudwatch.put_metric_data(Namespace="shop", MetricData=[datum])
        yield cloudwatch


def metric(id_: str, name: str, **further: Any) -> dict[str, Any]:
    stat = {"Metric": {"Namespace": "shop", "MetricName": name}, "Period": 60, "Stat": "Sum"}
    return {"Id": id_, "MetricStat": stat, **further}


def ask(client: Any, *queries: dict[str, Any], **further: Any) -> Any:
    return client.get_metric_data(
        MetricDataQueries=list(queries),
        ScanBy="TimestampAscending",
        StartTime=moment(NOON - 600),
        EndTime=moment(NOON - 600 + 180),
        **further,
    )


def test_share_of_errors(client: Any) -> None:
    answer = ask(
        client,
        metric("requests", "Requests", ReturnData=False),
        metric("errors", "Errors", ReturnData=False),
        {"Id": "share", "Expression": "FILL(errors, 0) / requests * 100", "Label": "Errors in per cent"},
        {"Id": "e2", "Expression": "RATE(requests)"},
    )
    share, rate = answer["MetricDataResults"]
    assert share == {
        "Id": "share",
        "Label": "Errors in per cent",
        "Timestamps": [moment(NOON - 600 + 60 * minute) for minute in range(3)],
        "Values": [10, 0, 10],
        "StatusCode": "Complete",
    }
    assert (rate["Label"], rate["Values"]) == ("e2", [pytest.approx(1 / 6), pytest.approx(1 / 3)])


def test_several_series_are_several_results_of_one_id(client: Any) -> None:
    queries = [metric("r", "Requests", ReturnData=False), metric("x", "Errors", ReturnData=False)]
    results = ask(client, *queries, {"Id": "all", "Expression": "METRICS()"})["MetricDataResults"]
    assert [(each["Id"], each["Label"]) for each in results] == [("all", "Requests"), ("all", "Errors")]
    results = ask(client, *queries, {"Id": "all", "Expression": "METRICS()", "Label": "per minute"})
    assert [each["Label"] for each in results["MetricDataResults"]] == [
        "per minute Requests",
        "per minute Errors",
    ]


def test_expressions_are_paged_like_metrics(client: Any) -> None:
    queries = [metric("r", "Requests"), {"Id": "e", "Expression": "r * 2"}]
    first = ask(client, *queries, MaxDatapoints=4)
    assert [each["Values"] for each in first["MetricDataResults"]] == [[10, 20, 40], [20]]
    rest = ask(client, *queries, MaxDatapoints=4, NextToken=first["NextToken"])
    assert [each["Values"] for each in rest["MetricDataResults"]] == [[], [40, 80]]


def test_periods_of_series_without_a_metric(client: Any) -> None:
    numbers = {"Id": "e", "Expression": "TIME_SERIES(7)", "Period": 120}
    [result] = ask(client, numbers)["MetricDataResults"]
    assert (result["Values"], len(result["Timestamps"])) == ([7, 7], 2)
    [result] = ask(client, {"Id": "e", "Expression": "TIME_SERIES(7)"})["MetricDataResults"]
    assert result["Values"] == [7, 7, 7]


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ({"Expression": "FOO(r)"}, "ValidationError", "Error in expression 'e': Unsupported function 'FOO'"),
        (
            {"Expression": "r + q"},
            "ValidationError",
            "Error in expression 'e': there is no query with the Id 'q'",
        ),
        ({"Expression": "AVG(r)"}, "ValidationError", "Error in expression 'e': the result is a Scalar"),
        (
            {"Expression": "SELECT AVG(x) FROM y"},
            "ValidationError",
            "Metrics Insights (SELECT) is not available",
        ),
        ({"Expression": "r", "Period": 61}, "InvalidParameterValue", "or a multiple of 60 seconds, got 61"),
        ({}, "ValidationError", "The parameter MetricDataQueries.member.2.MetricStat is required."),
        (
            {**metric("e", "Errors"), "Expression": "r"},
            "ValidationError",
            "MetricDataQueries.member.2.Expression and MetricDataQueries.member.2.MetricStat are mutually exclusive",
        ),
    ],
)
def test_expressions_that_are_refused(client: Any, query: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(ClientError) as raised:
        ask(client, metric("r", "Requests"), {"Id": "e", **query})
    assert raised.value.response["Error"]["Code"] == code
    assert text in raised.value.response["Error"]["Message"]


def test_far_times_are_refused_before_they_are_computed(client: Any) -> None:
    with pytest.raises(ClientError, match="the expressions compute too many values"):
        client.get_metric_data(
            MetricDataQueries=[{"Id": "e", "Expression": "TIME_SERIES(1)"}],
            StartTime=moment(0),
            EndTime=moment(NOON + HOUR),
        )
