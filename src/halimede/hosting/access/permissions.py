"""What a request is about: keys may act on some endpoints only, and on nothing of another account."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller

_LOG_GROUP = "/aws/sagemaker/Endpoints/"
_ARN = ":endpoint/"
_SCALABLE = "endpoint/"
_ARN_MEMBERS = ("ResourceArn", "ResourceARN", "logGroupIdentifier", "resourceArn")


def check_endpoints(key: Key, action: str, document: Mapping[str, Any]) -> None:
    """Refuse a request that is about an endpoint which the key may not act on.

    Args:
        key: the caller's.
        action: such as ``sagemaker:DescribeEndpoint``.
        document: the request, which has been checked.

    Raises:
        ApiError: it is (``AccessDeniedException``).
    """
    for endpoint in endpoints_of(document):
        key.check(action, endpoint)


def check_account(caller: Caller, action: str, document: Mapping[str, Any]) -> None:
    """Refuse a request that names something of another account by its ARN, or a log group of another region.

    Raises:
        ApiError: it does (``AccessDeniedException``, ``ResourceNotFoundException``).
    """
    for member in _ARN_MEMBERS:
        arn = document.get(member, "")
        parts = arn.split(":", 5)
        if len(parts) < 6 or parts[0] != "arn":
            continue
        if parts[4] != caller.account:
            msg = (
                f"User: {caller.arn} is not authorized to perform: {action} on resource: {arn} because no "
                f"resource-based policy allows the {action} action"
            )
            raise ApiError("AccessDeniedException", msg, 403)
        if parts[2] == "logs" and parts[3] != caller.region:
            msg = f"The specified log group does not exist: '{arn}' is of region {parts[3]}, not {caller.region}"
            raise ApiError("ResourceNotFoundException", msg)


def endpoints_of(document: Mapping[str, Any]) -> Iterator[str]:
    """The endpoints that a request names: by name, ARN, log group, scalable target or a metric's dimension."""
    if "EndpointName" in document:
        yield document["EndpointName"]
    arn = document.get("ResourceArn", "")
    if _ARN in arn:
        yield arn.partition(_ARN)[2]
    for group in (document.get("logGroupName", ""), document.get("logGroupIdentifier", "")):
        if _LOG_GROUP in group:
            yield group.partition(_LOG_GROUP)[2]
    for resource in (document.get("ResourceId", ""), *document.get("ResourceIds", ())):
        if resource.startswith(_SCALABLE):
            yield resource.split("/")[1]
    yield from _dimension(document.get("Dimensions", ()))
    for entry in document.get("MetricData", ()):
        yield from _dimension(entry.get("Dimensions", ()))
    for member in ("MetricDataQueries", "Metrics"):
        for query in document.get(member, ()):
            yield from _dimension(query.get("MetricStat", {}).get("Metric", {}).get("Dimensions", ()))
    tracking = document.get("TargetTrackingScalingPolicyConfiguration", {})
    if "CustomizedMetricSpecification" in tracking:
        yield from endpoints_of(tracking["CustomizedMetricSpecification"])


def _dimension(dimensions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in dimensions:
        if each["Name"] == "EndpointName" and "Value" in each:
            yield each["Value"]
