"""What the path of an invocation names."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.routing.invocations import PREFIX, operation_of
from tests.hosting.routing.serving import one_process

pytestmark = one_process


@given(st.text(min_size=1))
def test_any_name_can_be_in_a_path(name: str) -> None:
    assert operation_of(f"{PREFIX}{quote(name, safe='')}/invocations") == (name, "invocations")


@given(st.text("%2Ff50c3bc.a\xc3\xbc\xff", min_size=1))
def test_any_encoding_is_decoded_once_and_stays_one_segment(encoded: str) -> None:
    name, operation = operation_of(f"{PREFIX}{encoded}/invocations")
    assert operation == "invocations"
    if "%" not in encoded:
        assert name == encoded


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("my%2Dendpoint/invocations", ("my-endpoint", "invocations")),
        ("a%252Fb/invocations", ("a%2Fb", "invocations")),
        ("a%2Finvocations", ("a/invocations", "")),
        ("../a/invocations", ("..", "a/invocations")),
    ],
)
def test_a_slash_that_is_encoded_ends_no_segment(path: str, meant: tuple[str, str]) -> None:
    assert operation_of(PREFIX + path) == meant
