"""Forms and XML."""

from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.api.query_protocol import document_of, escape, parse_form
from halimede.hosting.errors import ApiError
from tests.frontends.http.serving import post
from tests.hosting.api.serving import ApiHost, api_host

CLOUDWATCH = "2010-08-01"
NS = "{http://monitoring.amazonaws.com/doc/2010-08-01/}"


@cache
def shape(operation: str, service: str = "cloudwatch") -> Any:
    model = ServiceModel(Loader().load_service_model(service, "service-2"), service)
    return model.operation_model(operation).input_shape


def document(fields: dict[str, str], operation: str = "PutMetricData") -> dict[str, Any]:
    return document_of(shape(operation), fields)


def malformed(fields: dict[str, str], operation: str = "PutMetricData") -> str:
    with pytest.raises(ApiError) as error:
        document(fields, operation)
    assert (error.value.code, error.value.status) == ("MalformedQueryString", 400)
    return error.value.message


def test_paths_make_a_document() -> None:
    fields = {
        "Namespace": "n",
        "MetricData.member.2.MetricName": "b",
        "MetricData.member.10.MetricName": "c",
        "MetricData.member.1.MetricName": "a",
        "MetricData.member.1.Value": "1.5",
        "MetricData.member.1.StorageResolution": "60",
        "MetricData.member.1.Dimensions.member.1.Name": "d",
        "MetricData.member.1.Dimensions.member.1.Value": "x y",
    }
    first = {
        "MetricName": "a", "Value": 1.5, "StorageResolution": 60, "Dimensions": [{"Name": "d", "Value": "x y"}]
    }  # fmt: skip
    assert document(fields) == {
        "Namespace": "n",
        "MetricData": [first, {"MetricName": "b"}, {"MetricName": "c"}],
    }


def test_lists_may_be_flat_or_empty() -> None:
    assert document({"MetricData.1.MetricName": "a"})["MetricData"] == [{"MetricName": "a"}]
    assert document({"MetricData": ""})["MetricData"] == []


def test_unknown_fields_are_kept() -> None:
    assert document({"Namespace": "n", "New.member.1": "x"}) == {
        "Namespace": "n",
        "New": {"member": {"1": "x"}},
    }


def test_booleans() -> None:
    assert document({"StrictEntityValidation": "true"}) == {"StrictEntityValidation": True}
    assert "'yes' at 'StrictEntityValidation' is neither" in malformed({"StrictEntityValidation": "yes"})


@pytest.mark.parametrize(
    "fields",
    [
        {"Namespace": "n", "Namespace.x": "1"},
        {"Namespace.x": "1", "Namespace": "n"},
        {"Namespace.x": "1"},
        {"MetricData": "x"},
        {"MetricData.member": "1"},
        {"MetricData.member.one.MetricName": "a"},
        {"MetricData.member.1": "a"},
        {"MetricData.member.²": "a"},
        {"MetricData.member." + "9" * 5000: "a"},
        {"MetricData.member.1.Value": "one"},
        {"MetricData.member.1.Value": "nan"},
        {"MetricData.member.1.Value": "1e999"},
        {"MetricData.member.1.Value": "1_0"},
        {"MetricData.member.1.StorageResolution": "1.0"},
        {"MetricData.member.1.StorageResolution": "١"},
        {"MetricData.member.1.StorageResolution": "9" * 5000},
        {".".join("a" * 1_000_000): "x"},
        {"Namespace" + "." * 100_000: "x"},
    ],
)
def test_forms_that_make_no_document(fields: dict[str, str]) -> None:
    assert len(malformed(fields)) < 1_500_000


@pytest.mark.parametrize(
    "fields", [{"M.entry.1": "x"}, {"M.entry.1.key": "k"}, {"M.entry.1.value": "v"}, {"M": "v"}]
)
def test_maps_need_keys_and_values(fields: dict[str, str]) -> None:
    model = ServiceModel(
        {
            "metadata": {},
            "operations": {"Do": {"name": "Do", "input": {"shape": "In"}}},
            "shapes": {
                "In": {"type": "structure", "members": {"M": {"shape": "Map"}}},
                "Map": {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Text"}},
                "Text": {"type": "string"},
            },
        }
    )
    of = model.operation_model("Do").input_shape
    assert document_of(of, {"M.entry.1.key": "k", "M.entry.1.value": "v"}) == {"M": {"k": "v"}}
    with pytest.raises(ApiError, match="MalformedQueryString"):
        document_of(of, fields)


@pytest.mark.parametrize("body", [b"a", b"a=1&b", b"\xff\xfe", b'{"a": 1}'])
def test_bodies_that_are_no_forms(body: bytes) -> None:
    with pytest.raises(ApiError, match="MalformedQueryString"):
        parse_form(body)


def test_a_form_with_too_many_fields() -> None:
    with pytest.raises(ApiError, match="more than 20000 fields"):
        parse_form(b"a=1&" * 30_000)


NAMES = st.lists(
    st.sampled_from(
        ["Namespace", "MetricData", "member", "entry", "1", "2", "Value", "Dimensions", "Name", "", "é", "-1"]
    ),
    min_size=1,
    max_size=6,
).map(".".join)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(NAMES | st.text(max_size=12), st.text(max_size=12), max_size=8))
def test_any_form_makes_a_document_or_is_refused(fields: dict[str, str]) -> None:
    refused = None
    try:
        assert isinstance(document(parse_form(urlencode(fields).encode())), dict)
    except ApiError as error:
        refused = error
    assert refused is None or refused.code == "MalformedQueryString"


