"""Metrics that models make themselves: families and series, for as long as a worker holds them.

A family or a series is shared by all who make one of the same name and labels, whichever model they are of. It is
gone from the scrape when the last of them has let go of it, or died.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import inf, isfinite, isnan
from typing import Any, Literal, assert_never

from halimede.core.errors import AlreadyExistsError, HalimedeError, InvalidArgumentError, UnsupportedError
from halimede_worker.messages import wire

Kind = Literal["counter", "gauge", "histogram"]
Operation = Literal["increment", "set", "observe"]
Labels = Sequence[tuple[str, str]]
Handler = Callable[[tuple[Any, ...]], Any]

_NAME = re.compile(r"(?!__)[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


@dataclass(slots=True)
class _Series:
    """One counter, gauge or histogram.

    Attributes:
        labels: as they are scraped, without braces.
        bounds: upper bounds of a histogram's buckets but for the last.
        counts: observations in each of a histogram's buckets.
        value: of a counter or gauge; the sum of a histogram's observations.
        holders: how many objects of the workers stand for it.
    """

    labels: str
    bounds: tuple[float, ...] = ()
    counts: list[int] = field(default_factory=list)
    value: float = 0.0
    holders: int = 0


@dataclass(slots=True)
class _Family:
    """Series of one name.

    Attributes:
        help: its description, as it is scraped.
        series: labels → series.
        holders: how many objects of the workers stand for it.
    """

    name: str
    kind: Kind
    help: str
    series: dict[frozenset[tuple[str, str]], _Series] = field(default_factory=dict)
    holders: int = 0


class CustomMetrics:
    """The metrics of all models. Lives on the event loop."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._reserved: set[str] = set()

    def reserve(self, names: Collection[str]) -> None:
        """Keep models from making families of these names, which are the server's own."""
        self._reserved.update(names)

    def family(self, name: str, description: str, kind: Kind) -> _Family:
        """The family of that name, which is made if there is none.

        Raises:
            InvalidArgumentError: Prometheus allows no such name.
            AlreadyExistsError: there is one of another kind, or the server has one of its own.
        """
        family = self._families.get(name)
        if family is None:
            if not _NAME.fullmatch(name):
                raise InvalidArgumentError("Invalid metric name")
            if name in self._reserved:
                raise AlreadyExistsError(f"Family name '{name}' is that of a metric of the server")
            escaped = description.replace("\\", "\\\\").replace("\n", "\\n")
            family = self._families[name] = _Family(name, kind, escaped)
        if family.kind != kind:
            raise AlreadyExistsError("Family name already exists with different type")
        return family

    def discard(self, family: _Family) -> None:
        """Forget the family if nobody holds it."""
        if not family.holders and self._families.get(family.name) is family:
            del self._families[family.name]

    def lines(self) -> Iterator[str]:
        """What is scraped of them, in Prometheus' text format."""
        for family in self._families.values():
            yield f"# HELP {family.name} {family.help}"
            yield f"# TYPE {family.name} {family.kind}"
            for series in family.series.values():
                if family.kind == "histogram":
                    yield from _histogram_lines(family.name, series)
                else:
                    yield _sample(family.name, series.labels, _number(series.value))


