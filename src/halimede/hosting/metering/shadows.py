"""What is counted of copies for a shadow variant, as metrics: names, units and values.

    ShadowCopiesLost                copies that the variant did not get, one each
    ShadowCopiesNotCompared         copies whose answer was not compared, one each
    ShadowStatusAgreement           1 if both variants succeeded or both failed, else 0
    ShadowedModelLatency            the production variant's ModelLatency, of the requests that were copied
    ShadowAgreement                 1 if both answers are equal within the tolerance, else 0
    ShadowEqualElements             the share of elements that are
    ShadowTopAgreement              of scores of classes: the share of rows with the largest number at the same place
    ShadowMaxAbsoluteDifference     the largest difference in an answer
    ShadowMaxRelativeDifference     the same, relative to the larger number

The last five are also there for each output, with the further dimension OutputName.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from halimede.hosting.routing.agreement import Agreement, ShadowCounts

LOST = "ShadowCopiesLost"
NOT_COMPARED = "ShadowCopiesNotCompared"
STATUS = "ShadowStatusAgreement"
LATENCY = "ShadowedModelLatency"
AGREEMENT = "ShadowAgreement"
EQUAL = "ShadowEqualElements"
TOP = "ShadowTopAgreement"
ABSOLUTE = "ShadowMaxAbsoluteDifference"
RELATIVE = "ShadowMaxRelativeDifference"

SHADOW_METRICS = (LOST, NOT_COMPARED, STATUS, LATENCY, AGREEMENT, EQUAL, TOP, ABSOLUTE, RELATIVE)
"""All of them."""

_MICROSECOND = 1_000


class Observed(NamedTuple):
    """Values of a metric.

    Attributes:
        name: the metric's.
        output: the output that they are of; "" for the whole answer.
        unit: theirs.
        values: each of them.
    """

    name: str
    output: str
    unit: str
    values: Sequence[float]


def observed(counts: ShadowCounts) -> Iterator[Observed]:
    """What has been counted; metrics without values lack."""
    every = [
        Observed(LOST, "", "None", [1.0] * counts.lost),
        Observed(NOT_COMPARED, "", "None", [1.0] * counts.skipped),
        Observed(STATUS, "", "None", _shares(counts.same_status, counts.statuses)),
        Observed(LATENCY, "", "Microseconds", [each / _MICROSECOND for each in counts.primary_ns]),
        *_of_output("", counts.whole),
    ]
    for output, agreement in counts.outputs.items():
        every += _of_output(output, agreement)
    return (each for each in every if each.values)


def _of_output(output: str, agreement: Agreement) -> Iterator[Observed]:
    yield Observed(AGREEMENT, output, "None", _shares(agreement.agreed, agreement.compared))
    yield Observed(EQUAL, output, "None", agreement.equal)
    yield Observed(TOP, output, "None", agreement.top)
    yield Observed(ABSOLUTE, output, "None", agreement.absolute)
    yield Observed(RELATIVE, output, "None", agreement.relative)


def _shares(ones: int, of: int) -> list[float]:
    """So many are one, and the others zero: their average is a share."""
    return [1.0] * ones + [0.0] * (of - ones)
