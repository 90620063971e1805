"""Columns compared with a baseline: what violates its constraints, and how far distributions have moved."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from halimede.hosting.monitoring.constraints_file import (
    MAX_DOMAIN,
    Check,
    Constraint,
    Constraints,
    MonitoringConfig,
    Violation,
)
from halimede.hosting.monitoring.distances import (
    CHANCE,
    Distance,
    distance_of_numbers,
    distance_of_texts,
    is_by_chance_missing,
    is_by_chance_outside,
)
from halimede.hosting.monitoring.features import Feature, InferredType, Numbers

_OUTSIDE = 0.01
"""A smaller share of values outside of the baseline's range is no violation."""

_SHOWN = 3
"""So many unknown texts are named."""

_SHOWN_CHARACTERS = 40

_MATCHING = {
    InferredType.INTEGRAL: (InferredType.INTEGRAL,),
    InferredType.FRACTIONAL: (InferredType.FRACTIONAL, InferredType.INTEGRAL),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column then and now.

    Attributes:
        name: the column's.
        baseline: what it was; None if the baseline does not have it, or only its constraint.
        now: what it is; None if it is missing.
        distance: how far it has moved; None if that cannot be said.
        drift: the figure of it that the constraints judge.
        violations: what it violates.
    """

    name: str
    baseline: Feature | None
    now: Feature | None
    distance: Distance | None = None
    drift: float | None = None
    violations: list[Violation] = field(default_factory=list)

    @property
    def severity(self) -> tuple[int, float]:
        """Worse columns have greater ones."""
        return len(self.violations), 0.0 if self.distance is None else self.distance.largest


def compare(
    features: Iterable[Feature], baseline: Mapping[str, Feature] | None, constraints: Constraints | None
) -> list[Comparison]:
    """Columns beside those of a baseline, the worst first.

    Args:
        features: the columns now.
        baseline: those of `statistics.json`, if there is one.
        constraints: those of `constraints.json`; None for those that the baseline keeps.
    """
    now = {feature.name: feature for feature in features}
    if constraints is None:
        constraints = Constraints.suggested((baseline or {}).values())
    before, expected = baseline or {}, constraints.features
    names = dict.fromkeys([*expected, *before, *now])
    if not expected and not before:
        return [Comparison(name, None, feature) for name, feature in now.items()]
    widths = (
        f"Number of columns in current dataset: {len(now)}, Number of columns in baseline constraints: "
        f"{len(expected)}"
    )
    found = []
    for name in names:
        feature, then, constraint = now.get(name), before.get(name), expected.get(name)
        distance = _distance(then, feature, constraints.config)
        drift = None if distance is None else _drift(distance, constraints.config, is_text=_is_text(then))
        comparison = Comparison(name, then, feature, distance, drift)
        if constraints.config.evaluates:
            comparison.violations.extend(
                _violations(
                    comparison, constraint, constraints.config, widths, has_constraints=bool(expected)
                )
            )
        found.append(comparison)
    return sorted(found, key=lambda each: each.severity, reverse=True)


def _distance(then: Feature | None, now: Feature | None, config: MonitoringConfig) -> Distance | None:
    if then is None or now is None or not config.compares or not now.present:
        return None
    if InferredType.STRING not in (then.type, now.type):
        if then.numbers is None or now.numbers is None:
            return None
        return distance_of_numbers(then.numbers, now.numbers)
    if then.type is not InferredType.STRING or not then.categories or then.distinct > MAX_DOMAIN:
        return None
    uncounted = tuple(max(0, each.present - sum(each.categories.values())) for each in (then, now))
    return distance_of_texts(then.categories, now.categories, (uncounted[0], uncounted[1]))


def _is_text(feature: Feature | None) -> bool:
    return feature is not None and feature.type is InferredType.STRING


def _drift(distance: Distance, config: MonitoringConfig, *, is_text: bool) -> float:
    """The distance that is held against the threshold."""
    is_robust = not config.uses_chi_squared if is_text else config.is_robust
    return distance.robust if is_robust else distance.largest


def _violations(
    comparison: Comparison,
    constraint: Constraint | None,
    config: MonitoringConfig,
    widths: str,
    *,
    has_constraints: bool,
) -> Iterator[Violation]:
    name, now = comparison.name, comparison.now
    if now is None:
        if constraint is not None:
            text = f"There are missing columns in current dataset: {name} is not among them. {widths}"
            yield Violation(name, Check.MISSING_COLUMN, text)
        return
    if constraint is None:
        if has_constraints:
            text = f"There are extra columns in current dataset: {name} is not in the baseline. {widths}"
            yield Violation(name, Check.EXTRA_COLUMN, text)
        return
    for check, text in (
        (Check.DATA_TYPE, _type_problem(now, constraint, config)),
        (Check.COMPLETENESS, _completeness_problem(comparison.baseline, now, constraint)),
        (Check.CATEGORIES, _domain_problem(now, constraint, config)),
        (Check.DRIFT, " ".join(_drift_problems(comparison, constraint, config))),
    ):
        if text:
            yield Violation(name, check, text)


def _type_problem(now: Feature, constraint: Constraint, config: MonitoringConfig) -> str:
    matching = _MATCHING.get(constraint.type)
    if matching is None or not now.present:
        return ""
    share = sum(now.kinds.get(kind, 0) for kind in matching) / now.present
    if share >= config.type_share:
        return ""
    return (
        f"Data type match requirement is not met. Expected data type: {constraint.type}, Expected match: "
        f"{percent(config.type_share)}. Observed: Only {percent(share)} of data is {constraint.type}."
    )


def _completeness_problem(then: Feature | None, now: Feature, constraint: Constraint) -> str:
    if now.completeness >= constraint.completeness:
        return ""
    if constraint.completeness < 1.0:
        known = None if then is None else (then.missing, then.present)
        count = now.present + now.missing
        if is_by_chance_missing(now.missing, count, 1 - constraint.completeness, known):
            return ""
    return (
        f"Values are missing: {percent(now.completeness)} of data is there, Expected completeness: "
        f"{percent(constraint.completeness)}."
    )


def _domain_problem(now: Feature, constraint: Constraint, config: MonitoringConfig) -> str:
    if constraint.domain is None or not now.present:
        return ""
    unknown = {text: count for text, count in now.categories.items() if text not in constraint.domain}
    count = sum(unknown.values()) + now.present - sum(now.categories.values())
    share = 1 - count / now.present
    if share >= config.domain_share:
        return ""
    often = sorted(unknown, key=lambda text: -unknown[text])
    named = ", ".join(f"'{_short(text)}'" for text in often[:_SHOWN])
    more = f" and {len(often) - _SHOWN} more" if len(often) > _SHOWN else ""
    return (
        f"Only {percent(share)} of values are among those of the baseline, Expected match: "
        f"{percent(config.domain_share)}. Unknown are {named}{more}."
    )


def _drift_problems(
    comparison: Comparison, constraint: Constraint, config: MonitoringConfig
) -> Iterator[str]:
    then, now, distance = comparison.baseline, comparison.now, comparison.distance
    assert now is not None
    if distance is not None:
        yield from _distance_problems(distance, config, is_text=_is_text(then))
    if now.numbers is None:
        return
    if constraint.is_non_negative and now.numbers.least < 0:
        yield f"Values must not be negative, and the least is {now.numbers.least:.4g}."
    if then is not None and then.numbers is not None and config.compares:
        share = outside(then.numbers, now.numbers)
        count = round(share * now.numbers.count)
        sizes = round(now.numbers.count), round(then.numbers.count)
        if share > _OUTSIDE and not is_by_chance_outside(count, *sizes):
            yield (
                f"{percent(share)} of values are outside of the baseline's range, which is "
                f"{then.numbers.least:.4g} to {then.numbers.most:.4g}."
            )


def _distance_problems(distance: Distance, config: MonitoringConfig, *, is_text: bool) -> Iterator[str]:
    threshold = config.categorical_distance if is_text else config.numeric_distance
    if is_text and config.uses_chi_squared:
        if distance.p_value < CHANCE and distance.largest > threshold:
            yield (
                f"Baseline drift distance: {distance.largest:.4g} exceeds threshold: {threshold:g} (shares of "
                f"values, χ² test: {_chance(distance.p_value)})."
            )
    else:
        shown = _drift(distance, config, is_text=is_text)
        if shown > threshold:
            test = "shares of values" if is_text else "Kolmogorov-Smirnov"
            yield (
                f"Baseline drift distance: {shown:.4g} exceeds threshold: {threshold:g} ({test}, "
                f"{_chance(distance.p_value)})."
            )
    if distance.psi > max(config.psi, distance.psi_by_chance):
        yield f"Population stability index: {distance.psi:.4g} exceeds threshold: {config.psi:g}."


def outside(then: Numbers, now: Numbers) -> float:
    """Which share of numbers is outside of the range that others have."""
    is_outside = (now.points < then.least) | (now.points > then.most)
    return float(now.weights[is_outside].sum() / now.count)


def percent(share: float) -> str:
    """A share, such as 99.72%."""
    return f"{share * 100:.4g}%" if share < 0.9999 or share == 1 else ">99.99%"


def _chance(p_value: float) -> str:
    return "p < 0.0001" if p_value < CHANCE else f"p = {p_value:.2g}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
