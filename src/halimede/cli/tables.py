"""Tables in plain characters, as the server prints them at start."""

from collections.abc import Sequence

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under their headings, framed; cells of several lines have as many, and none is broken elsewhere."""
    cells = [[_lines(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(line) for row in cells for line in row[column]) for column in range(len(headings))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    drawn = [rule]
    for number, row in enumerate(cells):
        for height in range(max(map(len, row))):
            texts = (lines[height] if height < len(lines) else "" for lines in row)
            padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
            drawn.append("| " + " | ".join(padded) + " |")
        if number == 0:
            drawn.append(rule)
    drawn.append(rule)
    return "\n".join(drawn)


def readable(text: str) -> str:
    """The text with its control characters written out, so that a terminal only shows it."""
    return text.translate(_CONTROL)


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: names of files may be any bytes."""
    return text.encode(errors="backslashreplace").decode()


def _lines(cell: str) -> list[str]:
    return [readable(line).rstrip() for line in cell.strip().split("\n")]
