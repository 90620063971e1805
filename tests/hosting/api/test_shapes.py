"""Requests held against AWS's models, and the texts of refusals."""

import math
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.api.shapes import Checker
from halimede.hosting.errors import ApiError

CHECKER = Checker({"ProductionVariantInstanceType": ("ml.local.cpu",)})


@cache
def shape(operation: str, service: str = "sagemaker") -> Any:
    model = ServiceModel(Loader().load_service_model(service, "service-2"), service)
    return model.operation_model(operation).input_shape


def check(operation: str, document: dict[str, Any], service: str = "sagemaker") -> dict[str, Any]:
    return CHECKER.check(shape(operation, service), document)


def refusal(operation: str, document: dict[str, Any], service: str = "sagemaker") -> ApiError:
    with pytest.raises(ApiError) as error:
        check(operation, document, service)
    assert error.value.status == 400
    return error.value


def config(**variant: Any) -> dict[str, Any]:
    return {
        "EndpointConfigName": "c",
        "ProductionVariants": [
            {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu", **variant}
        ],
    }


def test_a_right_request_comes_back_as_it_is() -> None:
    document = config(InitialVariantWeight=0.5, VolumeSizeInGB=8)
    assert check("CreateEndpointConfig", document) == document


def test_types_of_the_catalogue_are_as_good_as_those_of_aws() -> None:
    check("CreateEndpointConfig", config(InstanceType="ml.m5.large"))
    error = refusal("CreateEndpointConfig", config(InstanceType="ml.foo"))
    assert error.code == "ValidationException"
    assert error.message.startswith(
        "1 validation error detected: Value 'ml.foo' at 'productionVariants.1.member.instanceType' failed to satisfy "
        "constraint: Member must satisfy enum value set: [ml.local.cpu, "
    )
    assert error.message.endswith("more]")


def test_what_is_missing_is_named_by_its_path() -> None:
    error = refusal("CreateEndpointConfig", {"ProductionVariants": [{"VariantName": "A"}, {}]})
    assert error.message == (
        "2 validation errors detected: Value null at 'productionVariants.2.member.variantName' failed to satisfy "
        "constraint: Member must not be null; Value null at 'endpointConfigName' failed to satisfy constraint: Member "
        "must not be null"
    )


def test_a_null_is_as_good_as_nothing() -> None:
    assert (
        "VolumeSizeInGB"
        not in check("CreateEndpointConfig", config(VolumeSizeInGB=None))["ProductionVariants"][0]
    )
    assert "must not be null" in refusal("DescribeEndpoint", {"EndpointName": None}).message


@pytest.mark.parametrize(
    ("variant", "constraint"),
    [
        ({"InitialInstanceCount": 0}, "have value greater than or equal to 1"),
        ({"VolumeSizeInGB": 513}, "have value less than or equal to 512"),
        ({"InitialVariantWeight": -0.1}, "have value greater than or equal to 0"),
        ({"VariantName": ""}, "satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"),
        ({"VariantName": "a" * 64}, "have length less than or equal to 63"),
        ({"VariantName": "a_b"}, "satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"),
    ],
)
def test_bounds_and_patterns(variant: dict[str, Any], constraint: str) -> None:
    error = refusal("CreateEndpointConfig", config(**variant))
    [(name, value)] = variant.items()
    path = f"productionVariants.1.member.{name[0].lower()}{name[1:]}"
    assert error.message == (
        f"1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: Member must "
        f"{constraint}"
    )


def test_lists_and_maps_have_their_length_checked() -> None:
    assert (
        "have length greater than or equal to 1"
        in refusal("CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": []}).message
    )
    environment = {f"K{index}": "v" for index in range(101)}
    error = refusal("CreateModel", {"ModelName": "m", "PrimaryContainer": {"Environment": environment}})
    assert "at 'primaryContainer.environment'" in error.message
    assert "have length less than or equal to 100" in error.message


def test_keys_and_values_of_maps_are_checked() -> None:
    error = refusal(
        "CreateModel", {"ModelName": "m", "PrimaryContainer": {"Environment": {"a-b": "x" * 1025}}}
    )
    assert "at 'primaryContainer.environment.a-b.key'" in error.message
    assert "at 'primaryContainer.environment.a-b.value'" in error.message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"EndpointName": 1}, "the number 1 at 'endpointName' cannot be converted to string"),
        ({"EndpointName": ["a"]}, "a list at 'endpointName' cannot be converted to string"),
        ({"EndpointName": True}, "a boolean at 'endpointName' cannot be converted to string"),
        ({"EndpointName": {}}, "an object at 'endpointName' cannot be converted to string"),
    ],
)
def test_values_of_other_types(document: dict[str, Any], message: str) -> None:
    error = refusal("DescribeEndpoint", document)
    assert (error.code, error.message) == ("SerializationException", message)


@pytest.mark.parametrize(
    ("operation", "document", "where"),
    [
        ("CreateEndpointConfig", config(InitialInstanceCount="1"), "initialInstanceCount"),
        ("CreateEndpointConfig", config(InitialInstanceCount=1.0), "initialInstanceCount"),
        ("CreateEndpointConfig", config(InitialInstanceCount=1 << 31), "initialInstanceCount"),
        ("CreateEndpointConfig", config(InitialVariantWeight=math.nan), "initialVariantWeight"),
        ("CreateEndpointConfig", config(InitialVariantWeight=math.inf), "initialVariantWeight"),
        (
            "CreateEndpointConfig",
            {"EndpointConfigName": "c", "ProductionVariants": [None]},
            "productionVariants.1",
        ),
        ("CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": {}}, "productionVariants"),
        (
            "UpdateEndpoint",
            {"EndpointName": "e", "RetainAllVariantProperties": 1},
            "retainAllVariantProperties",
        ),
    ],
)
def test_numbers_and_containers_of_wrong_types(operation: str, document: dict[str, Any], where: str) -> None:
    error = refusal(operation, document)
    assert error.code == "SerializationException"
    assert where in error.message


