"""The pages for users, as text: the README and those of `docs/`."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))


def name(page: Path) -> str:
    """A page's path in the repository."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)


def links(page: Path) -> list[str]:
    """Where the links of the page's prose lead, as written."""
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose(page)))


def anchors(page: Path) -> set[str]:
    """The names of the page's headings in links."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next heading; "" if there is no such heading."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", prose(page), re.M | re.S)
    return found[1] if found else ""
