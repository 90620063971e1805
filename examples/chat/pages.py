"""The project's pages as conversations: somebody names a heading, and gets what stands below it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

Turn = tuple[str, str]
"""What the user says, and what the assistant answers."""


def read_turns(directory: Path = ROOT / "docs") -> list[Turn]:
    """The first paragraph below each heading of the Markdown files in a directory, without code and tables."""
    turns = []
    for page in sorted(directory.glob("*.md")):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
            heading, _, rest = section.partition("\n")
            paragraphs = [" ".join(each.split()) for each in rest.split("\n\n")]
            answer = next((each for each in paragraphs if each and each[0] not in "|<!*-["), "")
            if answer:
                turns.append((_plain(heading), _plain(answer)))
    return turns


def _plain(text: str) -> str:
    """Without links and marks."""
    return re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", text).replace("`", "").replace("*", "").strip()
