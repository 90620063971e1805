"""How a shadow variant compares with the production variant whose requests it gets copies of, for a terminal."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from halimede.cli.hosting.client import HostClient
from halimede.cli.tables import table

SPAN_S = 3600
"""What was counted so long ago is not shown."""

_NAMESPACE = "AWS/SageMaker"
_WHOLE = ""
"""In place of an output's name: all outputs together."""


class _Asked(NamedTuple):
    metric: str
    statistic: str
    output: str = _WHOLE


_LATENCIES = ("ShadowedModelLatency", "ModelLatency")
"""The production variant's of what was copied, and the shadow's."""

_OF_OUTPUT = (
    ("ShadowAgreement", "Average"),
    ("ShadowEqualElements", "Average"),
    ("ShadowTopAgreement", "Average"),
    ("ShadowMaxAbsoluteDifference", "Maximum"),
    ("ShadowMaxRelativeDifference", "Maximum"),
)


def comparisons(host: HostClient, endpoint: Mapping[str, Any]) -> Iterator[str]:
    """What is to be shown of each shadow variant that an endpoint's description has."""
    for shadow in endpoint.get("ShadowProductionVariants", ()):
        [production, *_] = endpoint["ProductionVariants"]
        yield _comparison(
            _Metrics(host, endpoint["EndpointName"], shadow["VariantName"]),
            production["VariantName"],
            shadow["VariantName"],
        )


def _comparison(metrics: "_Metrics", production: str, shadow: str) -> str:
    outputs = metrics.outputs()
    asked = [
        _Asked("Invocations", "Sum"),
        _Asked("ShadowCopiesLost", "Sum"),
        _Asked("ShadowAgreement", "SampleCount"),
        _Asked("ShadowStatusAgreement", "Average"),
        *(_Asked(name, percentile) for percentile in ("p50", "p99") for name in _LATENCIES),
        *(_Asked(*each, output) for output in (_WHOLE, *outputs) for each in _OF_OUTPUT),
    ]
    found = metrics.values(asked)
    sent, lost, compared = (int(found.get(each, 0)) for each in asked[:3])
    lines = [
        (
            f"{shadow} was sent {sent} copies of {production}'s requests in the last hour; "
            f"{lost} were lost, {compared} compared."
        )
    ]
    if not sent:
        return lines[0]
    latencies = [_milliseconds(found.get(each)) for each in asked[4:8]]
    lines.append(
        table(
            ["Latency", production, shadow],
            [
                ["p50", *latencies[:2]],
                ["p99", *latencies[2:]],
                ["same outcome", "", _share(found.get(asked[3]))],
            ],
        )
    )
    if compared:
        rows = [
            [output or "whole answer", *_cells([found.get(_Asked(*each, output)) for each in _OF_OUTPUT])]
            for output in (_WHOLE, *outputs)
        ]
        headings = [
            "Output",
            "Agree",
            "Equal elements",
            "Same top",
            "Max. difference",
            "Max. relative difference",
        ]
        lines.append(table(headings, rows))
    return "\n".join(lines)


def _cells(values: Sequence[float | None]) -> list[str]:
    agreement, equal, top, absolute, relative = values
    return [_share(agreement), _share(equal), _share(top), _number(absolute), _number(relative)]


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _milliseconds(micros: float | None) -> str:
    return "" if micros is None else f"{micros / 1000:.2f} ms"


class _Metrics:
    """What CloudWatch says of a shadow variant."""

    def __init__(self, host: HostClient, endpoint: str, variant: str) -> None:
        self._host = host
        self._dimensions = [
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": variant},
        ]

    def outputs(self) -> list[str]:
        """The outputs that have been compared by name."""
        found = self._host.every(
            "cloudwatch",
            "list_metrics",
            "Metrics",
            Namespace=_NAMESPACE,
            MetricName="ShadowAgreement",
            Dimensions=[*self._dimensions, {"Name": "OutputName"}],
        )
        names = [
            each["Value"] for metric in found for each in metric["Dimensions"] if each["Name"] == "OutputName"
        ]
        return sorted(names)

    def values(self, asked: Sequence[_Asked]) -> dict[_Asked, float]:
        """The statistics that there are, of the last hour."""
        now = time.time()
        queries = [
            {
                "Id": f"m{number}",
                "MetricStat": {
                    "Metric": {
                        "Namespace": _NAMESPACE,
                        "MetricName": each.metric,
                        "Dimensions": self._of(each.output),
                    },
                    "Period": 2 * SPAN_S,
                    "Stat": each.statistic,
                },
            }
            for number, each in enumerate(asked)
        ]
        answer = self._host.call(
            "cloudwatch",
            "get_metric_data",
            MetricDataQueries=queries,
            StartTime=datetime.fromtimestamp(now - SPAN_S, UTC),
            EndTime=datetime.fromtimestamp(now + 60, UTC),
        )
        results = zip(asked, answer["MetricDataResults"], strict=True)
        return {each: result["Values"][0] for each, result in results if result["Values"]}

    def _of(self, output: str) -> list[dict[str, str]]:
        return [*self._dimensions, {"Name": "OutputName", "Value": output}] if output else self._dimensions