@given(st.text())
def test_any_text_can_be_put_into_xml(text: str) -> None:
    parsed = ET.fromstring(f"<a>{escape(text)}</a>").text or ""
    assert len(parsed) <= len(text)
    if text.isprintable():
        assert parsed == text


def ask(host: ApiHost, fields: dict[str, str]) -> ET.Element:
    with host.raw() as client:
        answer = client.ask(
            post(urlencode(fields).encode(), "/", "Content-Type: application/x-www-form-urlencoded")
        )
    assert answer.headers["content-type"] == "text/xml"
    assert answer.headers["x-amzn-requestid"]
    element = ET.fromstring(answer.body)
    element.set("status", str(answer.status))
    return element


def test_older_clients_of_cloudwatch_get_xml() -> None:
    with api_host() as host:
        put = {
            "Action": "PutMetricData",
            "Version": CLOUDWATCH,
            "Namespace": "mine",
            "MetricData.member.1.MetricName": "a<b",
            "MetricData.member.1.Value": "2",
            "MetricData.member.1.Timestamp": datetime.now(UTC).isoformat(),
            "MetricData.member.1.Dimensions.member.1.Name": "n",
            "MetricData.member.1.Dimensions.member.1.Value": "v",
        }
        assert ask(host, put).tag == f"{NS}PutMetricDataResponse"
        listed = ask(host, {"Action": "ListMetrics", "Version": CLOUDWATCH})
        found = listed.find(f"{NS}ListMetricsResult/{NS}Metrics/{NS}member")
        assert found is not None
        assert found.findtext(f"{NS}MetricName") == "a<b"
        assert found.findtext(f"{NS}Dimensions/{NS}member/{NS}Value") == "v"
        got = ask(
            host,
            {
                "Action": "GetMetricStatistics",
                "Version": CLOUDWATCH,
                "Namespace": "mine",
                "MetricName": "a<b",
                "Dimensions.member.1.Name": "n",
                "Dimensions.member.1.Value": "v",
                "StartTime": "2026-01-01T00:00:00Z",
                "EndTime": "2036-01-01T00:00:00Z",
                "Period": "31536000",
                "Statistics.member.1": "Sum",
                "ExtendedStatistics.member.1": "p50",
            },
        )
        point = got.find(f"{NS}GetMetricStatisticsResult/{NS}Datapoints/{NS}member")
        assert point is not None
        assert point.findtext(f"{NS}Sum") == "2.0"
        assert point.findtext(f"{NS}ExtendedStatistics/{NS}entry/{NS}key") == "p50"
        moment = point.findtext(f"{NS}Timestamp")
        assert moment is not None
        assert moment.endswith("Z")


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({}, "InvalidAction", "Action '' and Version ''"),
        ({"Action": "GetCallerIdentity"}, "InvalidAction", "Version ''"),
        ({"Action": "GetCallerIdentity", "Version": "1999-01-01"}, "InvalidAction", "Version '1999-01-01'"),
        ({"Action": "Foo", "Version": "2011-06-15"}, "InvalidAction", "Foo is no operation of sts"),
        (
            {"Action": "AssumeRole", "Version": "2011-06-15"},
            "UnknownOperationException",
            "AssumeRole is not available in this version. Available are GetCallerIdentity",
        ),
        ({"Action": "A\0<&>", "Version": "2011-06-15"}, "InvalidAction", "A\ufffd<&> is no operation"),
        (
            {"Action": "ListMetrics", "Version": CLOUDWATCH, "MetricName": ""},
            "ValidationError",
            "Value '' at 'metricName' failed to satisfy constraint: Member must have length greater than or equal to 1",
        ),
        (
            {"Action": "ListMetrics", "Version": CLOUDWATCH, "Dimensions": "x"},
            "MalformedQueryString",
            "'Dimensions'",
        ),
    ],
)
def test_errors_are_xml_too(fields: dict[str, str], code: str, text: str) -> None:
    with api_host() as host:
        answer = ask(host, fields)
    assert answer.get("status") == "400"
    assert answer.findtext("Error/Code") == code
    assert answer.findtext("Error/Type") == "Sender"
    assert text in (answer.findtext("Error/Message") or "")
    assert answer.findtext("RequestId")


def test_who_am_i() -> None:
    with api_host() as host:
        answer = host.client("sts").get_caller_identity()
    assert answer["Account"] == "000000000000"
    assert answer["Arn"] == "arn:aws:sts::000000000000:assumed-role/halimede/AKIDEXAMPLE"
    assert answer["UserId"] == "AROAHALIMEDE:AKIDEXAMPLE"


def test_who_am_i_with_a_strange_key() -> None:
    with api_host() as host:
        client = host.client("sts", aws_access_key_id="<&>")
        assert client.get_caller_identity()["Arn"].endswith("/<&>")