class HeldMetrics:
    """What one worker holds of the metrics; `close` lets go of it all. Lives on the event loop.

    A worker names its families and series by the numbers that it got for them, one for each object that it has.
    Numbers that it let go of, or never had, are no error where nobody waits for an answer.
    """

    def __init__(self, metrics: CustomMetrics, instance: str, catch_up: Callable[[], None]) -> None:
        """What a worker holds, which is nothing yet.

        Args:
            metrics: those of the server.
            instance: the name of the worker's instance, for errors.
            catch_up: handles what the worker has sent on its control socket and was not read yet, so that a call
                comes after all changes that were made before it.
        """
        self._metrics = metrics
        self._instance = instance
        self._catch_up = catch_up
        self._made = 0
        self._families: dict[int, _Family] = {}
        self._series: dict[int, tuple[int, _Series]] = {}  # with the number of the family

    def call_handlers(self) -> Mapping[int, Handler]:
        """Message on a socket for calls → what handles it and gives the answer."""
        return {
            wire.NEW_FAMILY: lambda message: self._answer(self.new_family, message),
            wire.NEW_SERIES: lambda message: self._answer(self.new_series, message),
            wire.METRIC_VALUE: lambda message: self._answer(self.value, message),
        }

    def control_handlers(self) -> Mapping[int, Handler]:
        """Message on the control socket → what handles it."""
        return {
            wire.METRIC: lambda message: self.change(*message[1:]),
            wire.DROP_FAMILY: lambda message: self.drop_family(message[1]),
            wire.DROP_SERIES: lambda message: self.drop_series(message[1]),
        }

    def _answer(self, work: Callable[..., Any], message: tuple[Any, ...]) -> Any:
        self._catch_up()
        try:
            return work(*message[1:])
        except HalimedeError as error:
            text = f"Failed to process the request for model '{self._instance}', message: {error}"
            raise type(error)(text) from error

    def new_family(self, name: str, description: str, kind: Kind) -> int:
        """The number of a new object for the family of that name.

        Raises:
            InvalidArgumentError: Prometheus allows no such name.
            AlreadyExistsError: there is one of another kind, or the server has one of its own.
        """
        family = self._metrics.family(name, description, kind)
        family.holders += 1
        self._made += 1
        self._families[self._made] = family
        return self._made

    def new_series(self, number: int, labels: Labels, buckets: Sequence[float] | None) -> int:
        """The number of a new object for the series with these labels.

        Args:
            number: the family.
            labels: name and value of each, in any order; they are scraped in the order of their names.
            buckets: upper bounds of a histogram's buckets, None for another kind. A series that there is keeps its own.

        Raises:
            InvalidArgumentError: Prometheus allows no such labels or buckets, or there is no such family.
        """
        family = self._families.get(number)
        if family is None:
            raise InvalidArgumentError("the metric family is gone")
        _check_labels(labels, family.kind)
        bounds = _checked_bounds(buckets or ())
        key = frozenset(labels)
        series = family.series.get(key)
        if series is None:
            text = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels))
            series = family.series[key] = _Series(text, bounds, [0] * (len(bounds) + 1))
        series.holders += 1
        self._made += 1
        self._series[self._made] = (number, series)
        return self._made

    def change(self, number: int, operation: Operation, value: float) -> None:
        """Change a series. The worker has made sure that its kind allows it."""
        if number not in self._series:
            return
        _, series = self._series[number]
        match operation:
            case "increment":
                series.value += value
            case "set":
                series.value = value
            case "observe":
                # not a number belongs to no bucket but the last
                place = len(series.bounds) if isnan(value) else bisect_left(series.bounds, value)
                series.counts[place] += 1
                series.value += value
            case _:
                assert_never(operation)

    def value(self, number: int) -> float:
        """The value of a counter or gauge.

        Raises:
            UnsupportedError: it is a histogram.
            InvalidArgumentError: there is no such series.
        """
        if number not in self._series:
            raise InvalidArgumentError("the metric is gone")
        owner, series = self._series[number]
        if self._families[owner].kind == "histogram":
            raise UnsupportedError("TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value")
        return series.value

    def drop_series(self, number: int) -> None:
        """An object for a series is gone."""
        if number in self._series:
            owner, series = self._series.pop(number)
            series.holders -= 1
            if not series.holders:
                family = self._families[owner]
                family.series = {key: other for key, other in family.series.items() if other is not series}

    def drop_family(self, number: int) -> None:
        """An object for a family is gone, and with it those for series that were made from it."""
        if number in self._families:
            for made in [made for made, (owner, _) in self._series.items() if owner == number]:
                self.drop_series(made)
            family = self._families.pop(number)
            family.holders -= 1
            self._metrics.discard(family)

    def close(self) -> None:
        """Let go of everything: the worker is gone."""
        for number in list(self._families):
            self.drop_family(number)


def _check_labels(labels: Labels, kind: Kind) -> None:
    """Refuse labels that Prometheus does not allow.

    Raises:
        InvalidArgumentError: it allows no such name.
    """
    for name, _ in labels:
        if not _LABEL.fullmatch(name) or (name == "le" and kind == "histogram"):
            raise InvalidArgumentError("Invalid label name")


def _checked_bounds(buckets: Sequence[float]) -> tuple[float, ...]:
    """The bounds of buckets, but for infinity, which is a bucket's anyway.

    Raises:
        InvalidArgumentError: they do not rise.
    """
    # written so that not a number is refused, which is neither above nor below another
    if any(isnan(bound) for bound in buckets) or not all(low < high for low, high in pairwise(buckets)):
        raise InvalidArgumentError("Bucket Boundaries must be strictly sorted")
    return tuple(float(bound) for bound in buckets if bound != inf)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """The value as Prometheus writes it: whole numbers without a fraction."""
    if isnan(value):
        return "NaN"
    if not isfinite(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


def _sample(name: str, labels: str, value: str) -> str:
    return f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"


def _histogram_lines(name: str, series: _Series) -> Iterator[str]:
    cumulated = list(accumulate(series.counts))
    yield _sample(f"{name}_count", series.labels, str(cumulated[-1]))
    yield _sample(f"{name}_sum", series.labels, _number(series.value))
    separator = "," if series.labels else ""
    for bound, count in zip((*series.bounds, inf), cumulated, strict=True):
        yield _sample(f"{name}_bucket", f'{series.labels}{separator}le="{_number(bound)}"', str(count))
