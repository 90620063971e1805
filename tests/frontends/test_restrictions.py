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
        "health": Restriction("key", "a=b", "Key"),
        "metadata": Restriction("key", "a=b", "Key"),
        "inference": Restriction("other", "x", "other"),
    }


def test_grpc_headers_have_a_prefix() -> None:
    restrictions = parse_restrictions(["trace:Key=v"], "protocol", GRPC_HEADER_PREFIX)
    assert restrictions["trace"] == Restriction("triton-grpc-protocol-key", "v", "triton-grpc-protocol-Key")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["health:a=b", "metadata,health:c=d"],
            "restricted api 'health' can not be specified in multiple config groups",
        ),
        (["health,health:a=b"], "restricted api 'health' can not be specified in multiple config groups"),
        (["x:a=b"], "unknown restricted api 'x'"),
        (["health"], r"^--http-restricted-api option format is .*\. Got health$"),
        (["health:a"], "option format is"),
        ([":a=b"], "option format is"),
        (["health:=b"], "option format is"),
    ],
)
def test_wrong_restriction_is_refused(options: list[str], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        parse_restrictions(options)


def forwarded(pattern: str, *names: str) -> list[str]:
    compiled = compile_forward_pattern(pattern)
    assert compiled is not None
    return list(forwarded_headers([(name, "v") for name in names], compiled))


def test_pattern_finds_headers_anywhere_in_the_name_and_in_any_case() -> None:
    assert forwarded("FORWARD", "X-Forward-Me", "forward", "other") == ["X-Forward-Me", "forward"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("(?-i)MY_HEADER.*", ["MY_HEADER_1"]),
        ("(?-i)MY_HEADER.*|(?i)^other", ["MY_HEADER_1", "Other"]),
        ("(?-i:MY)_header", ["MY_HEADER_1"]),
        (r"\Qmy_header_\E\d\z", ["MY_HEADER_1", "my_header_2"]),
        ("[[:digit:]]$", ["MY_HEADER_1", "my_header_2"]),
    ],
)
def test_pattern_has_re2s_syntax(pattern: str, names: list[str]) -> None:
    assert forwarded(pattern, "MY_HEADER_1", "my_header_2", "Other") == names


def test_no_pattern_forwards_nothing() -> None:
    assert compile_forward_pattern("") is None


@pytest.mark.parametrize(
    ("pattern", "reason"), [("(a", "missing ): (a"), ("(?=a)", "invalid perl operator: (?="), (r"\1", r"\1")]
)
def test_wrong_pattern_is_refused(capfd: pytest.CaptureFixture[str], pattern: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        compile_forward_pattern(pattern)
    text = f"header forward pattern '{pattern}' is not a regular expression of RE2: "
    assert caught.value.message.startswith(text)
    assert reason in caught.value.message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["priority", "timeout", "Sequence_ID", "Triton_anything"])
def test_reserved_headers_are_not_forwarded(name: str) -> None:
    text = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    with pytest.raises(InvalidArgumentError, match=text):
        forwarded(".*", name)
