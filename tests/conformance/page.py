"""The list of deliberate differences on the page about conformance."""

from tests.conformance import differences
from tests.conformance.differences import Difference

BEGIN = "<!-- deliberate differences -->\n"
END = "<!-- end of the deliberate differences -->"


def with_differences(page: str) -> str:
    """The page, with each difference that is meant and its reason."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page has no place for the deliberate differences")
    meant = [each for each in vars(differences).values() if isinstance(each, Difference)]
    return before + BEGIN + "".join(f"* {each.reason}\n" for each in meant) + END + after
