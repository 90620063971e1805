import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.restrictions import (
    GRPC_HEADER_PREFIX,
    Restriction,
    compile_forward_pattern,
    forwarded_headers,
    parse_restrictions,
)


def test_restriction_names_categories_and_the_header_that_opens_them() -> None:
    restrictions = parse_restrictions(["health,metadata:Key=a=b", "inference:other=x"])
    assert restrictions == {
        "health": Restriction("key", "a=b"),
        "metadata": Restriction("key", "a=b"),
        "inference": Restriction("other", "x"),
    }


def test_grpc_headers_have_a_prefix() -> None:
    restrictions = parse_restrictions(["trace:Key=v"], "protocol", GRPC_HEADER_PREFIX)
    assert restrictions["trace"].header == "triton-grpc-protocol-key"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["health:a=b", "metadata,health:c=d"],
            "api 'health' can not be specified in multiple config groups",
        ),
        (["health,health:a=b"], "api 'health' can not be specified in multiple config groups"),
        (["x:a=b"], "unknown restricted api 'x'"),
        (["health"], "is not of the form"),
        (["health:a"], "is not of the form"),
        ([":a=b"], "is not of the form"),
        (["health:=b"], "is not of the form"),
    ],
)
def test_wrong_restriction_is_refused(options: list[str], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        parse_restrictions(options)


def test_pattern_finds_headers_anywhere_in_the_name_and_in_any_case() -> None:
    pattern = compile_forward_pattern("FORWARD")
    assert pattern is not None
    headers = {"x-forward-me": "1", "forward": "2", "other": "3"}
    assert forwarded_headers(headers, pattern) == {"x-forward-me": "1", "forward": "2"}


def test_no_pattern_forwards_nothing() -> None:
    assert compile_forward_pattern("") is None


def test_wrong_pattern_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="is not a regular expression"):
        compile_forward_pattern("(")


@pytest.mark.parametrize("name", ["priority", "timeout", "sequence_id", "triton_anything"])
def test_reserved_headers_are_not_forwarded(name: str) -> None:
    pattern = compile_forward_pattern(".*")
    assert pattern is not None
    text = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    with pytest.raises(InvalidArgumentError, match=text):
        forwarded_headers({name: "1"}, pattern)
