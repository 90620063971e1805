"""A small way to draw boxes, arrows and texts as SVG that can be read on light and dark pages."""

from collections.abc import Sequence
from html import escape

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2937 }
.small { font-size: 11px; fill: #4b5563 }
.title { font-weight: 600 }
.paper { fill: #ffffff }
.line { stroke: #64748b; stroke-width: 1.5; fill: none }
.head { fill: #64748b }
.group { fill: none; stroke: #94a3b8; stroke-dasharray: 4 3 }
.plain { fill: #f1f5f9; stroke: #64748b }
.blue { fill: #dbeafe; stroke: #2563eb }
.green { fill: #d1fae5; stroke: #059669 }
.orange { fill: #ffedd5; stroke: #ea580c }
.red { fill: #fee2e2; stroke: #dc2626 }
@media (prefers-color-scheme: dark) {
text { fill: #e5e7eb }
.small { fill: #cbd5e1 }
.paper { fill: #1b1f2a }
.line { stroke: #94a3b8 }
.head { fill: #94a3b8 }
.plain { fill: #2a3040; stroke: #94a3b8 }
.blue { fill: #1e3a6e; stroke: #60a5fa }
.green { fill: #14503d; stroke: #34d399 }
.orange { fill: #5c3415; stroke: #fb923c }
.red { fill: #5c1f1f; stroke: #f87171 }
}
"""
_LINE = 16
_ROLE = 'role="img" aria-labelledby="title description"'


class Drawing:
    """A picture that grows by what is drawn, in pixels from the upper left corner."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        """Start a picture; screen readers read `title` and `description`."""
        self._size = f"{width} {height}"
        self._title, self._description = title, description
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, lines: Sequence[str] = (), kind: str = "plain"
    ) -> None:
        """A rectangle with lines of text in its middle; the first one is bold if there are several."""
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>')
        top = y + height / 2 - (len(lines) - 1) * _LINE / 2 + 4.5
        for number, line in enumerate(lines):
            style = "" if len(lines) == 1 else "title" if number == 0 else "small"
            self.text(x + width / 2, top + number * _LINE, line, style=style, anchor="middle")

    def group(self, x: float, y: float, width: float, height: float, label: str) -> None:
        """A dashed frame around things that belong together, with its name above."""
        self._parts.append(f'<rect class="group" x="{x}" y="{y}" width="{width}" height="{height}" rx="7"/>')
        self.text(x + 8, y - 6, label, style="small")

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """One line of text; `x` is its start, middle or end."""
        self._parts.append(
            f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line through the points with a head at the last one."""
        places = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f'<polyline class="line" points="{places}" marker-end="url(#head)"/>')

    def line(self, *points: tuple[float, float]) -> None:
        """The same without a head."""
        self._parts.append(f'<polyline class="line" points="{" ".join(f"{x},{y}" for x, y in points)}"/>')

    def svg(self) -> str:
        """The picture."""
        head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._size}" {_ROLE}>',
                f'<title id="title">{escape(self._title)}</title>',
                f'<desc id="description">{escape(self._description)}</desc>',
                f"<style>{_STYLE}</style>",
                f'<defs>{head}<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
                '<rect class="paper" width="100%" height="100%" rx="8"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )
