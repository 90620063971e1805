"""CloudWatch's operations, asked by boto3."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.hosting.metering.serving import DAY, HOUR, MINUTE, NOON, Metered, metered, moment


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Metered]:
    with metered(tmp_path) as running:
        yield running


@pytest.fixture
def client(host: Metered) -> Any:
    return host.client("cloudwatch")


def put(client: Any, *data: dict[str, Any], namespace: str = "mine") -> None:
    client.put_metric_data(Namespace=namespace, MetricData=[{"MetricName": "m", **each} for each in data])


def statistics(
    client: Any, begin: float, end: float, period: int = 60, **further: Any
) -> list[dict[str, Any]]:
    arguments: dict[str, Any] = {
        "Namespace": "mine", "MetricName": "m", "Statistics": ["Sum"], "Period": period,
        "StartTime": moment(begin), "EndTime": moment(end),
    }  # fmt: skip
    given = {name: value for name, value in {**arguments, **further}.items() if value is not None}
    points: list[dict[str, Any]] = client.get_metric_statistics(**given)["Datapoints"]
    return points


def data(client: Any, *queries: dict[str, Any], **further: Any) -> Any:
    stat = {"Metric": {"Namespace": "mine", "MetricName": "m"}, "Period": 60, "Stat": "Sum"}
    arguments: dict[str, Any] = {"StartTime": moment(NOON - HOUR), "EndTime": moment(NOON + HOUR), **further}
    filled = [
        {"Id": f"q{number}", **query, "MetricStat": {**stat, **query.get("MetricStat", {})}}
        for number, query in enumerate(queries)
    ]
    return client.get_metric_data(MetricDataQueries=filled, **arguments)


def refused(call: Any, *arguments: Any, **further: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as error:
        call(*arguments, **further)
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]


def test_the_three_forms_of_values(client: Any) -> None:
    put(
        client,
        {"Value": 1},
        {"Values": [2, 3], "Counts": [10, 1]},
        {"Values": [4]},
        {"StatisticValues": {"SampleCount": 3, "Sum": 6, "Minimum": 0, "Maximum": 5}, "Unit": "Bytes"},
    )
    [point] = statistics(
        client, NOON, NOON + 60, Statistics=["SampleCount", "Sum", "Average", "Minimum", "Maximum"]
    )
    assert point == {
        "Timestamp": moment(NOON), "Unit": "Bytes",
        "SampleCount": 16, "Sum": 34, "Average": 34 / 16, "Minimum": 0, "Maximum": 5,
    }  # fmt: skip


def test_values_of_other_times(client: Any) -> None:
    put(
        client,
        {"Value": 1, "Timestamp": moment(NOON - 13 * DAY)},
        {"Value": 2, "Timestamp": moment(NOON + HOUR)},
    )
    assert len(statistics(client, NOON - 14 * DAY, NOON + DAY, 86400)) == 2


@pytest.mark.parametrize(
    ("entry", "code", "text"),
    [
        (
            {},
            "InvalidParameterCombination",
            "needs one of Value, StatisticValues and Values, and has none of them",
        ),
        ({"Value": 1, "Values": [1]}, "InvalidParameterCombination", "and has Value, Values"),
        ({"Values": []}, "InvalidParameterValue", "has 0 Values; it may have 1 to 150"),
        ({"Values": [1] * 151}, "InvalidParameterValue", "has 151 Values; it may have 1 to 150"),
        ({"Values": [1, 2], "Counts": [1]}, "InvalidParameterValue", "has 2 Values and 1 Counts"),
        (
            {"Values": [1], "Counts": [0]},
            "InvalidParameterValue",
            "has a Count of 0.0; it must be more than 0",
        ),
        ({"Values": [1], "Counts": [-1]}, "InvalidParameterValue", "has a Count of -1"),
        ({"Value": 1e300}, "InvalidParameterValue", "is not a number between -2^360 and 2^360"),
        (
            {"StatisticValues": {"SampleCount": 0, "Sum": 0, "Minimum": 0, "Maximum": 0}},
            "InvalidParameterValue",
            "StatisticValues with SampleCount 0",
        ),
        (
            {"StatisticValues": {"SampleCount": 1, "Sum": 0, "Minimum": 2, "Maximum": 1}},
            "InvalidParameterValue",
            "Minimum 2.0 and Maximum 1.0",
        ),
        (
            {"Value": 1, "Timestamp": moment(NOON - 15 * DAY)},
            "InvalidParameterValue",
            "more than two weeks ago",
        ),
        ({"Value": 1, "Timestamp": moment(NOON + 3 * HOUR)}, "InvalidParameterValue", "two hours to come"),
        (
            {"Value": 1, "Dimensions": [{"Name": "a", "Value": "1"}, {"Name": "a", "Value": "2"}]},
            "InvalidParameterValue",
            "has a dimension twice",
        ),
        ({"Value": 1, "MetricName": ""}, "ValidationError", "at 'metricData.2.member.metricName'"),
        (
            {"Value": 1, "Unit": "Furlongs"},
            "ValidationError",
            "Member must satisfy enum value set: [Seconds,",
        ),
    ],
)
def test_values_that_make_no_sense(client: Any, entry: dict[str, Any], code: str, text: str) -> None:
    got, message = refused(put, client, {"Value": 1}, entry)
    assert got == code
    assert text in message
    assert client.list_metrics()["Metrics"] == []  # of the right one neither


def test_requests_that_make_no_sense(client: Any) -> None:
    assert "reserved" in refused(put, client, {"Value": 1}, namespace="AWS/SageMaker")[1]
    assert "got 0" in refused(client.put_metric_data, Namespace="n", MetricData=[])[1]
    assert "got 1001" in refused(put, client, *[{"Value": 1}] * 1001)[1]
    assert (
        "EntityMetricData is not" in refused(client.put_metric_data, Namespace="n", EntityMetricData=[{}])[1]
    )


def test_there_is_an_end_to_how_many_metrics_there_are(client: Any) -> None:
    for batch in range(10):
        names = [{"MetricName": f"m{batch}-{number}", "Value": 1} for number in range(1000)]
        client.put_metric_data(Namespace="n", MetricData=names)
    code, message = refused(put, client, {"Value": 1})
    assert code == "LimitExceeded"
    assert "there are 10000 metrics" in message
    put(client, {"MetricName": "m0-0", "Value": 1}, namespace="n")


def test_periods_begin_at_the_minute_of_the_start(client: Any) -> None:
    put(client, *({"Value": 1, "Timestamp": moment(NOON - 60 * minute)} for minute in range(20)))
    points = statistics(client, NOON - 7 * MINUTE + 31, NOON - 1, 300)
    assert [(point["Timestamp"], point["Sum"]) for point in points] == [
        (moment(NOON - 7 * MINUTE), 5), (moment(NOON - 2 * MINUTE), 2)
    ]  # fmt: skip
    [point] = statistics(client, NOON - 5 * MINUTE, NOON, 300)
    assert point["Sum"] == 5


def test_extended_statistics(client: Any) -> None:
    put(client, {"Values": list(range(1, 101))})
    [point] = statistics(client, NOON, NOON + 60, Statistics=None, ExtendedStatistics=["p50", "p99.9"])
    assert point["ExtendedStatistics"]["p50"] == pytest.approx(50, rel=0.01)
    assert point["ExtendedStatistics"]["p99.9"] == 100
    assert "Sum" not in point


def test_percentiles_of_sums_are_left_out(client: Any) -> None:
    put(client, {"StatisticValues": {"SampleCount": 3, "Sum": 6, "Minimum": 1, "Maximum": 3}})
    assert statistics(client, NOON, NOON + 60, Statistics=None, ExtendedStatistics=["p50"]) == []
    [point] = statistics(client, NOON, NOON + 60, ExtendedStatistics=["p50"])
    assert point["Sum"] == 6
    assert data(client, {"MetricStat": {"Stat": "p50"}})["MetricDataResults"][0]["Values"] == []


def test_units_filter(client: Any) -> None:
    put(client, {"Value": 1, "Unit": "Count"})
    assert statistics(client, NOON, NOON + 60, Unit="Bytes") == []
    assert len(statistics(client, NOON, NOON + 60, Unit="Count")) == 1
    assert data(client, {"MetricStat": {"Unit": "Bytes"}})["MetricDataResults"][0]["Values"] == []


@pytest.mark.parametrize("period", [1, 5, 10, 20, 30])
def test_a_period_below_a_minute_has_the_points_of_minutes(client: Any, period: int) -> None:
    for minute in range(3):
        put(client, {"Timestamp": moment(NOON + 60 * minute), "Value": minute + 1.0})
    expected = [(moment(NOON + 60 * minute), minute + 1.0) for minute in range(3)]
    points = statistics(client, NOON, NOON + 180, period)
    assert sorted((point["Timestamp"], point["Sum"]) for point in points) == expected
    [series] = data(client, {"MetricStat": {"Period": period}})["MetricDataResults"]
    assert sorted(zip(series["Timestamps"], series["Values"], strict=True)) == expected


@pytest.mark.parametrize(
    ("further", "code", "text"),
    [
        (
            {"Statistics": None},
            "InvalidParameterCombination",
            "At least one of Statistics and ExtendedStatistics",
        ),
        (
            {"period": 15},
            "InvalidParameterValue",
            "Period must be 1, 5, 10, 20, 30 or a multiple of 60 seconds, got 15",
        ),
        (
            {"period": 90},
            "InvalidParameterValue",
            "Period must be 1, 5, 10, 20, 30 or a multiple of 60 seconds, got 90",
        ),
        ({"period": 0}, "ValidationError", "at 'period'"),
        ({"ExtendedStatistics": ["p101"]}, "InvalidParameterValue", "there is no statistic 'p101' here"),
        (
            {"Statistics": ["Median"]},
            "ValidationError",
            "enum value set: [SampleCount, Average, Sum, Minimum, Max",
        ),
        (
            {"EndTime": moment(NOON)},
            "InvalidParameterValue",
            "StartTime must be less than the parameter EndTime",
        ),
        (
            {"EndTime": moment(NOON + 25 * HOUR)},
            "InvalidParameterCombination",
            "You have requested up to 1500 datapoints, which exceeds the limit of 1440",
        ),
    ],
)
def test_questions_that_make_no_sense(client: Any, further: dict[str, Any], code: str, text: str) -> None:
    arguments = {"begin": NOON, "end": NOON + 60, **further}
    got, message = refused(lambda: statistics(client, **arguments))
    assert got == code
    assert text in message


def test_a_metric_that_nobody_has_measured(client: Any) -> None:
    assert statistics(client, NOON, NOON + 60) == []
    [result] = data(client, {})["MetricDataResults"]
    assert (result["Values"], result["Timestamps"], result["StatusCode"]) == ([], [], "Complete")


def test_several_metrics_as_rows(client: Any) -> None:
    put(client, {"Value": 1}, {"Value": 3, "Timestamp": moment(NOON - 60)})
    answer = data(
        client,
        {"Label": "mine"},
        {"MetricStat": {"Stat": "p100"}},
        {"MetricStat": {"Stat": "Average", "Period": 3600}},
        {"ReturnData": False},
        StartTime=moment(NOON - 60),
    )
    first, second, third = answer["MetricDataResults"]
    assert (first["Id"], first["Label"]) == ("q0", "mine")
    assert first["Timestamps"] == [moment(NOON), moment(NOON - 60)]
    assert first["Values"] == [1, 3]
    assert (second["Label"], second["Values"], third["Values"]) == ("m", [1, 3], [2])


@pytest.mark.parametrize("stat", ["tm90", "TM(0%:90%)"])
def test_trimmed_means_are_answered_by_both_operations(client: Any, stat: str) -> None:
    put(client, {"Values": [1.0, 100.0], "Counts": [9.0, 1.0]})
    [result] = data(client, {"MetricStat": {"Stat": stat}})["MetricDataResults"]
    assert result["Values"] == [pytest.approx(1, rel=0.01)]
    [point] = statistics(client, NOON, NOON + 60, Statistics=None, ExtendedStatistics=[stat])
    assert point["ExtendedStatistics"] == {stat: pytest.approx(1, rel=0.01)}


def test_rows_in_order(client: Any) -> None:
    put(client, {"Value": 1}, {"Value": 3, "Timestamp": moment(NOON - 60)})
    [result] = data(client, {}, ScanBy="TimestampAscending")["MetricDataResults"]
    assert result["Values"] == [3, 1]


def test_rows_page_by_page(client: Any) -> None:
    put(client, *({"Value": minute, "Timestamp": moment(NOON - 60 * minute)} for minute in range(10)))
    queries = [
        {
            "Id": "a",
            "MetricStat": {"Metric": {"Namespace": "mine", "MetricName": "m"}, "Period": 60, "Stat": "Sum"},
        },
        {
            "Id": "b",
            "MetricStat": {"Metric": {"Namespace": "mine", "MetricName": "m"}, "Period": 60, "Stat": "p50"},
        },
    ]
    pages = client.get_paginator("get_metric_data").paginate(
        MetricDataQueries=queries,
        StartTime=moment(NOON - HOUR),
        EndTime=moment(NOON + HOUR),
        PaginationConfig={"PageSize": 7},
    )
    sums: dict[str, list[float]] = {"a": [], "b": []}
    sizes = []
    for page in pages:
        for result in page["MetricDataResults"]:
            sums[result["Id"]] += result["Values"]
        sizes.append(sum(len(result["Values"]) for result in page["MetricDataResults"]))
    assert sizes == [7, 7, 6]
    assert sums["a"] == [float(minute) for minute in range(10)]
    assert len(sums["b"]) == 10


@pytest.mark.parametrize(
    ("query", "further", "text"),
    [
        ({"MetricStat": {"Stat": "Median"}}, {}, "there is no statistic 'Median' here"),
        (
            {"MetricStat": {"Period": 50}},
            {},
            "Period must be 1, 5, 10, 20, 30 or a multiple of 60 seconds, got 50",
        ),
        ({"Id": "q1"}, {}, "the Id 'q1' only once"),
        ({}, {"NextToken": "x"}, "The specified nextToken is invalid: 'x'"),
        ({}, {"NextToken": "9" * 1000}, "The specified nextToken is invalid"),
        ({}, {"EndTime": moment(NOON - HOUR)}, "StartTime must be less than"),
    ],
)
def test_rows_that_cannot_be_had(
    client: Any, query: dict[str, Any], further: dict[str, Any], text: str
) -> None:
    code, message = refused(data, client, query, {"Id": "q1"}, **further)
    assert code == "InvalidParameterValue"
    assert text in message


def test_metrics_are_listed_by_what_they_have(client: Any) -> None:
    def dimensions(**values: str) -> list[dict[str, str]]:
        return [{"Name": name, "Value": value} for name, value in values.items()]

    put(
        client,
        {"Value": 1, "Dimensions": dimensions(b="2", a="1")},
        {"Value": 1, "Dimensions": dimensions(a="2")},
    )
    put(client, {"Value": 1}, namespace="other")

    def listed(**further: Any) -> list[tuple[str, list[dict[str, str]]]]:
        return [(each["Namespace"], each["Dimensions"]) for each in client.list_metrics(**further)["Metrics"]]

    both, one, other = (
        ("mine", dimensions(a="1", b="2")),
        ("mine", dimensions(a="2")),
        ("other", dimensions()),
    )
    assert listed() == [both, one, other]
    assert listed(Namespace="mine") == [both, one]
    assert listed(MetricName="n") == []
    assert listed(Dimensions=[{"Name": "a"}]) == [both, one]
    assert listed(Dimensions=[{"Name": "a", "Value": "1"}]) == [both]
    assert listed(Dimensions=[{"Name": "a"}, {"Name": "c"}]) == []


def test_metrics_that_are_quiet_are_not_recently_active(host: Metered, client: Any) -> None:
    put(client, {"Value": 1, "Timestamp": moment(NOON - 4 * HOUR), "MetricName": "old"}, {"Value": 1})
    [metric] = client.list_metrics(RecentlyActive="PT3H")["Metrics"]
    assert metric["MetricName"] == "m"


def test_metrics_page_by_page(client: Any) -> None:
    for batch in range(2):
        names = [{"MetricName": f"m{batch}{number:03}", "Value": 1} for number in range(600)]
        client.put_metric_data(Namespace="n", MetricData=names)
    pages = list(client.get_paginator("list_metrics").paginate())
    assert [len(page["Metrics"]) for page in pages] == [500, 500, 200]
    assert len({metric["MetricName"] for page in pages for metric in page["Metrics"]}) == 1200
    for token in ("x", "-1", "9" * 5000, "١"):
        assert refused(client.list_metrics, NextToken=token)[0] == "InvalidParameterValue"


def test_times_may_be_far_away(client: Any) -> None:
    put(client, {"Value": 1})
    far = moment(NOON) + timedelta(days=365 * 100)
    assert len(statistics(client, 0, NOON + 60, 86400 * 365)) == 1
    [result] = data(client, {}, StartTime=moment(0), EndTime=far)["MetricDataResults"]
    assert result["Values"] == [1]
