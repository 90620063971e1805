"""`statistics.json` as SageMaker's Model Monitor writes it, and as it is read from there."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import orjson

from halimede.core.tensors import Array
from halimede.hosting.monitoring.features import Feature, InferredType, Numbers
from halimede.hosting.monitoring.sketch import document_of, points_of

_BUCKETS = 10
_MAX_LISTED = 100
"""So many values of texts are listed, the most frequent first."""


class BaselineError(Exception):
    """A file of a baseline cannot be used; the text says why."""


def write_statistics(features: Iterable[Feature]) -> bytes:
    """The file."""
    entries = list(features)
    rows = max((feature.present + feature.missing for feature in entries), default=0)
    document = {
        "version": 0.0,
        "dataset": {"item_count": rows},
        "features": [_entry(feature) for feature in entries],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _entry(feature: Feature) -> dict[str, Any]:
    common = {"num_present": feature.present, "num_missing": feature.missing}
    entry: dict[str, Any] = {"name": feature.name, "inferred_type": str(feature.type)}
    if feature.type is InferredType.STRING or feature.numbers is None:
        entry["string_statistics"] = {
            "common": common,
            "distinct_count": float(feature.distinct),
            "distribution": {"categorical": {"buckets": _categories(feature)}},
        }
        return entry
    numbers = feature.numbers
    entry["numerical_statistics"] = {
        "common": common,
        "mean": numbers.mean,
        "sum": numbers.total,
        "std_dev": numbers.deviation,
        "min": numbers.least,
        "max": numbers.most,
        "distribution": {
            "kll": {"buckets": _buckets(numbers), "sketch": document_of(numbers.points, numbers.weights)}
        },
    }
    return entry


def _categories(feature: Feature) -> list[dict[str, Any]]:
    ordered = sorted(feature.categories.items(), key=lambda each: (-each[1], each[0]))
    return [{"value": value, "count": count} for value, count in ordered[:_MAX_LISTED]]


def _buckets(numbers: Numbers) -> list[dict[str, float]]:
    edges = np.linspace(numbers.least, numbers.most, _BUCKETS + 1)
    if not np.isfinite(edges).all():
        return []
    inner = np.searchsorted(edges[1:-1], numbers.points, side="right")
    counts = np.bincount(inner, numbers.weights, _BUCKETS)
    return [
        {"lower_bound": low, "upper_bound": high, "count": count}
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    ]


def read_statistics(content: bytes, name: str) -> dict[str, Feature]:
    """The columns of a file, by name.

    Args:
        content: the file.
        name: what error texts call it.

    Raises:
        BaselineError: it is no such file.
    """
    try:
        document = orjson.loads(content)
        features = [_feature(entry) for entry in document["features"]]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise BaselineError(f"{name} is no statistics.json of Model Monitor: {reason(error)}") from None
    return {feature.name: feature for feature in features}


def reason(error: Exception) -> str:
    """What is wrong with a document, as its reader found it."""
    return f"it has no member {error}" if isinstance(error, KeyError) else str(error)


def _feature(entry: Mapping[str, Any]) -> Feature:
    name, kind = str(entry["name"]), InferredType(entry["inferred_type"])
    statistics = entry.get("numerical_statistics") or entry.get("string_statistics")
    if statistics is None:
        return Feature(name, kind, 0, 0)
    common = statistics["common"]
    present, missing = int(common["num_present"]), int(common["num_missing"])
    distribution = statistics.get("distribution") or {}
    if "numerical_statistics" in entry:
        return Feature(name, kind, present, missing, _numbers(statistics, distribution.get("kll") or {}))
    buckets = (distribution.get("categorical") or {}).get("buckets", ())
    categories = {str(each["value"]): int(each["count"]) for each in buckets}
    distinct = int(statistics.get("distinct_count") or len(categories))
    return Feature(
        name, kind, present, missing, None, categories, distinct, sum(categories.values()) >= present
    )


def _numbers(statistics: Mapping[str, Any], distribution: Mapping[str, Any]) -> Numbers | None:
    points: tuple[Array, Array] | None = None
    is_sketch = True
    if distribution.get("sketch"):
        points = points_of(distribution["sketch"])
    elif distribution.get("buckets"):
        is_sketch = False
        buckets = distribution["buckets"]
        points = (
            np.array([float(each["upper_bound"]) for each in buckets]),
            np.array([float(each["count"]) for each in buckets]),
        )
    if points is None or not points[1].sum() > 0:
        return None
    mean, total, deviation, least, most = (
        math.nan if (value := statistics.get(member)) is None else float(value)
        for member in ("mean", "sum", "std_dev", "min", "max")
    )
    return Numbers(mean, total, deviation, least, most, *points, is_sketch)
