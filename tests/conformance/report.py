"""What the run prints."""

import textwrap
from collections import Counter
from collections.abc import Sequence

from tests.conformance.answers import Value
from tests.conformance.compare import ABSENT
from tests.conformance.differences import EVERYWHERE, Difference
from tests.conformance.run import Outcome, Verdict

WIDTH = 110
LINES = 12
"""Values that are printed of one case."""
TEXT = 1000
"""Characters that are printed of one value."""


def told(outcome: Outcome) -> str:
    """A case that is not as it should be: its name, and both answers value by value."""
    title = f"{outcome.subject}: {outcome.case.name}"
    if outcome.verdict is Verdict.VANISHED:
        return f"{title}\n  no longer differs: remove `differs` from the case"
    lines = [title]
    both = [line for line in outcome.lines if ABSENT not in (line.theirs, line.ours)]
    for line in both[:LINES]:
        lines += [f"  {line.path}", *wrapped("-", line.theirs), *wrapped("+", line.ours)]
    if len(both) > LINES:
        lines.append(f"  … and {len(both) - LINES} values more")
    only_theirs = [f"{line.path}: {shown(line.theirs)}" for line in outcome.lines if line.ours == ABSENT]
    only_ours = [f"{line.path}: {shown(line.ours)}" for line in outcome.lines if line.theirs == ABSENT]
    lines += wrapped("-", f"only here: {', '.join(only_theirs)}") if only_theirs else []
    lines += wrapped("+", f"only here: {', '.join(only_ours)}") if only_ours else []
    if outcome.verdict is Verdict.DELIBERATE:
        lines += [f"  meant: {one.reason}" for one in outcome.meant]
    return "\n".join(lines)


def wrapped(sign: str, value: Value) -> list[str]:
    """A value in lines that fit a terminal."""
    pieces = textwrap.wrap(shown(value)[:TEXT], WIDTH - 4, drop_whitespace=False) or [""]
    return [f"  {sign} {pieces[0]}", *(f"    {piece}" for piece in pieces[1:])]


def shown(value: Value) -> str:
    """A value in one line."""
    return value.replace("\n", "⏎") if isinstance(value, str) else repr(value)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many cases there were of each kind."""
    count = Counter(outcome.verdict for outcome in outcomes)
    text = f"{len(outcomes)} cases: {count[Verdict.ALIKE]} alike, {count[Verdict.DELIBERATE]} deliberately different, "
    text += f"{count[Verdict.DIFFERENT]} different"
    gone = count[Verdict.VANISHED]
    return text + (f", {gone} no longer different" if gone else "")


def vanished(outcomes: Sequence[Outcome]) -> list[Difference]:
    """The differences that hold for all cases and that none of these shows."""
    shown_by_some = {one for outcome in outcomes for one in outcome.meant}
    return [one for one in EVERYWHERE if one not in shown_by_some]


def failed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that fail the run."""
    return [one for one in outcomes if one.verdict in (Verdict.DIFFERENT, Verdict.VANISHED)]
