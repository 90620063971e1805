import pytest

from halimede.cli.flag_groups.server import FRONT_ENDS, suitable_front_ends
from halimede.cli.settings import BOOL, COUNT, NUMBER, PORT, POSITIVE, VERBOSITY, Kind, Setting, choice


@pytest.mark.parametrize("text", ["true", "on", "1", "True", "ON"])
def test_yes_is_true_on_or_1(text: str) -> None:
    assert BOOL.parse(text) is True


@pytest.mark.parametrize("text", ["false", "off", "0", "FALSE", "Off"])
def test_no_is_false_off_or_0(text: str) -> None:
    assert BOOL.parse(text) is False


@pytest.mark.parametrize("text", ["poll", "POLL", "Poll"])
def test_a_choice_has_any_letter_case(text: str) -> None:
    assert choice("none", "poll").parse(text) == "poll"
    assert choice("default", "ISO8601").parse("iso8601") == "ISO8601"


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (BOOL, "yes", "'yes' is no boolean; write true, on, 1, false, off or 0"),
        (COUNT, "many", "'many' is not a whole number"),
        (COUNT, "-1", "-1 is out of range; it must be at least 0"),
        (POSITIVE, "0", "0 is out of range; it must be at least 1"),
        (PORT, "65536", "65536 is out of range; it must be from 0 to 65535"),
        (FRONT_ENDS, "0", "0 is out of range; it must be at least 1; or write auto"),
        (FRONT_ENDS, "all", "'all' is not a whole number; or write auto"),
        (NUMBER, "x", "'x' is not a number"),
        (VERBOSITY, "loud", "'loud' is not a whole number"),
        (choice("none", "poll"), "PULL", "'PULL' is not one of 'none', 'poll'; did you mean 'poll'\\?"),
        (choice("none", "poll"), "pull", "'pull' is not one of 'none', 'poll'; did you mean 'poll'\\?"),
    ],
)
def test_a_wrong_value_says_what_would_be_right(kind: Kind[object], text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason.replace("(", r"\(") + "$"):
        kind.parse(text)


@pytest.mark.parametrize(("text", "level"), [("true", 1), ("off", 0), ("1", 1), ("3", 3)])
def test_verbosity_is_a_level_or_a_switch(text: str, level: int) -> None:
    assert VERBOSITY.parse(text) == level


def test_front_ends_are_as_many_as_suit_the_processors() -> None:
    suitable = {processors: suitable_front_ends(processors) for processors in (1, 2, 4, 7, 8, 16, 128)}
    assert suitable == {1: 1, 2: 1, 4: 1, 7: 1, 8: 2, 16: 4, 128: 4}
    assert FRONT_ENDS.parse("3") == 3
    assert FRONT_ENDS.parse("auto") >= 1


def test_defaults_are_shown_as_one_would_write_them() -> None:
    def shown(default: object) -> str:
        return Setting("x", "Group", BOOL, default, "Help.").default_text

    assert [shown(value) for value in (True, 8000, "", ())] == ["true", "8000", "", ""]
