"""The support table of the README: what `test_matrix` has run of each kind of model, one line a row."""

from tests.frameworks.matrix.rows import ROWS, Row

BEGIN, END = "<!-- support table -->", "<!-- end of the support table -->"

_COLUMNS = ("load", "completed", "JSON", "binary", "batched", "in an ensemble", "bad file", "unload")


def support_table() -> str:
    """The table, as Markdown."""
    head = ["Model", "File", "Runs in", *_COLUMNS]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(_cells(row))} |" for row in ROWS]
    return "\n".join(lines)


def with_table(page: str) -> str:
    """The page with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{support_table()}\n{END}{after}"


def _cells(row: Row) -> list[str]:
    place = "worker processes" if row.isolated else "the server"
    tests = ["not run yet"] * len(_COLUMNS) if row.gpu else ["✓"] * len(_COLUMNS)
    if row.ports and not row.gpu:
        tests[1] = "lists its tensors"
    return [f"[{row.title}](docs/{row.page})", f"`{row.file}`", place, *tests]
