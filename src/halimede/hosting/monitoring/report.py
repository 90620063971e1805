"""The report of a monitoring job: a page that needs nothing else, the worst columns first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from halimede.hosting.monitoring.charts import chart, short
from halimede.hosting.monitoring.comparison import Comparison, percent
from halimede.hosting.monitoring.features import Feature, InferredType
from halimede.hosting.monitoring.sentences import sentences

_MOST_PICTURES = 128
"""So many columns have a picture; the rest are in the table."""


_FIGURES: Mapping[str, Callable[[Feature], str]] = {
    "values": lambda each: f"{each.present:,}",
    "missing": lambda each: percent(1 - each.completeness),
    "different": lambda each: f"{each.distinct:,}" if each.type is InferredType.STRING else "",
    "mean": lambda each: short(each.numbers.mean) if each.numbers else "",
    "deviation": lambda each: short(each.numbers.deviation) if each.numbers else "",
    "least": lambda each: short(each.numbers.least) if each.numbers else "",
    "most": lambda each: short(each.numbers.most) if each.numbers else "",
}
"""What the table of a column has, by its words."""


@dataclass(frozen=True, slots=True)
class Heading:
    """What a report says of itself.

    Attributes:
        endpoint: what was monitored.
        schedule: on which schedule.
        window: which time the data are of, in words.
        baseline: where the baseline came from; "" for none.
        records: how many records were read.
        notes: what else has to be said, a sentence each.
    """

    endpoint: str
    schedule: str
    window: str
    baseline: str
    records: int
    notes: Sequence[str] = ()


@cache
def _style() -> str:
    return files(__package__).joinpath("report.css").read_text()


def report(heading: Heading, comparisons: Sequence[Comparison]) -> str:
    """The page."""
    bad = [each for each in comparisons if each.violations]
    rest = [each for each in comparisons if not each.violations]
    count = sum(len(each.violations) for each in bad)
    title = f"Data quality of {heading.endpoint}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_style()}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(heading.schedule)} · {escape(heading.window)}</p>',
        _verdict(heading, comparisons, bad),
        '<div class="tiles">',
        _tile(f"{heading.records:,}", "record" if heading.records == 1 else "records"),
        _tile(f"{len(comparisons):,}", "column" if len(comparisons) == 1 else "columns"),
        _tile(f"{len(bad):,}", "of them changed"),
        _tile(f"{count:,}", "violation" if count == 1 else "violations"),
        "</div>",
    ]
    if bad:
        parts.append("<h2>What has changed</h2>")
        parts += [_card(each) for each in bad[:_MOST_PICTURES]]
    if heading.baseline and comparisons:
        parts += ["<h2>All columns</h2>", *_overview(comparisons)]
    if rest:
        words = "as in the baseline" if heading.baseline else "to look at"
        noun = "column" if len(rest) == 1 else "columns"
        state = "" if bad or len(rest) > 12 else " open"
        parts.append(f"<details{state}><summary>{len(rest)} {noun} {words}</summary>")
        parts += [_card(each) for each in rest[: max(0, _MOST_PICTURES - len(bad))]]
        parts.append("</details>")
    parts.append(f"<footer>{_footer(heading)}</footer></main></body></html>")
    return "\n".join(parts)


def _verdict(heading: Heading, comparisons: Sequence[Comparison], bad: Sequence[Comparison]) -> str:
    notes = "".join(f"<p>{escape(note)}</p>" for note in heading.notes)
    if not heading.baseline:
        return f'<div class="verdict">There is no baseline to compare with{notes}</div>'
    if not bad:
        return f'<div class="verdict">All columns are as in the baseline{notes}</div>'
    verb = "has" if len(bad) == 1 else "have"
    names = ", ".join(each.name for each in bad[:4]) + (", …" if len(bad) > 4 else "")
    said = f"{len(bad)} of {len(comparisons)} columns {verb} changed: {names}"
    return f'<div class="verdict bad">{escape(said)}{notes}</div>'


def _tile(value: str, words: str) -> str:
    return f'<div class="tile"><b>{value}</b><span>{words}</span></div>'


def _anchor(name: str) -> str:
    return escape(f"column-{name}".replace(" ", "_"), quote=True)


def _card(comparison: Comparison) -> str:
    then, now = comparison.baseline, comparison.now
    kind = now.type if now is not None else then.type if then is not None else InferredType.UNKNOWN
    said = "".join(
        f"<li>{escape(sentence)}<small>{escape(description)}</small></li>"
        for sentence, description in sentences(comparison)
    )
    said = f'<ul class="said">{said}</ul>' if said else ""
    bad = " bad" if comparison.violations else ""
    picture = chart(then, now)
    legend = '<div class="legend">'
    if then is not None:
        legend += '<span><i class="then"></i>baseline</span>'
    if now is not None:
        legend += '<span><i class="now"></i>now</span>'
    body = f"<figure>{picture}{legend}</div></figure>" if picture else "<span></span>"
    return (
        f'<section class="card{bad}" id="{_anchor(comparison.name)}">'
        f'<div class="head"><h3>{escape(comparison.name)}</h3><span class="kind">{kind}</span></div>'
        f"{said}"
        f'<div class="body">{body}<div class="scroll">{_figures(comparison)}</div></div></section>'
    )


def _figures(comparison: Comparison) -> str:
    """A table of what is known of a column then and now."""
    pair = comparison.baseline, comparison.now
    rows = [_row("", "baseline", "now", tag="th")]
    for words, figure in _FIGURES.items():
        found = ["–" if each is None else figure(each) for each in pair]
        if any(text not in ("", "–") for text in found):
            rows.append(_row(words, *found))
    return f"<table>{''.join(rows)}</table>"


def _row(*cells: str, tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _overview(comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield '<div class="card scroll"><table class="overview">'
    yield _row("Column", "Distance", "PSI", "p", "Missing", "", tag="th")
    for each in comparisons:
        distance, now = each.distance, each.now
        name = escape(each.name)
        link = f'<a href="#{_anchor(each.name)}">{name}</a>'
        cells = ["–", "–", "–"]
        if distance is not None:
            length = min(100.0, distance.largest * 100)
            cells = [
                f'<span class="meter"><i style="width:{length:.0f}%"></i></span>{distance.largest:.3f}',
                f"{distance.psi:.3f}",
                _p_value(distance.p_value),
            ]
        missing = "–" if now is None else percent(1 - now.completeness)
        badge = f'<span class="badge">{_state(each)}</span>'
        row = _row(link, *cells, missing, badge)
        yield row.replace("<tr>", '<tr class="bad">', 1) if each.violations else row
    yield "</table></div>"


def _state(comparison: Comparison) -> str:
    if not comparison.violations:
        return "as before"
    words = {
        "data_type_check": "type",
        "completeness_check": "missing values",
        "baseline_drift_check": "drift",
        "missing_column_check": "gone",
        "extra_column_check": "new",
        "categorical_values_check": "new values",
    }
    return ", ".join(words[each.check] for each in comparison.violations)


def _p_value(p_value: float) -> str:
    return "&lt; 0.0001" if p_value < 1e-4 else f"{p_value:.2g}"


def _footer(heading: Heading) -> str:
    baseline = f"<p>Baseline: {escape(heading.baseline)}</p>" if heading.baseline else ""
    return (
        f"{baseline}<p>The distance of two columns is the largest difference of their cumulative shares "
        "(Kolmogorov-Smirnov), or of the shares of one value for texts: 0 is alike, 1 has nothing in common. p says "
        "how often chance alone makes a difference as large (Kolmogorov-Smirnov or χ² test). PSI is the population "
        "stability index over the deciles of the baseline: below 0.1 is stable, above 0.2 has changed. The distance "
        "that is held against a threshold is less what chance may have made of it.</p>"
    )
