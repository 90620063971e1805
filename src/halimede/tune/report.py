"""The search as one HTML page."""

from collections.abc import Sequence
from html import escape
from typing import Any

import orjson

from halimede.bench.plots import Axis, Series, html_table, number, page, plot
from halimede.tune.explain import Effect, axes, difference, front
from halimede.tune.goal import UNITS, Goal, Point
from halimede.tune.knobs import Knob
from halimede.tune.study import Outcome

HEADINGS = ("setting", "load", "requests/s", "p50 ms", "p99 ms", "memory MB", "batch", "within limits")


def rows(
    goal: Goal, knobs: Sequence[Knob], outcomes: Sequence[Outcome], most: int | None = None
) -> list[list[str]]:
    """A row for each setting, the best first; at most so many."""
    found = []
    for outcome in sorted(outcomes, key=lambda each: -each.score(goal))[:most]:
        name = difference(knobs, outcome.setting)
        if not outcome.points:
            found.append([name, *["-"] * 6, f"failed: {outcome.reason}"])
            continue
        point = goal.best(outcome.points)
        figures = (point.throughput, point.p50, point.p99, point.memory, point.batch)
        cells = [number(float(f"{figure:.4g}")) for figure in figures]
        found.append([name, point.load, *cells, "no" if goal.excess(point) else "yes"])
    return found


def as_json(
    goal: Goal, outcomes: Sequence[Outcome], best: Outcome, effects: Sequence[Effect], lines: str
) -> str:
    """What was found, as JSON: the setting as it is, the best one, what its changes are worth, and all others."""

    def described(outcome: Outcome) -> dict[str, Any]:
        points = [point.to_json() for point in outcome.points]
        best_point = goal.best(outcome.points).to_json() if outcome.points else None
        return {"setting": outcome.setting, "best": best_point, "points": points, "error": outcome.error}

    document = {
        "goal": goal.text,
        "before": described(outcomes[0]),
        "after": described(best),
        "effects": [
            {"knob": each.knob, "before": each.before, "after": each.after, "gain": each.gain}
            for each in effects
        ],
        "config": lines,
        "outcomes": [described(each) for each in outcomes],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def html(
    title: str,
    goal: Goal,
    knobs: Sequence[Knob],
    outcomes: Sequence[Outcome],
    best: Outcome,
    effects: Sequence[Effect],
    told: Sequence[str],
    lines: str,
) -> str:
    """The page: what was found, the Pareto front as a plot, all settings."""
    across, up = axes(goal)
    every = [(outcome, point) for outcome in outcomes for point in outcome.points]
    names = [f"{difference(knobs, outcome.setting)}; {point.load}" for outcome, point in every]
    first = outcomes[0]

    def spots(points: Sequence[tuple[Outcome, Point]]) -> list[tuple[float, float]]:
        return [(point.figure(across), point.figure(up)) for _, point in points]

    beaten = Series("all settings", spots(every), line=False, labels=names)
    shown = front(goal, outcomes)
    labels = [f"{difference(knobs, outcome.setting)}; {point.load}" for outcome, point in shown]
    picture = plot(
        "Pareto front",
        Axis(f"{across}, {UNITS[across]}"),
        Axis(f"{up}, ms", logarithmic=True),
        [
            beaten,
            Series("Pareto front", spots(shown), labels=labels),
            Series("as it is", spots([(first, point) for point in first.points]), line=False),
            Series("best", spots([(best, goal.best(best.points))]), line=False),
        ],
    )
    summary = "".join(f"<p>{escape(text)}</p>" for text in told)
    worth = "".join(f"<li>{escape(effect.told)}</li>" for effect in effects)
    sections = [
        ("Pareto front", picture + "<p>Rest the pointer on a point to see its setting.</p>"),
        ("Why", f"<ul>{worth}</ul>" if worth else "<p>Nothing was changed.</p>"),
        ("Settings to write", f"<pre>{escape(lines)}</pre>"),
        ("All settings", html_table(HEADINGS, rows(goal, knobs, outcomes))),
    ]
    return page(title, sections, summary)
