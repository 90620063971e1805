"""Rules of composite alarms: reading them and what they say."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.metering.alarms.rules import RuleError, parse_rule
from halimede.hosting.metering.alarms.states import AlarmState

STATES = {
    "a": AlarmState.ALARM,
    "b": AlarmState.OK,
    "c d": AlarmState.INSUFFICIENT_DATA,
    'q"(': AlarmState.ALARM,
}


def holds(text: str) -> bool:
    return parse_rule(text).holds(STATES.get)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRUE", True),
        ("false", False),
        ("ALARM(a)", True),
        ('ALARM("a")', True),
        ("OK(a)", False),
        ("OK ( b )", True),
        ("INSUFFICIENT_DATA(c d)", True),
        (r'ALARM("q\"(")', True),
        ("ALARM(nobody)", False),
        ("NOT ALARM(nobody)", True),
        ("NOT NOT ALARM(a)", True),
        ("NOT(ALARM(a))", False),
        ("NOT(NOT (FALSE) OR TRUE)", False),
        ("ALARM(a) AND OK(b)", True),
        ("ALARM(a)AND(OK(b))", True),
        ("ALARM(b) OR OK(a)", False),
        ("TRUE OR TRUE AND FALSE", True),
        ("(TRUE OR TRUE) AND FALSE", False),
        ("NOT FALSE AND FALSE", False),
        ("NOT (FALSE AND FALSE)", True),
        ("FALSE AND FALSE OR TRUE", True),
        ("ALARM(a) AND\n\tNOT ALARM(b)", True),
        ("((((((((((TRUE))))))))))", True),
        ("(" * 249 + "TRUE" + ")" * 249, True),
    ],
)
def test_what_rules_say(text: str, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "AlarmRule ends where an alarm's state, TRUE or FALSE is expected"),
        (" TRUE", "AlarmRule must not contain leading or trailing whitespace or be null"),
        ("TRUE FALSE", "AlarmRule has 'FALSE' where AND, OR or ) is expected"),
        ("AND TRUE", "AlarmRule has 'AND TRUE' where an alarm's state, TRUE, FALSE, NOT or ( is expected"),
        ("TRUE AND", "AlarmRule ends where an alarm's state, TRUE or FALSE is expected"),
        ("TRUE NOT FALSE", "AlarmRule has 'NOT FALSE' where AND, OR or ) is expected"),
        ("(TRUE", "AlarmRule ends where ) is expected"),
        ("TRUE)", "AlarmRule has ')' where AND, OR or the end is expected"),
        ("()", "AlarmRule has ')' where an alarm's state, TRUE, FALSE, NOT or ( is expected"),
        (
            "ALARM()",
            "AlarmRule has 'ALARM()' where one of OK, ALARM, INSUFFICIENT_DATA with an alarm in brackets",
        ),
        ("ALARM", "AlarmRule has 'ALARM' where one of OK, ALARM"),
        ('ALARM("a)', "AlarmRule has 'ALARM(\"a)' where one of OK, ALARM"),
        ("a", "AlarmRule has 'a' where one of OK, ALARM"),
        ("AT_LEAST(2, ALARM, (a, b))", "AlarmRule has 'AT_LEAST(2, ALARM, (a, b))' where one of"),
        (
            "TRUE & TRUE",
            "AlarmRule has '& TRUE' where an alarm's state, an operator or a bracket is expected",
        ),
        ("TRUE" + " OR TRUE" * 500, "AlarmRule has more than 500 elements"),
        (" OR ".join(f"ALARM(a{number})" for number in range(101)), "AlarmRule has more than 100 alarms"),
    ],
)
def test_bad_rules(text: str, message: str) -> None:
    with pytest.raises(RuleError) as error:
        parse_rule(text)
    assert str(error.value).startswith(message)


TEXTS = st.recursive(
    st.sampled_from(
        ["TRUE", "FALSE", "ALARM(a)", "OK(a)", "OK(b)", 'INSUFFICIENT_DATA("c d")', "ALARM(nobody)"]
    ),
    lambda inner: st.one_of(
        st.builds("NOT {}".format, inner),
        st.builds("({})".format, inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR"]), inner),
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(TEXTS)
def test_rules_bind_as_in_python(text: str) -> None:
    plain = text
    for part, value in (
        ("ALARM(a)", True), ("OK(a)", False), ("OK(b)", True), ('INSUFFICIENT_DATA("c d")', True),
        ("ALARM(nobody)", False), ("TRUE", True), ("FALSE", False),
    ):  # fmt: skip
        plain = plain.replace(part, str(value))
    for operator in ("AND", "OR", "NOT"):
        plain = plain.replace(operator, operator.lower())
    assert holds(text) is eval(plain)


@settings(deadline=None)
@given(st.text(alphabet='ALRMOKTUEND()" ab\\', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(RuleError):
        assert parse_rule(text).holds(STATES.get) in (True, False)
