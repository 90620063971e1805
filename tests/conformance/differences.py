"""The differences that are meant, each with its reason."""

import re
from dataclasses import dataclass

from tests.conformance.answers import Value
from tests.conformance.compare import Line

ANYTHING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that is meant.

    Attributes:
        reason: why it is meant, in one sentence.
        paths: a pattern of the paths of the values that may differ.
        theirs, ours: the values that are meant; any, if none is given.
        subjects: a pattern of the modules whose cases may differ so.
    """

    reason: str
    paths: str = ""
    theirs: Value | object = ANYTHING
    ours: Value | object = ANYTHING
    subjects: str = ""

    def explains(self, subject: str, line: Line) -> bool:
        """Whether it is meant that the values of a case of that module differ so."""
        return bool(
            re.search(self.paths, line.path)
            and re.search(self.subjects, subject)
            and self.theirs in (ANYTHING, line.theirs)
            and self.ours in (ANYTHING, line.ours)
        )


CLIENT_MISTAKE = Difference(
    "A mistake of the client is answered by 400, not by 500, so that nobody looks for it in the server.",
    paths=r"(^|: )status$",
    theirs=500,
    ours=400,
    subjects="^http_",
)
EVERYWHERE = (CLIENT_MISTAKE,)
"""Those that hold for all cases; the others are named by the cases that show them."""
