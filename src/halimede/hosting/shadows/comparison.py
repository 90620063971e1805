"""Two answers to one request, compared output by output."""

from typing import NamedTuple

import numpy as np

from halimede.hosting.routing.agreement import Agreement, ShadowCounts
from halimede.hosting.shadows.answers import Answer, Tensor, tensors_of
from halimede.hosting.shadows.settings import Tolerance

_LARGEST = 2.0**360
"""The largest value of a metric (CloudWatch's limit)."""


class Comparison(NamedTuple):
    """How an output of two answers compares, or all of them together.

    Attributes:
        agrees: both are equal within the tolerance.
        equal: the share of elements that are.
        absolute: the largest absolute difference of two finite numbers; None without any.
        relative: the largest difference relative to the larger number; None without any.
        top: the share of rows (along the last axis) whose largest number is at the same place; None unless they are
            floats in rows of two or more: scores of classes.
    """

    agrees: bool
    equal: float
    absolute: float | None = None
    relative: float | None = None
    top: float | None = None


SAME, OTHER = Comparison(agrees=True, equal=1.0), Comparison(agrees=False, equal=0.0)


class Compared(NamedTuple):
    """Both answers compared.

    Attributes:
        whole: all outputs together; bytes, if they are no tensors.
        outputs: by name; none if they are no tensors.
    """

    whole: Comparison
    outputs: dict[str, Comparison]


def compare(primary: Answer, shadow: Answer, tolerance: Tolerance) -> Compared:
    """Compare the answer of a production variant with its shadow's.

    Tensors of KServe v2 are compared by name: an output that only one answer has, or that has another shape or
    datatype there, does not agree. The tolerance is for floats; integers and strings are equal or not. What is no
    tensor is compared byte for byte.
    """
    first, second = tensors_of(primary), tensors_of(shadow)
    if first is None or second is None:
        return Compared(SAME if primary.body == shadow.body else OTHER, {})
    outputs = {
        name: _compare(first[name], second[name], tolerance) if name in first and name in second else OTHER
        for name in sorted({*first, *second})
    }
    return Compared(_together(outputs, first), outputs)


def note(compared: Compared, counts: ShadowCounts) -> None:
    """Count a comparison."""
    _note(compared.whole, counts.whole)
    for name, comparison in compared.outputs.items():
        agreement = counts.output(name)
        if agreement is not None:
            _note(comparison, agreement)


def _note(comparison: Comparison, agreement: Agreement) -> None:
    agreement.compared += 1
    agreement.agreed += comparison.agrees
    agreement.equal.append(comparison.equal)
    if comparison.absolute is not None:
        agreement.absolute.append(comparison.absolute)
    if comparison.relative is not None:
        agreement.relative.append(comparison.relative)
    if comparison.top is not None:
        agreement.top.append(comparison.top)


def _compare(first: Tensor, second: Tensor, tolerance: Tolerance) -> Comparison:
    one, other = first.elements, second.elements
    if (first.datatype, first.shape, len(one)) != (second.datatype, second.shape, len(other)):
        return OTHER
    if not len(one):
        return SAME
    if one.dtype.kind not in "fiu":
        share = float(np.count_nonzero(one == other)) / len(one)
        return Comparison(agrees=share == 1.0, equal=share)
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float64), other.astype(np.float64)
        difference = np.abs(a - b)
        larger = np.maximum(np.abs(a), np.abs(b))
        finite = np.isfinite(difference)
        relative = np.divide(difference, larger, out=np.zeros_like(difference), where=larger > 0)
        same = difference <= tolerance.absolute + tolerance.relative * larger
        same = np.where(finite, same, (a == b) | (np.isnan(a) & np.isnan(b)))
    if one.dtype.kind != "f":  # numbers that stand for things: a token is another one, or it is not
        same = one == other
    share = float(np.count_nonzero(same)) / len(same)
    top = _top(first, second)
    if not finite.any():
        return Comparison(agrees=share == 1.0, equal=share, top=top)
    largest = min(float(difference[finite].max()), _LARGEST)
    return Comparison(share == 1.0, share, largest, min(float(relative[finite].max()), 2.0), top)


def _top(first: Tensor, second: Tensor) -> float | None:
    columns = first.shape[-1] if first.shape else 0
    if first.elements.dtype.kind != "f" or columns < 2 or len(first.elements) % columns:
        return None
    places = [tensor.elements.reshape(-1, columns).argmax(axis=1) for tensor in (first, second)]
    return float(np.mean(places[0] == places[1]))


def _together(outputs: dict[str, Comparison], tensors: dict[str, Tensor]) -> Comparison:
    """Of all outputs; each element counts the same."""
    sizes = {name: max(len(tensors[name].elements), 1) if name in tensors else 1 for name in outputs}
    total = sum(sizes.values())
    agrees = all(each.agrees for each in outputs.values())
    equal = sum(each.equal * sizes[name] for name, each in outputs.items()) / total if total else 1.0
    tops = [each.top for each in outputs.values() if each.top is not None]
    return Comparison(
        agrees,
        1.0 if agrees else equal,
        max((each.absolute for each in outputs.values() if each.absolute is not None), default=None),
        max((each.relative for each in outputs.values() if each.relative is not None), default=None),
        sum(tops) / len(tops) if tops else None,
    )
