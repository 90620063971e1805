"""The report, whatever the columns are."""

import re
from html.parser import HTMLParser

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.monitoring.comparison import compare
from halimede.hosting.monitoring.constraints_file import Constraints, read_constraints, write_constraints
from halimede.hosting.monitoring.features import Column, Feature
from halimede.hosting.monitoring.report import Heading, report
from halimede.hosting.monitoring.statistics_file import read_statistics, write_statistics
from tests.hosting.monitoring.columns import numbers, random, texts

_HEADING = Heading("e", "s", "an hour", "s3://b/statistics.json", 10)


class _Tags(HTMLParser):
    """Which elements there are, and whether all of them end."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(then: list[Feature], now: list[Feature]) -> str:
    """The report of columns whose baseline comes from files."""
    baseline = read_statistics(write_statistics(then), "statistics.json")
    constraints = read_constraints(write_constraints(Constraints.suggested(then)), "constraints.json")
    text = report(_HEADING, compare(now, baseline, constraints))
    tags = _Tags()
    tags.feed(text)
    assert not tags.open
    assert "script" not in tags.seen
    assert not re.search(r'(src|href)="(?!#)', text)  # it needs nothing else
    assert not re.search(r'[xy\dh]="[^"]*(nan|inf)', text)
    return text


_VALUES = st.lists(st.floats(width=64, allow_nan=True), min_size=0, max_size=30)
_TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=20)), max_size=30)


@settings(deadline=None)
@given(_VALUES, _VALUES)
def test_any_numbers_make_a_page(then: list[float], now: list[float]) -> None:
    page([numbers(np.array(then, float))], [numbers(np.array(now, float))])


@settings(deadline=None)
@given(_TEXTS, _TEXTS)
def test_any_texts_make_a_page(then: list[str | None], now: list[str | None]) -> None:
    page([texts(then)], [texts(now)])


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), _TEXTS)
def test_columns_that_change_their_type_make_a_page(then: list[int], now: list[str | None]) -> None:
    page([numbers(np.array(then, np.int64))], [texts(now)])
    page([texts(now)], [numbers(np.array(then, np.int64))])


def test_what_clients_send_is_text_and_nothing_else() -> None:
    hostile = '</title><script>alert("x")</script>'
    text = page([texts(["a", hostile], hostile)], [texts([hostile, f"{hostile}2"] * 50, hostile)])
    assert "&lt;script&gt;" in text


def test_what_has_changed_is_said_in_a_sentence() -> None:
    then = [
        numbers(random(1).normal(10, 2, 1_000), "moved"),
        numbers(random(2).normal(0, 1, 1_000), "wider"),
        texts(["a"] * 70 + ["b"] * 30, "shares"),
        texts(["a"] * 100, "holes"),
        numbers(np.arange(9.0), "gone"),
        numbers(random(3).normal(0, 1, 1_000), "same"),
    ]
    now = [
        numbers(random(4).normal(14, 2, 1_000), "moved"),
        numbers(random(5).normal(0, 3, 1_000), "wider"),
        texts(["a"] * 20 + ["b"] * 80, "shares"),
        texts(["a"] * 75 + [None] * 25, "holes"),
        numbers(random(6).normal(0, 1, 1_000), "same"),
        Column().feature("new"),
    ]
    text = page(then, now)
    assert "6 of 7 columns have changed" in text
    for sentence in (
        "The mean rose from ",
        " times as wide as before.",
        "“a” fell from 70.0 % to 20.0 %",
        "“b” rose from 30.0 % to 80.0 %",
        "25% of the values are missing, and 0% before.",
        "The column is gone.",
        "The column is new.",
        "1 column as in the baseline",
    ):
        assert sentence in text, sentence


def test_a_page_of_many_columns_stays_readable_by_a_browser() -> None:
    then = [numbers(random(seed).normal(size=50), f"x{seed}") for seed in range(256)]
    now = [numbers(random(seed).normal(9, size=50), f"x{seed}") for seed in range(256)]
    text = page(then, now)
    assert len(text) < 2_000_000
    assert text.count('<tr class="bad">') == 256
