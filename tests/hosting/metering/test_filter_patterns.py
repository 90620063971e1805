"""Filter patterns, held against lines."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.filter_patterns import parse_filter_pattern

LINE = (
    '{"level": "error", "ms": 7.5, "ok": false, "none": null, "source": "10.0.0.7", "a-b@c": 1, "n": "12",'
    ' "user": {"name": "Ada L", "tags": ["x", {"y": 2}]}}'
)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ('{$.level="error"}', True),
        ("{ $.level = error }", True),
        ("{ $.level = err* }", True),
        ('{ $.level = "*rr*" }', True),
        ('{ $.level = "rr" }', False),
        ('{ $.level != "info" }', True),
        ('{ $.missing != "info" }', False),
        ("{ $.source = 10.0.* }", True),
        ('{ $.source = "10x0*" }', False),
        ("{ $.ms = 7.5 }", True),
        ("{ $.ms = 75e-1 }", True),
        ("{ $.ms != 7 }", True),
        ('{ $.ms = "7.5" }', False),
        ("{ $.n = 12 }", True),
        ("{ $.n > 11 }", False),
        ("{ $.ms > 7 && $.ms < 8 }", True),
        ("{ $.ms <= 7.5 && $.ms >= 7.5 }", True),
        ("{ $.ms < -1 }", False),
        ("{ $.ok IS FALSE }", True),
        ("{ $.ok IS TRUE }", False),
        ("{ $.ok = 0 }", False),
        ("{ $.none IS NULL }", True),
        ("{ $.level IS NULL }", False),
        ("{ $.missing IS NULL }", False),
        ("{ $.missing NOT EXISTS }", True),
        ("{ $.none NOT EXISTS }", False),
        ("{ $.user.name = Ada }", False),
        ('{ $.user.name = "Ada L" }', True),
        ("{ $.user.tags[0] = x }", True),
        ("{ $.user.tags[1].y = 2 }", True),
        ("{ $.user.tags[2] NOT EXISTS }", True),
        ("{ $['user']['name'] = Ada* }", True),
        ('{ $.["level"] = error }', True),
        ("{ $.a-b@c = 1 }", True),
        ("{ $.level = info || $.ms > 7 && $.ok IS TRUE }", False),
        ("{ ($.level = error || $.ms > 70) && ($.ok IS FALSE) }", True),
        ("{ ((($.level = error))) }", True),
    ],
)
def test_properties_of_json_lines(pattern: str, fits: bool) -> None:
    assert parse_filter_pattern(pattern)(LINE) is fits
    for line in ("", "plain", '{"level": "error"', '["error"]', "{}"):
        assert parse_filter_pattern(pattern)(line) is (line == "{}" and "NOT EXISTS" in pattern)


@pytest.mark.parametrize(
    ("wanted", "value", "fits"),
    [
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*a*b*", "xbxaxb", True),
        ("*a*b*", "xbxa", False),
        ("a*b*c", "abbc", True),
        ("a*b*bc", "abc", False),
        ("**", "", True),
        ("*a" * 200 + "b", "a" * 5000, False),
    ],
)
def test_stars_stand_for_any_characters(wanted: str, value: str, fits: bool) -> None:
    assert parse_filter_pattern(f'{{ $.v = "{wanted}" }}')(f'{{"v": "{value}"}}') is fits


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("{ $.a", "expected a comparison, found the end"),
        ("{ }", "expected a property such as $.level, found '}'"),
        ("{ a = 1 }", "expected a property such as $.level, found 'a'"),
        ("{ $.a = }", "expected a value, found '}'"),
        ("{ $.a IS MISSING }", "expected NULL, TRUE or FALSE, found 'MISSING'"),
        ("{ $.a NOT NULL }", "expected 'EXISTS', found 'NULL'"),
        ('{ $.a > "1" }', "'>' compares with a number, not with \"1\""),
        ("{ $.a < x }", "'<' compares with a number, not with x"),
        ("{ $.a = 1 } x", "expected the end, found 'x'"),
        ("{ $.a = 1", "expected '}', found the end"),
        ("{ ($.a = 1 }", "expected ')', found '}'"),
        ("{ $ = 1 }", "'$' is not expected"),
        ('{ $.a = "x }', "'\"' is not expected"),
        ("{" + "(" * 20 + "$.a = 1" + ")" * 20 + "}", "brackets are nested more than 20 deep"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(ApiError) as raised:
        parse_filter_pattern(pattern)
    assert raised.value.code == "InvalidParameterException"
    assert text in raised.value.message


@given(st.text(alphabet="{}()$.[]'\"=!<>&| ab1*?-%IS NOT", max_size=40), st.text(max_size=20))
def test_any_pattern_is_parsed_or_refused(pattern: str, line: str) -> None:
    with suppress(ApiError):
        assert parse_filter_pattern(pattern)(line) in (True, False)
        parse_filter_pattern("{" + pattern + "}")(LINE)
