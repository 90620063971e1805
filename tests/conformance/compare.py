"""Whether two answers are alike, and the lines in which they are not."""

import re
from dataclasses import dataclass

from tests.conformance.answers import Answer, Value

ABSENT = "<absent>"
ERROR_TEXTS = re.compile(r"(^|[.\] ])(error|details|reason|error_message|error\.message)$")
"""Paths of error texts: there, our text may go on after the original's."""
GOES_ON = re.compile(r"\n?([:.] | \()")


@dataclass(frozen=True, slots=True)
class Line:
    """A value that differs."""

    path: str
    theirs: Value
    ours: Value


def differing(theirs: Answer, ours: Answer) -> list[Line]:
    """The values in which the answers differ, in the order of tritonserver's answer, then of ours."""
    lines = [Line(path, theirs.get(path, ABSENT), ours.get(path, ABSENT)) for path in {**theirs, **ours}]
    return [line for line in lines if not alike(line)]


def alike(line: Line) -> bool:
    """Whether both values are the same: of the same type, digit for digit, or an error text that goes on."""
    if type(line.theirs) is type(line.ours) and repr(line.theirs) == repr(line.ours):
        return True
    return bool(
        ERROR_TEXTS.search(line.path)
        and isinstance(line.theirs, str)
        and isinstance(line.ours, str)
        and line.theirs != ABSENT
        and goes_on(line.theirs, line.ours)
    )


def goes_on(theirs: str, ours: str) -> bool:
    """Whether ours is the original text, and help after it: after `: `, `. ` or ` (`, or a stop at its end.

    An error of a load ends with `;` and a line feed, which then come after the help.
    """
    for end in (";\n", ";", ""):
        if theirs.endswith(end) and ours.endswith(end):
            begin = theirs.removesuffix(end).rstrip("\n")
            rest = ours.removesuffix(end)
            break
    if not rest.startswith(begin):
        return False
    rest = rest[len(begin) :]
    stopped = begin.endswith((". ", ": ")) or (begin.endswith((".", ":")) and rest.startswith(" "))
    return not rest or stopped or bool(GOES_ON.match(rest))
