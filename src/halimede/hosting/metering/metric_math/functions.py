"""Functions of metric math.

A series goes in where one is wanted, or a list of them, of which each is treated alike. Functions that summarise, such
as ``SUM``, make a number of one series, and of a list the series of what its members have at the same time.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from halimede.hosting.metering.metric_math.values import (
    Context,
    MathError,
    TimeSeries,
    Value,
    count_of,
    kind_of,
)

Function = Callable[[Context, Sequence[Value]], Value]

KEYWORDS = frozenset({"LINEAR", "REPEAT", "AVG", "MIN", "MAX", "SUM", "ASC", "DESC"})
"""What arguments may be beside values."""

UNAVAILABLE = frozenset(
    {"ANOMALY_DETECTION_BAND", "DB_PERF_INSIGHTS", "INSIGHT_RULE_METRIC", "LAMBDA", "SEARCH", "SERVICE_QUOTA"}
)
"""Functions of CloudWatch that this version does not have."""


def _stddev(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


_SUMMARIES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "AVG": lambda values: math.fsum(values) / len(values),
    "DATAPOINT_COUNT": lambda values: float(len(values)),
    "MAX": max,
    "MIN": min,
    "STDDEV": _stddev,
    "SUM": math.fsum,
}

_PER_VALUE: Mapping[str, Callable[[float], float]] = {
    "ABS": abs,
    "CEIL": math.ceil,
    "FLOOR": math.floor,
    "LOG": math.log,
    "LOG10": math.log10,
}

_PER_TIME: Mapping[str, Callable[[datetime], int]] = {
    "MINUTE": lambda when: when.minute,
    "HOUR": lambda when: when.hour,
    "DAY": lambda when: when.isoweekday(),
    "DATE": lambda when: when.day,
    "MONTH": lambda when: when.month,
    "YEAR": lambda when: when.year,
    "EPOCH": lambda when: int(when.timestamp()),
}


def _difference(series: TimeSeries) -> TimeSeries:
    points = series.points
    return series.with_points({after: points[after] - points[before] for before, after in pairwise(points)})


def _time_difference(series: TimeSeries) -> TimeSeries:
    return series.with_points({after: float(after - before) for before, after in pairwise(series.points)})


def _rate(series: TimeSeries) -> TimeSeries:
    points = series.points
    return series.with_points(
        {after: (points[after] - points[before]) / (after - before) for before, after in pairwise(points)}
    )


def _running_sum(series: TimeSeries) -> TimeSeries:
    total, points = 0.0, {}
    for when, value in series.points.items():
        total += value
        points[when] = total
    return series.with_points(points)


_PER_SERIES: Mapping[str, Callable[[TimeSeries], TimeSeries]] = {
    "DIFF": _difference,
    "DIFF_TIME": _time_difference,
    "RATE": _rate,
    "RUNNING_SUM": _running_sum,
}


def call(name: str, context: Context, arguments: Sequence[Value]) -> Value:
    """What a function makes of its arguments.

    Raises:
        MathError: there is no such function, or it cannot be applied to them.
    """
    context.spend(sum(map(count_of, arguments)))
    if name in _SUMMARIES:
        return _summary(name, arguments)
    if name in _PER_VALUE:
        [value] = _check(name, arguments, 1)
        return _per_value(name, value)
    if name in _PER_TIME or name in _PER_SERIES:
        [value] = _check(name, arguments, 1)
        return _per_series(name, value)
    return _OTHERS[name](context, arguments)


def check_name(name: str) -> None:
    """Refuse a function that there is not.

    Raises:
        MathError: there is none of that name.
    """
    if name in UNAVAILABLE:
        raise MathError(f"{name} is not available in this version")
    if name not in NAMES:
        raise MathError(f"Unsupported function '{name}'; there are {', '.join(sorted(NAMES))}")


def _check(name: str, arguments: Sequence[Value], least: int, most: int | None = None) -> Sequence[Value]:
    most = least if most is None else most
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise MathError(f"{name} takes {wanted} arguments, got {len(arguments)}")
    return arguments


def _unsupported(name: str, arguments: Sequence[Value]) -> MathError:
    kinds = ", ".join(map(kind_of, arguments))
    return MathError(f"Unsupported operand type(s) for {name}: '[{kinds}]'")


def _series(name: str, arguments: Sequence[Value], index: int = 0) -> TimeSeries:
    value = arguments[index]
    if not isinstance(value, TimeSeries):
        raise _unsupported(name, arguments)
    return value


def _list(name: str, arguments: Sequence[Value]) -> list[TimeSeries]:
    value = arguments[0]
    if isinstance(value, TimeSeries):
        return [value]
    if not isinstance(value, list):
        raise _unsupported(name, arguments)
    return value


def _number(name: str, arguments: Sequence[Value], index: int = 0) -> float:
    value = arguments[index]
    if not isinstance(value, float):
        raise _unsupported(name, arguments)
    return value


def _summary(name: str, arguments: Sequence[Value]) -> Value:
    [value] = _check(name, arguments, 1)
    if isinstance(value, TimeSeries):
        return _summarise(name, list(value.points.values()))
    if not isinstance(value, list):
        raise _unsupported(name, arguments)
    together: dict[int, list[float]] = {}
    for series in value:
        for when, each in series.points.items():
            together.setdefault(when, []).append(each)
    points = {when: _summarise(name, together[when]) for when in sorted(together)}
    period = max((series.period for series in value), default=0)
    return TimeSeries({}, period).with_points(points)


def _summarise(name: str, values: Sequence[float]) -> float:
    """A summary of numbers; nan if they have none."""
    if not values:
        return 0.0 if name in ("SUM", "DATAPOINT_COUNT") else math.nan
    try:
        return float(_SUMMARIES[name](values))
    except OverflowError:
        return math.nan


def _per_value(name: str, value: Value) -> Value:
    function = _PER_VALUE[name]
    if isinstance(value, TimeSeries):
        return value.map(function)
    if isinstance(value, list):
        return [series.map(function) for series in value]
    if isinstance(value, float):
        try:
            return float(function(value))
        except (ValueError, OverflowError):
            raise MathError(f"{name} has no value for {value:g}") from None
    raise _unsupported(name, [value])


def _per_series(name: str, value: Value) -> Value:
    if isinstance(value, list):
        return [
            each for each in (_per_series(name, series) for series in value) if isinstance(each, TimeSeries)
        ]
    series = _series(name, [value])
    if name in _PER_SERIES:
        return _PER_SERIES[name](series)
    field = _PER_TIME[name]
    return series.with_points(
        {when: float(field(datetime.fromtimestamp(when, UTC))) for when in series.points}
    )


def _metrics(context: Context, arguments: Sequence[Value]) -> Value:
    """All metrics of the request, or those whose id has a text in it."""
    _check("METRICS", arguments, 0, 1)
    part = arguments[0] if arguments else ""
    if not isinstance(part, str):
        raise _unsupported("METRICS", arguments)
    found = [series for name, series in context.metrics.items() if part in name]
    context.spend(count_of(found))
    return found


def _fill(context: Context, arguments: Sequence[Value]) -> Value:
    value, filler = _check("FILL", arguments, 2)
    if isinstance(value, list):
        filled = [_fill(context, [series, filler]) for series in value]
        return [each for each in filled if isinstance(each, TimeSeries)]
    series = _series("FILL", arguments)
    if isinstance(filler, list) or (isinstance(filler, str) and filler not in ("LINEAR", "REPEAT")):
        raise _unsupported("FILL", arguments)
    times = context.times(series.period or context.period)
    context.spend(len(times))
    points = dict(series.points)
    known = list(points.items())
    ahead, before = 0, None
    for when in times:
        while ahead < len(known) and known[ahead][0] <= when:
            before = known[ahead]
            ahead += 1
        if when in points:
            continue
        if isinstance(filler, TimeSeries):
            if when in filler.points:
                points[when] = filler.points[when]
        elif isinstance(filler, float):
            points[when] = filler
        elif before is not None:
            after = known[ahead] if ahead < len(known) else None
            if filler == "REPEAT":
                points[when] = before[1]
            elif after is not None:
                share = (when - before[0]) / (after[0] - before[0])
                points[when] = before[1] + share * (after[1] - before[1])
    return series.with_points(dict(sorted(points.items())))


def _if(_: Context, arguments: Sequence[Value]) -> Value:
    condition, *branches = _check("IF", arguments, 2, 3)
    if any(isinstance(each, (list, str)) for each in arguments):
        raise _unsupported("IF", arguments)
    if isinstance(condition, float):
        if condition:
            return branches[0]
        if len(branches) == 1:
            raise MathError("IF whose condition is a number needs a third argument")
        return branches[1]
    points = {}
    for when, value in _series("IF", arguments).points.items():
        if not value and len(branches) == 1:
            continue
        branch = branches[0] if value else branches[1]
        if isinstance(branch, float):
            points[when] = branch
        elif isinstance(branch, TimeSeries) and when in branch.points:
            points[when] = branch.points[when]
    named = next((each for each in branches if isinstance(each, TimeSeries)), condition)
    assert isinstance(named, TimeSeries)
    return named.with_points(points)


def _first(_: Context, arguments: Sequence[Value]) -> Value:
    series = _list("FIRST", _check("FIRST", arguments, 1))
    return series[0] if series else TimeSeries({}, 0)


def _last(_: Context, arguments: Sequence[Value]) -> Value:
    series = _list("LAST", _check("LAST", arguments, 1))
    return series[-1] if series else TimeSeries({}, 0)


def _metric_count(_: Context, arguments: Sequence[Value]) -> Value:
    return float(len(_list("METRIC_COUNT", _check("METRIC_COUNT", arguments, 1))))


def _period(_: Context, arguments: Sequence[Value]) -> Value:
    return float(_series("PERIOD", _check("PERIOD", arguments, 1)).period)


def _remove_empty(_: Context, arguments: Sequence[Value]) -> Value:
    members = _list("REMOVE_EMPTY", _check("REMOVE_EMPTY", arguments, 1))
    return [series for series in members if series.points]


def _slice(_: Context, arguments: Sequence[Value]) -> Value:
    """The series from a position on, the first of which is 0; with a third argument, up to that position."""
    members = _list("SLICE", _check("SLICE", arguments, 2, 3))
    begin = int(_number("SLICE", arguments, 1))
    end = int(_number("SLICE", arguments, 2)) if len(arguments) > 2 else len(members)
    return members[max(begin, 0) : max(end, 0)]


def _sort(_: Context, arguments: Sequence[Value]) -> Value:
    """The series in the order of a summary of each; with a fourth argument, so many of them."""
    members = _list("SORT", _check("SORT", arguments, 3, 4))
    by, order = arguments[1], arguments[2]
    if by not in ("AVG", "MIN", "MAX", "SUM") or order not in ("ASC", "DESC"):
        raise MathError(
            "SORT takes AVG, MIN, MAX or SUM as its second argument, and ASC or DESC as its third"
        )
    filled = [series for series in members if series.points]
    filled.sort(key=lambda series: _summarise(str(by), list(series.points.values())), reverse=order == "DESC")
    ordered = filled + [series for series in members if not series.points]
    return ordered[: int(_number("SORT", arguments, 3))] if len(arguments) > 3 else ordered


def _time_series(context: Context, arguments: Sequence[Value]) -> Value:
    value = _number("TIME_SERIES", _check("TIME_SERIES", arguments, 1))
    times = context.times(context.period)
    context.spend(len(times))
    return TimeSeries({}, context.period).with_points(dict.fromkeys(times, value))


_OTHERS: Mapping[str, Function] = {
    "FILL": _fill,
    "FIRST": _first,
    "IF": _if,
    "LAST": _last,
    "METRICS": _metrics,
    "METRIC_COUNT": _metric_count,
    "PERIOD": _period,
    "REMOVE_EMPTY": _remove_empty,
    "SLICE": _slice,
    "SORT": _sort,
    "TIME_SERIES": _time_series,
}

NAMES = frozenset({*_SUMMARIES, *_PER_VALUE, *_PER_TIME, *_PER_SERIES, *_OTHERS})
"""The functions that there are."""
