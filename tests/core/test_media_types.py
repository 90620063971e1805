import pytest

from halimede.core.media_types import essence, parameter


@pytest.mark.parametrize(
    "media_type",
    [
        "text/csv",
        "Text/CSV",
        " text/csv ",
        "text/csv;charset=utf-8",
        "text/csv ; charset=utf-8",
        'TEXT/csv; header="present; yes"',
    ],
)
def test_letter_case_spaces_and_parameters_do_not_change_the_essence(media_type: str) -> None:
    assert essence(media_type) == "text/csv"


@pytest.mark.parametrize(
    ("parameters", "value"),
    [
        (";size=5", "5"),
        ("; size=5", "5"),
        (" ;\tSIZE=5", "5"),
        ('; size="5"', "5"),
        ('; size="\\5"', "5"),
        ("; charset=utf-8; size=5", "5"),
        ('; name="; size=4"; size=5', "5"),
        ("; size=5; size=6", "5"),
        ("; size=5 ;charset=utf-8", "5"),
        ("; size=", ""),
        ("; size=\x1f5", "\x1f5"),
        ("; resize=5", None),
        ("size=5", None),
        ("", None),
    ],
)
def test_a_parameter_is_found_however_it_is_written(parameters: str, value: str | None) -> None:
    assert parameter("text/csv" + parameters, "size") == value
