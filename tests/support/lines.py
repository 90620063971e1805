"""Files that another process writes while a test reads them."""

from pathlib import Path


def complete_lines(path: Path | str) -> str:
    """The text of a file up to the end of its last complete line.

    A reader may see the first part of a write before the rest, for example half of a port's number.
    """
    text = Path(path).read_text()
    return text[: text.rfind("\n") + 1]
