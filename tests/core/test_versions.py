"""Versions of models as clients write them."""

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.core.versions import NegativeVersionError, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("", -1),
        ("12", 12),
        ("+3", 3),
        ("007", 7),
        (" 1", 1),
        ("1.0", 1),
        ("2nd", 2),
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_version_is_the_number_that_the_text_begins_with(text: str, version: int) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["abc", ".1", "+", "- 1", "٣", "\xa01", "9223372036854775808", "9" * 9999])
def test_text_that_begins_with_no_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_version(text)
    assert caught.value.message == (
        f"failed to get model version from specified version string '{text[:100]}' (details: stol), "
        "version should be an integral value > 0"
    )


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(NegativeVersionError) as caught:
        parse_version("-1")
    assert caught.value.message == (
        "failed to get model version from specified version string '-1', version should be an integral value > 0"
    )
