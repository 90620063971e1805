"""Which endpoints a request is about, for keys that may act on some only."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from halimede.hosting.api.keys import Key

_LOG_GROUP = "/aws/sagemaker/Endpoints/"
_ARN = ":endpoint/"
_SCALABLE = "endpoint/"


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
    if document.get("ResourceId", "").startswith(_SCALABLE):
        yield document["ResourceId"].split("/")[1]
    yield from _dimension(document.get("Dimensions", ()))
    for entry in document.get("MetricData", ()):
        yield from _dimension(entry.get("Dimensions", ()))
    for query in document.get("MetricDataQueries", ()):
        yield from _dimension(query.get("MetricStat", {}).get("Metric", {}).get("Dimensions", ()))


def _dimension(dimensions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in dimensions:
        if each["Name"] == "EndpointName" and "Value" in each:
            yield each["Value"]
