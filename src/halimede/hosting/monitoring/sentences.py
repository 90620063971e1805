"""What has become of a column, in a sentence that anybody understands."""

from collections.abc import Iterator

import numpy as np

from halimede.hosting.monitoring.charts import short
from halimede.hosting.monitoring.comparison import Comparison, outside, percent
from halimede.hosting.monitoring.constraints_file import Check
from halimede.hosting.monitoring.features import Feature, Numbers

_SHIFT, _SPREAD = 0.2, 1.25
"""Smaller shifts of the mean, in standard deviations, and smaller ratios of those, are not worth a word."""

_BEYOND = 0.01
_MOVES = 3
_LEAST_MOVE = 0.02
_SHOWN_CHARACTERS = 30


def sentences(comparison: Comparison) -> list[tuple[str, str]]:
    """For each violation a sentence, and what `constraint_violations.json` says."""
    return [(_sentence(comparison, each.check), each.description) for each in comparison.violations]


def _sentence(comparison: Comparison, check: Check) -> str:
    then, now = comparison.baseline, comparison.now
    if check is Check.MISSING_COLUMN or now is None:
        return "The column is gone."
    if check is Check.EXTRA_COLUMN:
        return "The column is new."
    if check is Check.DATA_TYPE:
        return f"Values are not of the type that they were: {now.type}."
    if check is Check.CATEGORIES:
        return "There are values that the baseline does not have."
    if check is Check.COMPLETENESS:
        before = "" if then is None else f", and {percent(1 - then.completeness)} before"
        return f"{percent(1 - now.completeness)} of the values are missing{before}."
    return " ".join(_moves(then, now)) or _medians(then, now)


def _medians(then: Feature | None, now: Feature) -> str:
    if then is not None and then.numbers is not None and now.numbers is not None:
        before, after = (short(_median(numbers)) for numbers in (then.numbers, now.numbers))
        if before != after:
            return f"Half of the values were below {before}, and are below {after} now."
    return "The values are distributed in another way."


def _median(numbers: Numbers) -> float:
    ranks = np.cumsum(numbers.weights)
    return float(numbers.points[np.searchsorted(ranks, ranks[-1] / 2)])


def _moves(then: Feature | None, now: Feature) -> Iterator[str]:
    if then is None:
        return
    if then.numbers is not None and now.numbers is not None:
        yield from _moves_of_numbers(then.numbers, now.numbers)
    elif then.categories and now.present and then.present:
        moved = {
            text: now.categories.get(text, 0) / now.present - then.categories.get(text, 0) / then.present
            for text in {*then.categories, *now.categories}
        }
        largest = sorted(moved, key=lambda text: (-abs(moved[text]), text))[:_MOVES]
        said = [
            f"\u201c{text[:_SHOWN_CHARACTERS]}\u201d {'rose' if moved[text] > 0 else 'fell'} from "
            f"{then.categories.get(text, 0) / then.present * 100:.1f} % to "
            f"{now.categories.get(text, 0) / now.present * 100:.1f} %"
            for text in largest
            if abs(moved[text]) >= _LEAST_MOVE
        ]
        if said:
            yield f"{', '.join(said)}."


def _moves_of_numbers(then: Numbers, now: Numbers) -> Iterator[str]:
    spread = then.deviation
    if spread > 0:
        shift = (now.mean - then.mean) / spread
        if abs(shift) >= _SHIFT:
            yield (
                f"The mean {'rose' if shift > 0 else 'fell'} from {short(then.mean)} to {short(now.mean)}, which "
                f"is {abs(shift):.1f} standard deviations."
            )
        ratio = now.deviation / spread
        if ratio >= _SPREAD:
            yield f"Values spread {ratio:.1f} times as wide as before."
        elif ratio <= 1 / _SPREAD:
            yield f"Values spread {ratio:.0%} as wide as before."
    share = outside(then, now)
    if share > _BEYOND:
        yield f"{percent(share)} of the values are beyond what the baseline had."
