"""The metrics in OpenMetrics' text format, for scrapers that ask for it: it has room for trace ids.

Names stay as they are in Prometheus' text format, so that dashboards find the same ones. OpenMetrics wants names of
counters to end with `_total`; those that do not are of unknown type to it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from halimede.engine.histogram import Exemplar

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_MEDIA_TYPE: Final = "application/openmetrics-text"
_TOTAL: Final = "_total"
_BOUND: Final = re.compile(r'(?<=[{,])(le|quantile)="([^"\\]+)"\}$')
_LONGEST_WHOLE: Final = 6
"""Digits before the point that need no exponent."""

_NO_WEIGHT: Final = re.compile(r"q=0(\.0*)?")


def is_wanted(accept: str) -> bool:
    """Whether a header `Accept` asks for OpenMetrics: any that names it does, as Prometheus' own libraries have it."""
    for offer in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in offer.split(";"))
        if media_type == _MEDIA_TYPE:
            return not any(_NO_WEIGHT.fullmatch(parameter) for parameter in parameters)
    return False


def openmetrics(lines: Iterable[str], exemplars: Mapping[str, Exemplar]) -> Iterator[str]:
    """The lines of OpenMetrics that say the same as those of Prometheus' text format.

    Args:
        lines: those, each family's HELP first, then its TYPE and its samples.
        exemplars: name and labels of a bucket, as in its line → an observation of it.
    """
    help_text = ""
    for line in lines:
        if line.startswith("# HELP "):
            help_text = line.split(" ", 3)[3]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if kind == "counter" and name.endswith(_TOTAL):
                name = name.removesuffix(_TOTAL)
            elif kind == "counter":
                kind = "unknown"
            yield f"# TYPE {name} {kind}"
            yield f"# HELP {name} {_escaped(help_text)}"
        else:
            yield _sample(line, exemplars)
    yield "# EOF"


def _sample(line: str, exemplars: Mapping[str, Exemplar]) -> str:
    series, _, value = line.rpartition(" ")
    exemplar = exemplars.get(series)
    if series.endswith("}"):
        series = _BOUND.sub(lambda found: f'{found[1]}="{_bound(found[2])}"}}', series)
    value = "NaN" if value == "Nan" else value
    if exemplar is None:
        return f"{series} {value}"
    trace_id, span_id = exemplar.context.trace_id, exemplar.context.span_id
    return (
        f'{series} {value} # {{trace_id="{trace_id:032x}",span_id="{span_id:016x}"}} '
        f"{exemplar.value} {exemplar.time:.3f}"
    )


def _bound(text: str) -> str:
    """A bound or quantile as OpenMetrics writes it: with a fraction, or from a million on with an exponent."""
    if text.endswith("Inf"):
        return text
    written = repr(float(text))
    point = written.find(".")
    if point <= _LONGEST_WHOLE or written.startswith("-"):
        return written
    digits = f"{written[0]}.{written[1:point]}{written[point + 1 :]}".rstrip("0").rstrip(".")
    return f"{digits}e+{point - 1:02d}"


def _escaped(help_text: str) -> str:
    return help_text.replace('"', '\\"')
