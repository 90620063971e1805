"""What was found: the Pareto front, and what each setting of the best one is worth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from halimede.bench.plots import number
from halimede.tune.goal import Goal, Point
from halimede.tune.knobs import Knob, Setting, Value
from halimede.tune.study import Outcome, Study

WORTH = 0.02
"""A change that brings less than this share is left out."""

_REASONS = {
    "instances": "instances run batches side by side",
    "batching": "requests that arrive together share an execution",
    "delay": "batches wait for further requests",
    "max-batch": "how many rows an execution takes",
    "threads": "threads of one execution",
    "isolation": "where instances run: in the server's process, or each in one of its own",
    "provider": "what runs the network",
    "front-ends": "processes that read and write requests",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """What one changed setting is worth.

    Attributes:
        knob: its name.
        before, after: its values.
        gain: by which share the figure is better than with the value before: 0.2 for 20 %. None if that
            server cannot be measured, or exceeds a limit.
    """

    knob: str
    before: Value
    after: Value
    gain: float | None

    @property
    def told(self) -> str:
        """A sentence."""
        reason = _REASONS[self.knob.partition(":")[0]]
        if self.gain is None:
            worth = "without it, the goal's limits are exceeded"
        else:
            worth = f"{number(round(1 + self.gain, 2))} times as good as without it"
        return f"{self.knob}: {self.before} → {self.after} ({reason}): {worth}"


def refine(
    study: Study, knobs: Sequence[Knob], goal: Goal, evaluate: Callable[[Setting], Outcome]
) -> tuple[Outcome, list[Effect]]:
    """The best outcome without changes that are not worth it, and what the remaining ones are worth.

    Each change of the best setting is taken back alone and measured.
    """
    best = study.best()
    setting = dict(best.setting)
    effects = []
    for knob in knobs:
        if setting[knob.name] == knob.now:
            continue
        without = evaluate({**setting, knob.name: knob.now})
        if without.score(goal) == best.score(goal):  # it has no effect beside the others
            setting[knob.name] = knob.now
            continue
        gain = _gain(goal, best, without)
        if gain is not None and gain < WORTH:
            setting[knob.name] = knob.now
            best = without if without.score(goal) >= best.score(goal) else best
            continue
        effects.append(Effect(knob.name, knob.now, setting[knob.name], gain))
    final = evaluate(setting)
    if final.score(goal) < _least_worth(goal, study.best()):
        return study.best(), [
            effect for effect in effects if study.best().setting[effect.knob] == effect.after
        ]
    return final, effects


def _least_worth(goal: Goal, best: Outcome) -> float:
    score = best.score(goal)
    return score - 2 * WORTH * abs(score)


def _gain(goal: Goal, best: Outcome, without: Outcome) -> float | None:
    if not without.points or goal.excess(goal.best(without.points)):
        return None
    ours, theirs = (goal.best(each.points).figure(goal.figure) for each in (best, without))
    return ours / theirs - 1 if goal.most else theirs / ours - 1


def axes(goal: Goal) -> tuple[str, str]:
    """Which figures the front is about: throughput and a latency, or memory and a latency."""
    latency = next((limit.figure for limit in goal.limits if limit.figure.startswith(("p", "mean"))), "p99")
    if goal.figure not in ("throughput", "memory"):
        latency = goal.figure
    return ("memory" if goal.rate else "throughput"), latency


def front(goal: Goal, outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Point]]:
    """Points that no other one beats in both figures, ascending in the first."""
    across, up = axes(goal)
    sign = 1 if across == "throughput" else -1
    every = [(outcome, point) for outcome in outcomes for point in outcome.points if not point.failures]
    every.sort(key=lambda pair: (-sign * pair[1].figure(across), pair[1].figure(up)))
    found: list[tuple[Outcome, Point]] = []
    for pair in every:
        if not found or pair[1].figure(up) < found[-1][1].figure(up):
            found.append(pair)
    return sorted(found, key=lambda pair: pair[1].figure(across))


def difference(knobs: Sequence[Knob], setting: Setting) -> str:
    """The values that differ from those of now, in a line."""
    changed = [f"{knob.name}={setting[knob.name]}" for knob in knobs if setting[knob.name] != knob.now]
    return ", ".join(changed) or "as it is"


def verdict(goal: Goal, first: Outcome, best: Outcome) -> list[str]:
    """How the best setting compares with the present one, in sentences."""
    before, after = goal.best(first.points), goal.best(best.points)
    told = [f"As it is: {goal.told(before)} ({_circumstances(before)})."]
    if goal.excess(before):
        told[0] += " The goal's limits are exceeded."
    if best.setting == first.setting:
        told.append("Nothing better was found.")
        return told
    told.append(f"Best: {goal.told(after)} ({_circumstances(after)}).")
    ours, theirs = after.figure(goal.figure), before.figure(goal.figure)
    if goal.excess(after):
        told[-1] += " No setting was found that keeps the goal's limits."
    elif not goal.excess(before):
        ratio = ours / theirs if goal.most else theirs / ours
        told.append(f"That is {number(round(ratio, 2))} times as good.")
    if after.batch > 1.05 * max(before.batch, 1):
        rows = number(round(after.batch, 1)), number(round(before.batch, 1))
        told.append(f"Batches have {rows[0]} rows on average, and had {rows[1]}.")
    return told


def _circumstances(point: Point) -> str:
    return (
        f"{point.load}: {number(round(point.throughput, 1))} requests/s, p99 {number(round(point.p99, 2))} ms, "
        f"queue {number(round(point.queue, 2))} ms, compute {number(round(point.compute, 2))} ms, "
        f"{number(round(point.memory))} MB"
    )