def test_whole_numbers_have_the_bits_of_their_type() -> None:
    request = {"logStreamName": "s", "logGroupName": "g"}
    assert (
        check("GetLogEvents", {**request, "startTime": (1 << 63) - 1}, "logs")["startTime"] == (1 << 63) - 1
    )
    assert refusal("GetLogEvents", {**request, "startTime": 1 << 63}, "logs").code == "SerializationException"


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1.5, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("2026-03-04T05:06:07Z", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2026-03-04T05:06:07", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2026-03-04T05:06:07+02:00", datetime(2026, 3, 4, 3, 6, 7, tzinfo=UTC)),
    ],
)
def test_times_are_in_utc(value: Any, moment: datetime) -> None:
    checked = check("ListEndpoints", {"CreationTimeAfter": value})["CreationTimeAfter"]
    assert checked == moment
    assert checked.tzinfo is UTC


@pytest.mark.parametrize(
    "value", ["", "now", "9999", 1e300, -1e300, "0001-01-01T00:00:00+14:00", math.nan, True]
)
def test_what_is_no_time_is_refused(value: Any) -> None:
    error = refusal("ListEndpoints", {"CreationTimeAfter": value})
    assert error.code == "SerializationException"
    assert "creationTimeAfter" in error.message


def test_a_moment_stays_as_it_is() -> None:
    moment = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert check("ListEndpoints", {"CreationTimeAfter": moment})["CreationTimeAfter"] == moment


def test_unknown_members_are_kept_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    document = {**config(FromTheFuture={"a": [1]}), "Later": 2}
    assert check("CreateEndpointConfig", document) == document
    [warning] = caplog.messages
    assert warning == (
        "members that are not known have no effect: productionVariants.1.member.FromTheFuture, Later"
    )


def test_a_flood_of_unknown_members_is_one_short_warning(caplog: pytest.LogCaptureFixture) -> None:
    check("DescribeEndpoint", {"EndpointName": "e", **{f"x{index}" + "y" * 500: 1 for index in range(1000)}})
    [warning] = caplog.messages
    assert len(warning) < 20_000
    assert warning.endswith("… 960 more")


def test_a_flood_of_problems_is_a_short_answer() -> None:
    error = refusal(
        "PutMetricData", {"Namespace": "n", "MetricData": [{} for _ in range(100_000)]}, "cloudwatch"
    )
    assert error.message.startswith("20 validation errors detected: ")
    assert error.message.endswith("; there may be more, which were not looked for")
    assert len(error.message) < 5_000


def test_what_a_list_that_is_too_long_holds_is_not_looked_at() -> None:
    error = refusal("AddTags", {"ResourceArn": "arn:aws:sagemaker:x:000000000000:y", "Tags": [0] * 100_000})
    assert error.code == "ValidationException"
    assert (
        "at 'tags' failed to satisfy constraint: Member must have length less than or equal to 50"
        in error.message
    )
    assert len(error.message) < 1_000


def test_long_values_are_shown_in_part() -> None:
    error = refusal("DescribeEndpoint", {"EndpointName": "a" * 10_000})
    assert f"Value '{'a' * 256}…' at 'endpointName'" in error.message


def test_tags_may_be_of_any_script() -> None:
    arn = "arn:aws:sagemaker:eu-west-1:123456789012:endpoint/e"
    check("AddTags", {"ResourceArn": arn, "Tags": [{"Key": "Größe é 日本", "Value": ""}]})
    error = refusal("AddTags", {"ResourceArn": arn, "Tags": [{"Key": "a!", "Value": "ok"}]})
    assert "'tags.1.member.key'" in error.message


def test_the_code_is_the_service_s() -> None:
    with pytest.raises(ApiError) as error:
        Checker(code="ValidationError").check(shape("DescribeEndpoint"), {})
    assert error.value.code == "ValidationError"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=70)
    | st.sampled_from(["ml.local.cpu", "A", "2026-03-04T05:06:07Z", "s3://b/k", "MultiModel"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def documents(of: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Documents that have the shape's members, with values of any kind in them."""
    if depth > 4:
        return JSON
    if of.type_name == "structure":
        members = {
            name: JSON if depth > 2 else documents(member, depth + 1) for name, member in of.members.items()
        }
        return JSON | st.fixed_dictionaries({}, optional={**members, "Unknown": JSON})
    if of.type_name == "list":
        return JSON | st.lists(documents(of.member, depth + 1), max_size=3)
    return JSON


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("sagemaker", "CreateModel"),
        ("sagemaker", "CreateEndpointConfig"),
        ("sagemaker", "UpdateEndpoint"),
        ("sagemaker", "ListEndpoints"),
        ("sagemaker", "AddTags"),
        ("cloudwatch", "PutMetricData"),
        ("cloudwatch", "GetMetricData"),
        ("logs", "FilterLogEvents"),
    ],
)
def test_any_json_is_checked_or_refused(service: str, operation: str) -> None:
    of = shape(operation, service)

    @settings(max_examples=60, deadline=None)
    @given(documents(of))
    def run(document: Any) -> None:
        refused = None
        try:
            assert set(CHECKER.check(of, document)) <= set(document)
        except ApiError as error:
            refused = error
        assert refused is None or refused.code in ("ValidationException", "SerializationException")
        assert refused is None or len(refused.message) < 20_000

    run()
